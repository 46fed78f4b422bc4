"""Devices of this machine that can be measured, their readers, and the reasons why others cannot."""

from __future__ import annotations

import datetime
import os
import platform
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import InputError, JoulecastError, unknown_name
from ..hardware import find_gpu
from . import amd, cpu, estimated_power, nvidia
from .recording import DeviceInfo
from .sampler import ReaderSpec

GROUPS = ("cpu", "ram", "gpu")
"""Groups of devices that can be requested; a name such as gpu1 requests a single device."""

ESTIMATE = "estimate"
"""Requests estimates from utilization and data sheets, in place of sensors."""


@dataclass(frozen=True)
class Machine:
    """The devices of a machine that can be read, and why other sensors cannot and what would allow it (`absent`)."""

    readers: dict[str, ReaderSpec] = field(default_factory=dict)
    devices: list[DeviceInfo] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)

    def add(self, device: DeviceInfo, reader: ReaderSpec) -> None:
        """Add a device and its reader."""
        self.devices.append(device)
        self.readers[device.name] = reader

    @contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Note why something cannot be read, in place of an error."""
        try:
            yield
        except JoulecastError as error:
            self.absent.append(f"{what}: {error.what}" + (f" ({error.given})" if error.given else ""))

    def header(self, program: Collection[str] = ()) -> dict[str, Any]:
        """The first line of a recording on this machine."""
        return {
            "host": platform.node(),
            "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "wall_offset_s": time.time() - time.monotonic(),
            "program": list(program),
            "devices": [asdict(device) for device in self.devices],
            "absent": list(self.absent),
        }


def find_machine(wanted: Collection[str] | None = None) -> Machine:
    """Find the devices of this machine that can be measured.

    Returns the devices that were found. There may be none; `absent` has the reasons. Raises UnknownNameError: a name is
    neither a group nor a device of this machine. Raises InputError: an estimate is requested together with devices.

    Args:
        wanted: "cpu", "ram", "gpu", or names of devices such as "gpu1". Memory without a counter is modelled if "ram"
            is requested by name, and reported as modelled. "estimate" alone: CPU and GPUs are not read but estimated
            (`estimated_power`). None for all that have a sensor; an estimate takes the place of all sensors where there
            is none, and is never added to one. Containers that mount the host's counters elsewhere name that folder in
            JOULECAST_POWERCAP.
    """
    if wanted is None:
        found = find_machine(GROUPS)
        chosen = [device for device in found.devices if device.method == "measured"]
        if not chosen:
            estimated = find_machine((ESTIMATE,))
            return replace(estimated, absent=list(dict.fromkeys([*found.absent, *estimated.absent])))
        return replace(found, readers={d.name: found.readers[d.name] for d in chosen}, devices=chosen)
    machine = Machine()
    if tuple(wanted) == (ESTIMATE,):
        _add_estimates(machine)
        return machine
    if ESTIMATE in wanted:
        raise InputError(
            "an estimate stands alone, because it is not added to what is measured",
            given=", ".join(wanted),
            allowed="estimate, or any of cpu, ram, gpu and names of devices",
            hint="leave one of them out",
        )
    groups = {name.rstrip("0123456789.") or name for name in wanted}
    if groups & {"cpu", "ram", "platform"}:
        _add_cpu(machine, cpu.zones_folder())
    if "gpu" in groups:
        _add_nvidia(machine)
        first = sum(device.component == "board" for device in machine.devices)
        for place, (facts, reader, settings) in enumerate(amd.gpus(), first):
            machine.add(_gpu(f"gpu{place}", facts), ReaderSpec(reader, settings))
    has_counter = any(device.component == "dram" for device in machine.devices)
    if "ram" in wanted and not has_counter:
        with machine.noting("ram"):
            capacities = estimated_power.modules_gb()
            spec = ReaderSpec("memory-model", {"capacities_gb": capacities})
            spec.open()()
            facts = {"sensor": f"a model of {len(capacities)} modules by their capacity and use"}
            machine.add(DeviceInfo("ram", "dram", method="modelled", facts=facts), spec)
    chosen = [d for d in machine.devices if d.name in wanted or _group(d) in wanted]
    for name in wanted:
        if name not in GROUPS and name not in machine.readers:
            raise unknown_name("device", name, [*GROUPS, ESTIMATE, *machine.readers])
    absent = [note for note in machine.absent if "cpu" in groups or not note.startswith("cpu")]
    return Machine({d.name: machine.readers[d.name] for d in chosen}, chosen, absent)


def _group(device: DeviceInfo) -> str:
    return "ram" if device.component == "dram" else "gpu" if device.component == "board" else "cpu"


def _add_cpu(machine: Machine, folder: Path) -> None:
    zones = cpu.zones(folder)
    refused = []
    for zone in zones:
        spec = ReaderSpec("powercap", {"folders": [str(zone.folder)]})
        try:
            spec.open()
        except JoulecastError as error:
            refused.append(f"{zone.device} ({error.given})")
            continue
        facts = {"sensor": f"powercap, {zone.folder.name}", "device": platform.processor() or platform.machine()}
        machine.add(DeviceInfo(zone.device, zone.component, zone.counted, facts=facts), spec)
    if refused:
        machine.absent.append(
            f"cpu: {len(refused)} energy counters may not be read, such as {refused[0]}; {cpu.allowing(folder)}"
        )
    if any(device.component in ("package", "psys") for device in machine.devices):
        return
    program = next((name for name, row in cpu.PROGRAMS.items() if row.system == sys.platform), "perf")
    try:
        cpu.check_program(program)
    except JoulecastError as error:
        if not zones:
            machine.absent.append(f"cpu: no energy counter in {folder}, and {error.what} ({error.given})")
        return
    facts = {"sensor": cpu.PROGRAMS[program].about, "device": platform.processor() or platform.machine()}
    machine.add(DeviceInfo("cpu", "package", facts=facts), ReaderSpec("counting-program", {"program": program}))


def _add_nvidia(machine: Machine) -> None:
    try:
        for index in range(nvidia.gpu_count()):
            facts = nvidia.nvml_facts(index)
            if nvidia.is_partitioned(index):
                machine.absent.append(f"gpu{index} is divided (MIG): its power is that of all instances together")
            spec = ReaderSpec("nvml", {"index": index})
            if not {"power_w", "energy_j"} & spec.open()().keys():
                machine.absent.append(f"gpu{index}: its driver states no power")
                continue
            machine.add(_gpu(f"gpu{index}", {**facts, "sensor": "NVML"}), spec)
    except JoulecastError as error:
        try:
            facts = nvidia.nvidia_smi_facts(0)
        except JoulecastError:
            with machine.noting("NVIDIA GPUs"):
                raise error from None
            return
        # A reading waits for the next line of nvidia-smi's log. Readings of several GPUs would wait one after another,
        # so only one GPU is read in this way.
        machine.add(_gpu("gpu0", {**facts, "sensor": "nvidia-smi"}), ReaderSpec("nvidia-smi", {"index": 0}))


def _gpu(name: str, facts: dict[str, Any]) -> DeviceInfo:
    try:
        idle_w = find_gpu(str(facts["device"])).idle_power_w
    except InputError:
        idle_w = None
    return DeviceInfo(name, "board", idle_w=idle_w, facts=facts)


def _add_estimates(machine: Machine) -> None:
    """Add the CPU, and the GPUs whose driver states their utilization, as estimates."""
    power, threads = estimated_power.thread_power(), os.cpu_count() or 1
    idle_w, busy_w = threads * power["idle_w"], threads * power["busy_w"]
    spec = ReaderSpec("cpu-estimate", {"idle_w": idle_w, "busy_w": busy_w})
    with machine.noting("cpu"):
        spec.open()
        watts = f"{power['idle_w']:g} to {power['busy_w']:g} W each"
        about = f"utilization of {threads} threads, {watts} ({power['generation']})"
        machine.add(DeviceInfo("cpu-estimate", "server", method="modelled", facts={"sensor": about}), spec)
    with machine.noting("NVIDIA GPUs"):
        for index in range(nvidia.gpu_count()):
            facts = nvidia.nvml_facts(index)
            gpu = find_gpu(str(facts["device"]))
            idle_w, busy_w = gpu.idle_power_w or 0.0, float(facts.get("power_limit_w") or gpu.power_limit_w)
            facts["sensor"] = f"utilization between {idle_w:g} and {busy_w:g} W"
            spec = ReaderSpec("gpu-estimate", {"index": index, "idle_w": idle_w, "busy_w": busy_w})
            spec.open()()
            machine.add(DeviceInfo(f"gpu{index}-estimate", "board", method="modelled", facts=facts), spec)


def chosen_devices(text: str | None) -> tuple[str, ...] | None:
    """The names in a list such as "cpu,ram,gpu0"; None without a list. Raises InputError: the text contains no name."""
    names = None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())
    if names == ():
        raise InputError("there is nothing to measure", given=repr(text), allowed=", ".join(GROUPS))
    return names
