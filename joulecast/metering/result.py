"""Metering: the energy that a program used, by device and window, computed from recordings alone."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.resources import files
from itertools import pairwise
from typing import Any, cast

import numpy as np

from ..energy import EnergyTree, Row, Share
from ..energy.node import SOURCES, Source
from ..errors import InputError
from ..hardware import find_gpu
from ..rendering.answers import Answer, Table
from ..rendering.pictures import Line, Picture, lines_over
from ..units import si
from .energy_curve import EnergyCurve, window_rows
from .gpu_shares import GpuShare, program_share
from .recording import DeviceInfo, Recording
from .samples import Samples

# What is known of the errors of GPUs' power sensors, and energies corrected for them.
#
# Yang et al. compared what boards report with a power meter at their supply: reported = gain x metered + offset. They
# also found how often a reading changes, and over which part of the time since the last change it averages. The numbers
# are in published_power.toml, with their source.

BOARD_SPREAD = 0.015
"""Standard deviation of the error between boards of one model: of five RTX 3090, -4.0, -1.0, -0.1, -0.6 and -1.8 %."""

REST = (-0.09, 0.034)
"""Lowest and highest error of 13 models: what is known of a model that was not compared."""


_PUBLISHED = tomllib.loads(files(__package__).joinpath("published_power.toml").read_text(encoding="utf-8"))
_KNOWN, _WINDOWS_MS = _PUBLISHED["sensor"], _PUBLISHED["sensor_window_ms"]


_POINTS = 400  # Most points of a power trace.
_WRITTEN = ("energy_j", "complete", "mean_w", "peak_w", "idle_j", "corrected_j", "program_share")


@dataclass(frozen=True)
class DeviceEnergy:
    """The energy that one device used.

    Args:
        energy_j: Known joules.
        complete: Whether the device could be read all the time; otherwise `energy_j` is a lower bound.
        peak_w: Highest mean power over one second in watts; None if it is not known.
        program_share: The program's share of what all programs used of the device, 0 to 1; None if it is not known.
    """

    host: str
    device: DeviceInfo
    energy_j: float
    complete: bool
    duration_s: float
    peak_w: float | None
    program_share: float | None = None

    @property
    def mean_w(self) -> float:
        """Mean power over the measurement."""
        return self.energy_j / self.duration_s if self.duration_s else 0.0

    @property
    def name(self) -> str:
        """Machine and device, such as "node1/gpu0"."""
        return f"{self.host}/{self.device.name}"

    @property
    def program_j(self) -> float | None:
        """The program's joules, in proportion to its share of the device (EFLECT); None if that is not known."""
        return None if self.program_share is None else self.program_share * self.energy_j

    @property
    def corrected_j(self) -> float | None:
        """Joules that a meter at the board's supply would have counted; None for a model that none was compared with.

        A counter adds up the same sensor's readings, so it is taken to have the same gain and offset.
        """
        error = _KNOWN.get(str(self.device.facts.get("device")))
        if self.device.component != "board" or self.device.method != "measured" or error is None:
            return None
        gain, offset_w = float(error["gain"]), float(error["offset_w"])
        return max(0.0, (self.energy_j - offset_w * self.duration_s) / gain)

    @property
    def idle_j(self) -> float | None:
        """Joules that the device would have used without any load; None if its idle power is not known."""
        idle_w = self.device.idle_w
        return None if idle_w is None else min(self.energy_j, idle_w * self.duration_s)


@dataclass(frozen=True, repr=False)
class Metering(Answer):
    """The energy that a program used on one or several machines."""

    title: str
    recordings: tuple[Recording, ...]

    @property
    def duration_s(self) -> float:
        """Seconds that all recordings of a machine took together, of the machine that was measured longest."""
        hosts = {each.host for each in self.recordings}
        return max(sum(each.end_s - each.start_s for each in self.recordings if each.host == host) for host in hosts)

    @cached_property
    def devices(self) -> tuple[DeviceEnergy, ...]:
        """Every device of every machine, including those that are parts of other devices."""
        return tuple(found for recording in self.recordings for found in _device_energies(recording))

    @property
    def energy_j(self) -> float | None:
        """Joules of all devices, without those that are parts of others. A lower bound unless `complete`.

        None if nothing could be measured.
        """
        counted = [found.energy_j for found in self.devices if found.device.counted]
        return sum(counted) if counted else None

    @property
    def source(self) -> Source:
        """Whether the joules were measured, or all or some are modelled; "missing" if there are none."""
        found = [cast(Source, each.device.method) for each in self.devices if each.device.counted]
        return max(found, key=SOURCES.index, default="missing")

    @property
    def complete(self) -> bool:
        """Whether there is at least one device, and all devices could be read all the time."""
        return self.energy_j is not None and all(found.complete for found in self.devices if found.device.counted)

    @property
    def mean_w(self) -> float | None:
        """Mean power of all devices together in watts; None if nothing could be measured."""
        return self.energy_j / self.duration_s if self.energy_j is not None and self.duration_s else None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the measured command: the first that is not 0 on any machine; None if no command ended."""
        codes = [recording.exit_code for recording in self.recordings if recording.exit_code is not None]
        return next((code for code in codes if code), codes[0] if codes else None)

    @property
    def cpu_share(self) -> float | None:
        """Mean share of the machines' CPU time that the program used, over their seconds; None if it is not known."""
        found = [(program_share(each.shares, "cpu"), each.end_s - each.start_s) for each in self.recordings]
        known = [(share, length_s) for share, length_s in found if share is not None]
        whole_s = sum(length_s for _, length_s in known)
        return sum(share * length_s for share, length_s in known) / whole_s if whole_s else None

    @property
    def gpu_shares(self) -> dict[str, GpuShare]:
        """GPU, such as "node1/gpu0" -> shares of the program and of others; without GPUs that do not report them."""
        listed: dict[str, list[Any]] = {}
        for recording in self.recordings:
            for share in recording.shares:
                for name, each in share.get("gpus", {}).items():
                    listed.setdefault(f"{recording.host}/{name}", []).append(each)
        found = {name: GpuShare.over(shares) for name, shares in listed.items()}
        return {name: share for name, share in found.items() if share != GpuShare(None, None, None, None)}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the result: sensors that were absent or lost, times that are unknown, and values from models."""
        return tuple(dict.fromkeys(note for recording in self.recordings for note in self._notes(recording)))

    def _notes(self, recording: Recording) -> list[str]:
        where = f"{recording.host}: " if len(self.recordings) > 1 else ""
        notes = [*recording.absent, *recording.events]
        notes += [f"{d.name} is modelled, not measured" for d in recording.devices if d.method == "modelled"]
        mine = list(_device_energies(recording))
        notes += [note for found in mine if (note := _sensor_note(found, recording.samples[found.device.name]))]
        notes += [
            f"{found.device.name} could not be read all the time: at least {si(found.energy_j, 'J')}"
            for found in mine
            if not found.complete
        ]
        if not recording.complete:
            notes.append("the recording was not closed: its program or meter was killed")
        return [where + note for note in notes]

    def tree(self) -> EnergyTree:
        """Joules by window, device and component; joules outside all windows are unattributed.

        Windows inside others are their children. Devices with a known idle power have two components, which separate
        the joules that the program caused from those that the device uses in any case.
        """
        rows: list[Row] = []
        outside: list[Share] = []
        for recording in self.recordings:
            mine, rest = window_rows(recording, several=len(self.recordings) > 1)
            rows += mine
            outside.append(rest)
        if not any(recording.windows for recording in self.recordings):
            return EnergyTree.of(self.title, [Row("", Share.total(outside), phase="other")], notes=self.notes)
        return EnergyTree.of(self.title, rows, Share.total(outside), self.notes)

    def _picture(self) -> Picture:
        """Power over time, a line for each device. Raises InputError: nothing was measured."""
        lines = []
        for recording in self.recordings:
            for device in recording.devices:
                curve = EnergyCurve.of(recording.samples[device.name])
                if device.counted and len(curve.time_s) > 1:
                    edges = np.linspace(curve.time_s[0], curve.time_s[-1], min(_POINTS, len(curve.time_s)) + 1)
                    power_w = curve.between(edges[:-1], edges[1:])[0] / np.diff(edges)
                    points = list(zip((edges[1:] - recording.start_s).tolist(), power_w.tolist(), strict=True))
                    lines.append(Line(f"{recording.host}/{device.name}", points, int(np.argmax(power_w))))
        if not lines:
            raise InputError(
                "there is no power to plot",
                given="no device was measured",
                hint="the notes of this result say why the sensors could not be read",
            )
        return Picture(lines_over(lines, ("time", "s"), ("power", "W"), f"Power of {self.title}"))

    def _table(self) -> Table:
        """The devices, with joules and watts."""
        header = ("device", "energy_j", "mean_w", "peak_w", "idle_j", "complete")
        return Table(header, [(found.name, *(getattr(found, name) for name in header[1:])) for found in self.devices])

    def to_dict(self) -> dict[str, Any]:
        """Totals, devices and the tree as plain lists and dictionaries; quantities in SI units."""
        totals = ("title", "duration_s", "energy_j", "complete", "source", "mean_w", "exit_code", "cpu_share")
        return {
            **{name: getattr(self, name) for name in totals},
            "gpu_shares": {name: asdict(share) for name, share in self.gpu_shares.items()},
            "devices": [
                {"host": found.host, **asdict(found.device), **{name: getattr(found, name) for name in _WRITTEN}}
                for found in self.devices
            ],
            "tree": self.tree().to_dict(),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        if self.energy_j is None:
            return f"{self.title}: nothing could be measured in {si(self.duration_s, 's')}"
        bound = "" if self.complete else "at least "
        if all(found.device.method == "modelled" for found in self.devices):
            bound = "estimated, not measured: "
        return f"{self.title}: {bound}{si(self.energy_j, 'J')} in {si(self.duration_s, 's')}, {si(self.mean_w, 'W')}"


def merged(title: str, meterings: Sequence[Metering]) -> Metering:
    """Merge the results of several machines: the sum of the energies, and the longest time.

    Raises InputError: there is no recording, or two recordings of the same machine overlap, so that joules would count
    twice.
    """
    recordings = [recording for metering in meterings for recording in metering.recordings]
    if not recordings:
        raise InputError("there is nothing to merge", given="no recording", allowed="at least one recording")
    spans = sorted(
        (each.host, each.start_s + each.wall_offset_s, each.end_s + each.wall_offset_s) for each in recordings
    )
    for (host, _, end_s), (other, start_s, _) in pairwise(spans):
        if host == other and start_s < end_s:
            raise InputError(
                "two recordings of the same machine overlap, so its joules would count twice",
                given=host,
                allowed="recordings of one machine at different times",
                hint="merge only one of the two",
            )
    found = Metering(title, tuple(recordings))
    apart = max(start_s for _, start_s, _ in spans) >= min(end_s for _, _, end_s in spans)
    if apart and len({host for host, _, _ in spans}) > 1:
        note = "some of these machines were not measured at the same time"
        first = replace(recordings[0], events=(*recordings[0].events, note))
        return replace(found, recordings=(first, *recordings[1:]))
    return found


def _sensor_note(found: DeviceEnergy, samples: Samples) -> str | None:
    """What is known of the sensor of an NVIDIA GPU, with its corrected joules; None where nothing is."""
    device, name = found.device, str(found.device.facts.get("device") or "")
    if device.component != "board" or device.method != "measured" or not name.startswith(("NVIDIA", "Tesla")):
        return None
    if (error := _KNOWN.get(name)) is not None:
        parts = [f"a board of this model reports {error['gain']:g} x its power {error['offset_w']:+g} W"]
    else:
        low, high = REST
        parts = [f"not compared with a meter; other models read {-100 * low:.0f} % low to {100 * high:.0f} % high"]
    window = None
    with suppress(InputError):
        gpu = find_gpu(name)
        window = _WINDOWS_MS.get(gpu.chip) or _WINDOWS_MS.get(gpu.architecture)
    # A counter sees what readings miss.
    if window and np.isnan(samples.energy_j).all() and window[0] != window[1]:
        update_ms, average_ms = window
        seen = f"see {average_ms} of every {update_ms} ms" if average_ms < update_ms else f"average {average_ms} ms"
        parts.append(f"its readings {seen}")
    note = f"{device.name}: {'; '.join(parts)} (Yang et al. 2024)"
    if found.corrected_j is None:
        return note
    return f"{note}: {si(found.corrected_j, 'J')} +- {100 * BOARD_SPREAD:g} % by a meter"


def _device_energies(recording: Recording) -> Iterator[DeviceEnergy]:
    duration_s = recording.end_s - recording.start_s
    for device in recording.devices:
        curve, peak_w = EnergyCurve.of(recording.samples[device.name]), None
        joules, known = curve.between(recording.start_s, recording.end_s)
        length_s = min(1.0, float(np.ptp(curve.time_s))) if len(curve.time_s) else 0.0
        if length_s:
            starts = curve.time_s[curve.time_s <= curve.time_s[-1] - length_s]
            peak_w = float(curve.between(starts, starts + length_s)[0].max() / length_s)
        share = program_share(recording.shares, device.name)
        yield DeviceEnergy(recording.host, device, float(joules), bool(known), duration_s, peak_w, share)
