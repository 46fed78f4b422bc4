"""Repeats of a measurement: mean and standard deviation, comparison of two programs, and rows for a CSV file."""

from __future__ import annotations

import math
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from itertools import combinations
from typing import Any

import numpy as np

from ..errors import InputError, SensorError, needing
from ..rendering.answers import table_csv
from .counting_programs import PERF, check, joules_of_perf
from .result import Metering

_EXACT = 20_000  # Most divisions that are all tried; 8 runs against 8 have 12,870.
COLUMNS = (
    "started", "host", "program", "run", "device", "component", "counted", "source", "energy_j", "complete", "mean_w",
    "peak_w", "idle_j", "duration_s", "exit_code", "sensor", "name", "driver",
)  # fmt: skip
"""Columns of the CSV form: one row for each device of each run. What is not known is empty."""


def runs_csv(runs: Sequence[Metering]) -> str:
    """The devices of measurements with what is known of them, as CSV."""

    def rows() -> Iterator[list[object]]:
        for number, metering in enumerate(runs, 1):
            started = {recording.host: recording.started for recording in metering.recordings}
            for found in metering.devices:
                facts = found.device.facts
                yield [
                    started[found.host], found.host, metering.title, number, found.device.name, found.device.component,
                    found.device.counted, found.device.method, found.energy_j, found.complete, found.mean_w,
                    found.peak_w, found.idle_j, found.duration_s, metering.exit_code, facts.get("sensor"),
                    facts.get("device"), facts.get("driver"),
                ]  # fmt: skip

    return table_csv(COLUMNS, rows())


def quantities(runs: Sequence[Metering]) -> dict[str, list[float]]:
    """Seconds, and joules of all devices and of each one, in all runs in which they are known, by name and unit."""
    found: dict[str, list[float]] = {"time (s)": [run.duration_s for run in runs]}
    for run in runs:
        if run.energy_j is not None:
            found.setdefault("energy (J)", []).append(run.energy_j)
        for device in run.devices:
            found.setdefault(f"{device.device.name} (J)", []).append(device.energy_j)
    return {name: values for name, values in found.items() if len(values) == len(runs)}


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard deviation of a sample; None for the deviation of a single value."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def least_p_value(first: int, second: int) -> float:
    """The smallest p-value that samples of these sizes can have: 0.1 for 3 against 3 values, 0.008 for 5 against 5."""
    return (2 if first == second else 1) / math.comb(first + second, first)


def p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Probability of a difference of means at least as large, if both samples had the same distribution.

    It is that of a permutation test, which assumes no distribution: the share of all divisions of the pooled values
    into two samples of these sizes whose means differ as much. Of more than 20,000 divisions as many are drawn at
    random. Raises InputError: a sample has fewer than two values.
    """
    if min(len(first), len(second)) < 2:
        raise InputError(
            "a single run cannot be tested for significance",
            given=f"{len(first)} and {len(second)} runs",
            allowed="2 or more of each, better 5",
            hint="measure with --repeat 5",
        )
    pooled, n = np.array([*first, *second], dtype=float), len(first)
    total, sizes = pooled.sum(), (n, len(pooled) - n)
    if math.comb(len(pooled), n) <= _EXACT:
        sums = np.array([pooled[list(places)].sum() for places in combinations(range(len(pooled)), n)])
    else:
        draw = np.random.default_rng(0)
        sums = np.array([draw.permutation(pooled)[:n].sum() for _ in range(_EXACT)])
    differences = np.abs(sums / sizes[0] - (total - sums) / sizes[1])
    seen = abs(float(np.mean(first)) - float(np.mean(second)))
    return float(np.mean(differences >= seen * (1 - 1e-9)))


# The same measurement by other programs: Zeus, CodeCarbon, or perf, whose joules are compared with ours.

_WINDOW = "joulecast"
_KWH = 3.6e6
_GROUPS = {"package": "cpu", "server": "cpu", "dram": "ram", "board": "gpu"}
"""Component of our devices -> what CodeCarbon and perf call all of them together."""

Joules = dict[str, float]
"""Our name of a device, or cpu, ram or gpu for all of them -> joules; empty until the context is left."""


@contextmanager
def _zeus(found: Joules) -> Iterator[None]:
    monitor = _made("Zeus", "zeus.monitor", "ZeusMonitor", "zeus")
    # By default Zeus synchronizes with torch's GPUs, which the measured program may not use.
    monitor.begin_window(_WINDOW, sync_execution=False)
    yield
    seen = monitor.end_window(_WINDOW, sync_execution=False)
    for name, each in (("gpu", seen.gpu_energy), ("cpu", seen.cpu_energy), ("ram", seen.dram_energy)):
        found.update({f"{name}{index}": float(joules) for index, joules in (each or {}).items()})


@contextmanager
def _codecarbon(found: Joules) -> Iterator[None]:
    # Offline: it asks no server where it is. The country changes the grams of CO2, not the joules.
    settings = {"country_iso_code": "DEU", "measure_power_secs": 1, "save_to_file": False, "log_level": "error"}
    tracker = _made("CodeCarbon", "codecarbon", "OfflineEmissionsTracker", "codecarbon", **settings)
    tracker.start()
    yield
    tracker.stop()
    seen = tracker.final_emissions_data
    found.update({name: _KWH * float(getattr(seen, f"{name}_energy")) for name in ("cpu", "ram", "gpu")})


@contextmanager
def _perf(found: Joules) -> Iterator[None]:
    check("perf")
    process = subprocess.Popen(PERF, stderr=subprocess.PIPE, text=True)  # noqa: S603
    yield
    process.send_signal(signal.SIGINT)  # Then it prints what it counted.
    found["cpu"] = sum(joules_of_perf(process.communicate()[1].splitlines()))


SECOND_OPINIONS: Mapping[str, Callable[[Joules], AbstractContextManager[None]]] = {
    "zeus": _zeus,
    "codecarbon": _codecarbon,
    "perf": _perf,
}
"""Name -> context manager that measures until it is left, and fills the dictionary then.

Entering it raises MissingDependencyError where the program is not installed, and SensorError where it can read nothing.
"""


def differences(metering: Metering, other_j: Mapping[str, float], name: str) -> list[str]:
    """One line for each device that both have read: the joules of both, and their relative difference.

    Args:
        other_j: Device, or cpu, ram or gpu for all of them -> joules of the other program.
    """
    ours: Joules = {}
    for found in metering.devices:
        for key in {found.device.name, _GROUPS.get(found.device.component)} - {None} if found.energy_j else ():
            # Cores and graphics are parts of a package; only what is counted is added up.
            if key == found.device.name or found.device.counted:
                ours[str(key)] = ours.get(str(key), 0.0) + float(found.energy_j or 0.0)
    lines = [
        f"{key}: {ours[key]:.2f} J here, {joules:.2f} J by {name}, {100 * (joules / ours[key] - 1):+.1f} %"
        for key, joules in other_j.items()
        if ours.get(key) and joules
    ]
    return lines or [f"{name} and joulecast read no device in common"]


def _made(name: str, module: str, made: str, package: str, **settings: Any) -> Any:
    with needing(f"the comparison with {name} needs the package {package}", f"pip install {package}"):
        found = getattr(import_module(module), made)
    try:
        return found(**settings)
    except Exception as error:
        raise SensorError(
            f"{name} cannot read any device of this machine", given=str(error), hint="measure without the comparison"
        ) from error
