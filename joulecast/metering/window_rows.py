"""Makes the rows of an energy tree from a recording: the energy of each window, and of the time outside windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from ..arrays import FloatArray
from ..energy import Figure, Row, Share
from ..energy.share import Source
from .energy_curve import EnergyCurve
from .recording import DeviceInfo, Recording

IDLE, ABOVE_IDLE = "idle", "above idle"


def window_rows(recording: Recording, several: bool) -> tuple[list[Row], Share]:
    """Time and energy of windows by device, without those of the windows inside them.

    Args:
        recording: The recording of one machine.
        several: Whether the tree has several machines, so that names of devices need the name of the machine.

    Returns:
        A row for each path of windows, and the share of the time outside all windows.
    """
    paths = [path for path, _, _ in recording.windows]
    starts = np.array([start for _, start, _ in recording.windows], dtype=float)
    ends = np.array([end for _, _, end in recording.windows], dtype=float)
    calls = Counter(paths)
    names = list(calls)
    place = {path: i for i, path in enumerate(names)}
    places = np.array([place[path] for path in paths], dtype=int)
    around = np.array([place.get(path.rpartition(".")[0], -1) for path in names], dtype=int)
    tops = around < 0

    def own(values: FloatArray) -> FloatArray:
        """Each window's value without those of the windows inside it."""
        inside = np.bincount(around[~tops], values[~tops], len(names))
        return np.maximum(values - inside, 0.0)

    duration_s = recording.end_s - recording.start_s
    by_window_s = np.bincount(places, ends - starts, len(names)).astype(float)
    shares: list[dict[str, Any]] = [{"time": {}, "energy": {}} for _ in names]
    rest = Share()
    for device in recording.devices:
        if not device.counted:
            continue
        name = f"{recording.host}/{device.name}" if several else device.name
        curve = EnergyCurve.of(recording.samples[device.name])
        whole_j, whole_known = curve.between(recording.start_s, recording.end_s)
        joules, known = curve.between(starts, ends)
        window_j = np.bincount(places, joules, len(names)).astype(float)
        unknown = np.bincount(places, ~known, len(names)) if names else np.zeros(0)
        own_j, own_s = own(window_j), own(by_window_s)
        for i in range(len(names)):
            share = _share(name, device, float(own_j[i]), float(own_s[i]), int(unknown[i]))
            shares[i]["time"] |= share.time
            shares[i]["energy"] |= share.energy
        outside_j = max(0.0, float(whole_j) - float(own_j.sum()))
        outside_s = max(0.0, duration_s - float(by_window_s[tops].sum()))
        missing = 0 if whole_known or unknown.any() else 1
        rest = Share.total([rest, _share(name, device, outside_j, outside_s, missing)])
    if not any(device.counted for device in recording.devices):
        # The time of windows is known all the same, and their energy is unknown rather than zero.
        own_s = own(by_window_s)
        shares = [_unmeasured(seconds) for seconds in own_s.tolist()]
        rest = Share(**_unmeasured(max(0.0, duration_s - float(by_window_s[tops].sum()))))
    rows = [Row(path, Share(**shares[i]), phase="other", calls=calls[path]) for i, path in enumerate(names)]
    return rows, rest


def _unmeasured(seconds: float) -> dict[str, Any]:
    """Time and energy of a part of the program on a machine without any counter."""
    return {
        "time": {"program": Figure(seconds, "measured")},
        "energy": {("program", "total"): Figure(0.0, "missing", 1)},
    }


def _share(name: str, device: DeviceInfo, joules: float, seconds: float, unknown: int) -> Share:
    source = cast(Source, device.method)
    times = {name: Figure(seconds, source)}
    if unknown and not joules:
        return Share(times, {(name, device.component): Figure(0.0, "missing", unknown)})
    if device.idle_w is None:
        return Share(times, {(name, device.component): Figure(joules, source, unknown)})
    idle_j = min(joules, device.idle_w * seconds)
    # The idle power comes from the catalogue, so the idle part is modelled.
    parts: Mapping[tuple[str, str], Figure] = {
        (name, IDLE): Figure(idle_j, "modelled"),
        (name, ABOVE_IDLE): Figure(joules - idle_j, source, unknown),
    }
    return Share(times, parts)
