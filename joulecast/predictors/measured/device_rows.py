"""Device times of operations, from which predictors for any GPU learn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from ...datasets import Dataset
from ...hardware import GPU, find_gpu
from ...operations.operation import MODES, Operation
from ..physics.baseline import group_of
from .loops import MeasuredLoop, as_arrays, fit_baseline, measured_loops

LEAST_ROWS = 100
"""Least number of device times to fit a predictor."""

AT_CAP = 0.97
"""Share of the power cap above which a power reading is a lower bound only, because the cap lowers the clock."""

_CLEARLY_DEVICE = (
    3.0  # A loop that takes this many times its host time is bound by the device, so its time is the device time.
)
# Seconds that a launch takes on the A30's machine; used where no loop of the kind was measured.
_USUAL_HOST_S = {"inference": 12e-6, "training": 170e-6}


class DeviceRow(NamedTuple):
    """An operation that was measured on a GPU: seconds of GPU work, and watts of the board where known."""

    gpu: GPU
    operation: Operation
    device_s: float
    power_w: float | None


def device_rows(dataset: Dataset) -> list[DeviceRow]:
    """Device times of a dataset: those measured without the host, and those of loops clearly bound by the device."""
    gpu = find_gpu(dataset.card.gpu)
    measured: dict[Operation, list[float]] = defaultdict(list)
    powers: dict[Operation, list[float]] = defaultdict(list)
    for m in dataset.measurements:
        if m.usable and m.device_time_s is not None:
            measured[m.operation].append(m.device_time_s)
            if m.power_usable and m.power_w is not None and m.time_s < 1.5 * m.device_time_s:
                powers[m.operation].append(m.power_w)
    rows = [
        DeviceRow(gpu, operation, median(times), median(powers[operation]) if powers[operation] else None)
        for operation, times in measured.items()
    ]
    for mode in MODES:
        rows += _from_loops(dataset, gpu, mode, measured.keys())
    return [row for row in rows if not row.operation.is_identity]


def power_rows(datasets: Sequence[Dataset]) -> list[DeviceRow]:
    """Operations whose power and device time were measured in one run."""
    return [
        DeviceRow(find_gpu(dataset.card.gpu), m.operation, m.device_time_s, m.power_w)
        for dataset in datasets
        for m in dataset.measurements
        if m.usable and m.power_usable and m.power_w is not None and m.device_time_s is not None
    ]


def _from_loops(dataset: Dataset, gpu: GPU, mode: str, known: Collection[Operation]) -> Iterator[DeviceRow]:
    loops = [loop for loop in measured_loops(dataset, mode) if loop.operation not in known]
    if not any(loop.power_w is not None for loop in loops):
        return
    baseline = fit_baseline(loops, gpu, dataset.card.accumulates_gradients)
    groups = [group_of(loop.operation, gpu) for loop in loops]
    host_s = baseline.host_s(groups, [loop.method for loop in loops])
    costs = baseline.device_costs([loop.operation for loop in loops], groups, as_arrays(loops), gpu)
    for loop, device_s, least_s in zip(loops, costs.time_s.tolist(), host_s.tolist(), strict=True):
        if loop.time_s > _CLEARLY_DEVICE * least_s:
            yield DeviceRow(gpu, loop.operation, device_s, loop.power_w)


def launch_times_s(datasets: Sequence[Dataset]) -> dict[str, dict[str, float]]:
    """Mode -> kind -> seconds that launching takes in a loop, as medians over datasets; "" stands for other kinds."""
    result = {}
    for mode in MODES:
        by_kind: dict[str, list[float]] = defaultdict(list)
        for dataset in datasets:
            loops: list[MeasuredLoop] = measured_loops(dataset, mode)
            if any(loop.power_w is not None for loop in loops):
                baseline = fit_baseline(loops, find_gpu(dataset.card.gpu), dataset.card.accumulates_gradients)
                for group, constants in baseline.groups.items():
                    by_kind[group.split()[0]].append(constants.host_s[baseline.method])
        kinds = {kind: median(values) for kind, values in sorted(by_kind.items())}
        result[mode] = {"": median(kinds.values()) if kinds else _USUAL_HOST_S[mode], **kinds}
    return result


def rows_by_gpu(rows: Sequence[DeviceRow]) -> dict[tuple[GPU, str], list[DeviceRow]]:
    """Rows by GPU and mode."""
    groups: dict[tuple[GPU, str], list[DeviceRow]] = defaultdict(list)
    for row in rows:
        groups[row.gpu, row.operation.mode].append(row)
    return groups
