"""Measurements as rows that predictors learn from: measured loops of a GPU's own predictor, device times for any GPU.

A training campaign with only tiny convolutions says nothing about large ones, and a predictor that has seen a single
unusual large convolution is wrong about the others. Training loops of kinds that were hardly measured in training are
therefore estimated from their inference loops, where inference was measured in full: the inference time times the ratio
of what is counted, times the ratio of slowdowns (training over inference) of kinds that were measured in both modes.

What is held out together stands here, too: an operation with all its variants, a network with its whole family.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple, Self

import numpy as np

from ..arrays import grouped
from ..datasets import Dataset, Measurement
from ..hardware import GPU, find_gpu
from ..operations.operation import MODES, Operation
from .physics.baseline import Baseline, Loops, group_of
from .physics.fp32_kernels import counted_s
from .physics.norms import smooth_max


@dataclass(frozen=True)
class MeasuredLoop:
    """The repeats of one operation by one method as one; power is None where no reading is usable."""

    operation: Operation
    method: str
    time_s: float
    power_w: float | None

    @classmethod
    def of(cls, operation: Operation, repeats: Sequence[Measurement], time_s: Callable[[list[float]], float]) -> Self:
        """The median power of repeats, and what `time_s` makes of their times."""
        powers_w = [m.power_w for m in repeats if m.power_usable and m.power_w is not None]
        seconds = time_s([m.time_s for m in repeats])
        return cls(operation, repeats[0].method, seconds, median(powers_w) if powers_w else None)


def measured_loops(dataset: Dataset, mode: str, without: Collection[Operation] = ()) -> list[MeasuredLoop]:
    """The usable loops of a mode, as medians over repeats. Timings without the host are not loops.

    There is one loop per operation, by the most used method. For an operation that this method did not measure, there
    is one per other method. Otherwise other methods are ignored, because their host costs differ.
    Operations in `without` are left out with all their repeats.
    """
    not_loops, left_out = dataset.card.without_host, frozenset(without)
    usable = (m for m in dataset.usable(mode) if m.method not in not_loops and m.operation not in left_out)
    groups = grouped(((m.operation, m.method), m) for m in usable)
    loops = [MeasuredLoop.of(operation, group, median) for (operation, _), group in groups.items()]
    main = Counter(loop.method for loop in loops).most_common(1)[0][0] if loops else ""
    by_main = {loop.operation for loop in loops if loop.method == main}
    return [loop for loop in loops if loop.method == main or loop.operation not in by_main]


def as_arrays(loops: Sequence[MeasuredLoop]) -> Loops:
    """Times and powers as arrays; NaN where there is no power."""
    powers_w = [np.nan if loop.power_w is None else loop.power_w for loop in loops]
    return Loops(np.array([loop.time_s for loop in loops]), np.array(powers_w))


def fit_baseline(loops: Sequence[MeasuredLoop], gpu: GPU, accumulates_gradients: Collection[str]) -> Baseline:
    """Determine the constants of each kind from loops at a GPU's default clock, at least one of them with power.

    Gradients are accumulated by the loops of some methods.
    """
    operations = [loop.operation for loop in loops]
    return Baseline.fit(
        operations,
        as_arrays(loops),
        [loop.method for loop in loops],
        counted_s(operations, gpu),
        gpu,
        frozenset(accumulates_gradients),
    )


ENOUGH = 3
"""Groups with at least this many loops bound by the device need no transfer."""

# Slowdown over what is counted in training relative to that in inference; the median over the A30's kinds.
_SLOWER = 1.2


def transferred_loops(
    training: Sequence[MeasuredLoop],
    inference: Sequence[MeasuredLoop],
    gpu: GPU,
    accumulates_gradients: Collection[str],
    without: Collection[Operation] = (),
) -> list[MeasuredLoop]:
    """Estimate the large training loops of kinds that lack them but have large inference loops.

    Kinds that were not measured in training at all are left out. For operations `without`, which are held out, no loop
    is estimated.
    """
    if not any(loop.power_w is not None for loop in inference):
        return []
    after, before = (fit_baseline(loops, gpu, accumulates_gradients) for loops in (training, inference))
    known = [group for group in after.groups if group in before.groups]
    enough_after = {group: after.groups[group].large_loops >= ENOUGH for group in known}
    enough_before = [group for group in known if before.groups[group].large_loops >= ENOUGH]
    enough_in_both = [group for group in enough_before if enough_after[group]]
    ratios = [after.groups[group].slowdown / before.groups[group].slowdown for group in enough_in_both]
    slower = median(ratios) if ratios else _SLOWER
    short = set(enough_before) - set(enough_in_both)
    taken = {loop.operation for loop in training} | set(without)
    made = []
    for loop in inference:
        operation, group = loop.operation.replace(mode="training"), group_of(loop.operation, gpu)
        if group not in short or operation in taken:
            continue
        counted = counted_s([operation, loop.operation], gpu)
        work = counted[0] / counted[1]
        # What PyTorch's kernels of depthwise convolutions do is counted in both modes.
        device_s = loop.time_s * work * (1.0 if operation.is_depthwise else slower)
        host_s = after.groups[group].host_s[after.method]
        if device_s > host_s:
            time_s = float(smooth_max(device_s, host_s))
            made.append(MeasuredLoop(operation, after.method, time_s, loop.power_w))
    return made


LEAST_ROWS = 100
"""Least number of device times to fit a predictor."""

AT_CAP = 0.97
"""Share of the power cap above which a power reading is a lower bound only, because the cap lowers the clock."""

_CLEARLY_DEVICE = 3.0  # A loop of this many times its host time is bound by the device: its time is the device time.
# Seconds that a launch takes on the A30's machine; used where no loop of the kind was measured.
_USUAL_HOST_S = {"inference": 12e-6, "training": 170e-6}


class DeviceRow(NamedTuple):
    """An operation that was measured on a GPU: seconds of GPU work, and watts of the board where known.

    If it is `hidden`, only the whole call was seen, because its launch took longer than the kernel. The seconds are
    then what is counted of the kernel, or those of the call where these are fewer. Without such rows, small operations
    would be known by those alone whose kernels are slow enough to be seen.
    """

    gpu: GPU
    operation: Operation
    device_s: float
    power_w: float | None
    hidden: bool = False


def device_rows(dataset: Dataset) -> list[DeviceRow]:
    """Device times of a dataset: those measured without the host, and those of loops clearly bound by the device."""
    gpu = find_gpu(dataset.card.gpu)
    known = [(m, m.device_time_s) for m in dataset.measurements if m.usable and m.device_time_s is not None]
    measured = grouped((m.operation, seconds) for m, seconds in known)
    powers = grouped(
        (m.operation, m.power_w)
        for m, seconds in known
        if m.power_usable and m.power_w is not None and m.time_s < 1.5 * seconds
    )
    rows = [
        DeviceRow(gpu, operation, median(times), median(powers[operation]) if operation in powers else None)
        for operation, times in measured.items()
    ]
    for mode in MODES:
        rows += _from_loops(dataset, gpu, mode, measured.keys())
    return [row for row in rows if not row.operation.is_identity]


def with_hidden(dataset: Dataset) -> list[DeviceRow]:
    """Device times of a dataset, and rows of the operations whose kernels are hidden behind their launch."""
    shown, gpu = device_rows(dataset), find_gpu(dataset.card.gpu)
    known, modes = {row.operation for row in shown}, {row.operation.mode for row in shown}
    calls: dict[Operation, float] = {}
    for m in dataset.measurements:
        if m.usable and m.operation.mode in modes and m.operation not in known and not m.operation.is_identity:
            calls[m.operation] = min(m.time_s, calls.get(m.operation, m.time_s))
    seconds = np.minimum(counted_s([*calls], gpu), [*calls.values()]) if calls else ()
    hidden = [DeviceRow(gpu, call, float(s), None, hidden=True) for call, s in zip(calls, seconds, strict=True)]
    return shown + hidden


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
            if all(each.power_w is None for each in dataset.measurements):
                continue
            loops: list[MeasuredLoop] = measured_loops(dataset, mode)
            if any(loop.power_w is not None for loop in loops):
                baseline = fit_baseline(loops, find_gpu(dataset.card.gpu), dataset.card.accumulates_gradients)
                for group, constants in baseline.groups.items():
                    by_kind[group.split()[0]].append(constants.host_s[baseline.method])
        kinds = {kind: median(values) for kind, values in sorted(by_kind.items())}
        result[mode] = {"": median(kinds.values()) if kinds else _USUAL_HOST_S[mode], **kinds}
    return result


_FAMILIES: Mapping[str, str] = {
    "resnext": "resnet",
    "wide_resnet": "resnet",
    "googlenet": "inception",
}
"""Beginning of a network's name -> its family, where the family's name is not that beginning."""


def network_family(name: str) -> str:
    """The family of a network: "resnet" for resnet18, resnext50_32x4d and wide_resnet50_2, "swin" for swin_v2_t.

    Networks of a family share their blocks, so that one reveals much about the others. The family is the first word of
    the name, without a library's prefix ("timm/") and without numbers.
    """
    bare = name.rsplit("/", 1)[-1].lower()
    for beginning, family in _FAMILIES.items():
        if bare.startswith(beginning):
            return family
    letters = re.match(r"[a-z]+", bare)
    return letters.group() if letters else bare


def alike(operation: Operation) -> Operation:
    """A key that is the same for an operation in both modes and in all precisions."""
    return operation.replace(mode="inference", precision="fp32")


def variants(operations: Collection[Operation]) -> frozenset[Operation]:
    """The operations in both modes and all precisions. None of these may be in the training data if one is held out."""
    return frozenset(
        operation.replace(mode=mode, precision=precision)
        for operation in {alike(operation) for operation in operations}
        for mode in (MODES if operation.attributes.get("direction", "forward") == "forward" else ("inference",))
        for precision in operation.row.precisions
    )


def fold_of(operations: Collection[Operation], folds: int, seed: int) -> dict[Operation, int]:
    """Assign a random fold to each unique operation, and the same fold to all its variants."""
    unique = sorted({alike(operation) for operation in operations}, key=lambda operation: operation.digest)
    order = np.random.default_rng(seed).permutation(len(unique))
    place = {unique[i]: rank % folds for rank, i in enumerate(order.tolist())}
    return {operation: place[alike(operation)] for operation in operations}


def only_in(mine: Sequence[Collection[Operation]], others: Sequence[Collection[Operation]]) -> frozenset[Operation]:
    """All variants of the operations that only these networks have; they are left out together with the networks."""
    shared = {alike(operation) for network in others for operation in network}
    only = {alike(operation) for network in mine for operation in network} - shared
    return variants(only)
