"""The device that a campaign measures on: found, described, its power read, its clock locked; and how fast its host is.

A locked clock outlives the process that locked it. So the process first writes a marker, a file that it keeps locked.
A marker that no process holds was left by a crash, and the next campaign on that GPU resets the clock first.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from ..errors import ClockError, DeviceError, InputError, MissingDependencyError, SensorError
from ..hardware.host import cpu_name, processor
from ..metering import Sensor
from ..metering.cpu import zones_folder
from ..metering.nvidia import TABLE, nvidia_smi
from ..metering.sampler import PERIOD_S, nvidia_smi_sensor, nvml_sensor, powercap_sensor
from ..system.whole_files import lock
from .timing import by_cpu_time, synchronize

_CPU_CACHE_BYTES = 32 * 2**20
_CPU_MEMORY_BYTES = 2**30


def find_device(name: str) -> torch.device:
    """The device that a user names: cpu, cuda or cuda:1. Raises InputError: there is no such device."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError("this is not a device", given=repr(name), allowed="cpu, cuda, cuda:0, ...") from error
    if device.type == "cpu":
        return device
    if device.type != "cuda" or not torch.cuda.is_available():
        raise InputError(
            "this device is not available",
            given=name,
            allowed="cpu" + (", cuda" if torch.cuda.is_available() else ""),
            hint=None if torch.cuda.is_available() else "check `nvidia-smi`, and that torch is a CUDA build",
        )
    index = device.index or 0
    if index >= torch.cuda.device_count():
        raise InputError("there is no such GPU", given=name, allowed=f"cuda:0 to cuda:{torch.cuda.device_count() - 1}")
    return torch.device("cuda", index)


def name_of(device: torch.device) -> str:
    """The name of the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return cpu_name()


def sensor_of(device: torch.device, period_s: float = PERIOD_S) -> Sensor:
    """The power sensor of a device: NVML, or nvidia-smi where that fails; powercap, or none, for a CPU.

    Raises MissingDependencyError, SensorError: the GPU's power cannot be read.
    """
    if device.type != "cuda":
        try:
            return powercap_sensor()
        except SensorError as error:
            return Sensor(None, {"sensor": f"none ({error.what}: {error.hint or zones_folder()})"})
    try:
        return nvml_sensor(nvml_index(device), period_s)
    except (MissingDependencyError, SensorError):
        if shutil.which("nvidia-smi") is None:
            raise
        return nvidia_smi_sensor(nvml_index(device))


def second_sensor_of(device: torch.device) -> Sensor:
    """Another way to read the same power, to check the first. Raises SensorError: there is none."""
    if device.type == "cuda":
        with suppress(SensorError):
            return nvidia_smi_sensor(nvml_index(device))
    raise SensorError(
        "there is no second log of this device's power",
        given=str(device),
        allowed="a GPU that nvidia-smi shows",
        hint="omit second_log",
    )


_NEAREST = 5


class Clocks:
    """The graphics clock of a GPU, set through `nvidia-smi`, which comes with every driver.

    Raises SensorError: there is no `nvidia-smi`, or it does not know this GPU.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        identity = nvidia_smi(f"--id={index}", "--query-gpu=uuid", TABLE)
        # By default below ~/.local/state: a folder that survives a crash.
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        self._marker = state / "joulecast" / f"locked-{identity}"

    def check(self, clock_mhz: int) -> None:
        """Check that the GPU supports a clock. Raises ClockError: it does not. The message names the nearest clocks."""
        listed = ""
        with suppress(SensorError):  # The GPU may not tell.
            listed = nvidia_smi(f"--id={self._index}", "--query-supported-clocks=memory,graphics", TABLE)
        pairs = [tuple(map(int, each)) for each in re.findall(r"(\d+), (\d+)", listed)]
        fastest_memory_mhz = max((memory for memory, _ in pairs), default=0)
        supported = [graphics for memory, graphics in pairs if memory == fastest_memory_mhz]
        if supported and clock_mhz not in supported:
            nearest = sorted(sorted(supported, key=lambda mhz: abs(mhz - clock_mhz))[:_NEAREST])
            raise ClockError(
                "this GPU does not support this clock",
                given=f"{clock_mhz} MHz",
                allowed=f"{min(supported)} to {max(supported)} MHz; nearest: {', '.join(map(str, nearest))}",
            )

    @contextmanager
    def locked(self, clock_mhz: int | None) -> Iterator[None]:
        """Lock a clock; None leaves the GPU as it is.

        Raises ClockError: there is no permission, in which case the message names the command to run; or another
        campaign holds this GPU's clock.
        """
        if clock_mhz is None:
            yield
            return
        with self._marked():
            try:
                self._set(clock_mhz)
            except ClockError:
                self._marker.unlink()
                raise
            try:
                yield
            finally:
                self._set(None)
                self._marker.unlink()  # The marker stays where the reset failed, so that the next campaign tries again.

    def restore(self) -> bool:
        """Reset a clock that a crashed campaign left locked, and return whether there was one.

        Raises ClockError: the clock cannot be reset, or another campaign holds this GPU's clock.
        """
        if not self._marker.exists():
            return False
        with self._marked():
            self._set(None)
            self._marker.unlink()
        return True

    @contextmanager
    def _marked(self) -> Iterator[None]:
        self._marker.parent.mkdir(parents=True, exist_ok=True)
        with self._marker.open("a") as file:
            if not lock(file, wait=False):
                raise ClockError(
                    "another campaign holds this GPU's clock",
                    given=f"GPU {self._index}",
                    hint="wait for it, or use another GPU",
                )
            file.flush()
            os.fsync(file.fileno())
            yield

    def _set(self, clock_mhz: int | None) -> None:
        """Lock a clock, or reset it with None. Raises ClockError: this user may not do that."""
        argument = "--reset-gpu-clocks" if clock_mhz is None else f"--lock-gpu-clocks={clock_mhz},{clock_mhz}"
        try:
            nvidia_smi(f"--id={self._index}", argument)
        except SensorError as error:
            what, after = "the clock cannot be reset", f"then delete {self._marker}"
            if clock_mhz is not None:
                what = f"the clock cannot be locked at {clock_mhz} MHz"
                after = "then collect with a campaign without clocks; the clock that the GPU really holds is stored"
            hint = f"run `sudo nvidia-smi --id={self._index} {argument}`; {after}"
            raise ClockError(what, given=error.given, hint=hint) from error


def clocks_of(device: torch.device) -> Clocks:
    """The clock of a device. Raises InputError: it is no GPU."""
    if device.type != "cuda":
        raise InputError("the clock of this device cannot be locked", given=device.type, hint="omit clocks")
    return Clocks(nvml_index(device))


def nvml_index(device: torch.device) -> int:
    """NVML's number of a GPU: CUDA_VISIBLE_DEVICES renumbers torch's GPUs but not NVML's."""
    index: int = torch.cuda._get_nvml_device_index(device)
    return index


def facts_of(device: torch.device, sensor: Sensor) -> dict[str, Any]:
    """Facts about the machine for a dataset's card."""
    facts = {**sensor.facts, "torch": torch.__version__, "cuda": torch.version.cuda or "none"}
    if device.type == "cuda":
        return facts
    return {**facts, "threads": torch.get_num_threads(), "cpu_time": by_cpu_time(device)}


def load_average_of(device: torch.device) -> float | None:
    """The machine's one-minute load average, where a CPU is measured and the system states it.

    Other programs take time from a CPU that is measured, which its times do not show by themselves.
    """
    if device.type == "cuda":
        return None
    with suppress(OSError, AttributeError):  # Windows has no load average.
        return os.getloadavg()[0]
    return None


def make_room(device: torch.device) -> None:
    """Give back the memory that the last measurement left in PyTorch's pool, and which would count as used."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def limits_of(device: torch.device) -> dict[str, int]:
    """Bytes of cache that a block of instances must exceed, and bytes of memory that it may use."""
    if device.type != "cuda":
        return {"cache_bytes": _CPU_CACHE_BYTES, "memory_bytes": _CPU_MEMORY_BYTES}
    cache: int = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 64 * 2**20)
    return {"cache_bytes": cache, "memory_bytes": torch.cuda.mem_get_info(device)[0]}


def refuse_broken(device: torch.device, reason: str) -> None:
    """End the campaign if the device itself is in an error state. Otherwise all further operations would fail as well.

    Raises DeviceError: the GPU is in an error state, which only a new process can leave.
    """
    try:
        synchronize(device)
    except RuntimeError as error:
        raise DeviceError(
            "the GPU is in an error state",
            given=reason,
            hint="finished measurements are in the journal; go on with --resume",
        ) from error


REFERENCE_CALL_S = 13.9e-6
"""Time of a call of a ReLU module on the reference host, with its launch, in an asynchronous loop on an A30 (host time
of relu in zoo/a30/forest-inference)."""

LAUNCH_S = 2.5e-6
"""Time of the driver's part of a kernel launch, about 2 to 3 us on current servers. Added where there is no GPU to
launch on."""

_CALLS, _ROUNDS = 2000, 25


def measure_host(device: torch.device | None = None) -> tuple[float, dict[str, Any]]:
    """Measure the factor of this machine.

    The factor is an estimate, because there is no host on which both networks and such calls were measured.

    A ReLU module is called on one element, as in the loops of the reference host. On the CPU the computation takes less
    than a tenth of the call; on a GPU the loop is asynchronous, so that only launches are timed. Returns seconds per
    call over those of the reference host, and the facts for a profile.

    Args:
        device: A CUDA device to launch on; None to time PyTorch's dispatch on the CPU and add a typical launch.
    """
    on_gpu = device is not None and device.type == "cuda"
    module = torch.nn.ReLU().eval()
    x = torch.ones(1, device=device)
    rounds_s = []
    with torch.inference_mode():
        for _ in range(_ROUNDS):
            if on_gpu:
                torch.cuda.synchronize(device)
            start_s = time.perf_counter()
            for _ in range(_CALLS):
                module(x)
            rounds_s.append((time.perf_counter() - start_s) / _CALLS)
    # The fastest rounds count, because slower ones were disturbed by other work on the machine.
    call_s = statistics.mean(sorted(rounds_s)[: _ROUNDS // 5])
    whole_s = call_s if on_gpu else call_s + LAUNCH_S
    facts = {
        "call_s": call_s,
        "launch_s": 0.0 if on_gpu else LAUNCH_S,
        "device": torch.cuda.get_device_name(device) if on_gpu else "CPU",
        "torch": torch.__version__,
        "processor": processor(),
    }
    return whole_s / REFERENCE_CALL_S, facts
