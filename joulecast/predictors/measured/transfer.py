"""Estimates training loops of kinds that were hardly measured in training, from their inference loops.

A training campaign with only tiny convolutions says nothing about large ones, and a predictor that has seen a single
unusual large convolution is wrong about the others. Where inference was measured in full, training loops are estimated
from it: the inference time times the ratio of the rooflines, times the ratio of slowdowns (training over inference) of
kinds that were measured in both modes. Depthwise convolutions have ratios of their own, because PyTorch computes their
gradients in kernels that are far slower than the forward: the gradient of a weight reads both tensors once per element
of the window, and with a stride most elements of the window meet no output.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median

import numpy as np

from ...hardware import GPU
from ...operations.operation import Operation
from ..physics.baseline import group_of
from ..physics.norms import smooth_max
from ..physics.roofline import tiled_roofline
from .loops import MeasuredLoop, fit_baseline

ENOUGH = 3
"""Groups with at least this many loops bound by the device need no transfer."""

_SLOWER = (
    1.4  # Slowdown over the roofline in training relative to that in inference; the median over the A30's kinds is 1.5.
)

_SLOWER_DEPTHWISE = {1: 1.7, 2: 3.9}
"""Stride -> the same ratio of depthwise convolutions: medians over 38 and 10 of the A30's (quartiles 1.7 to 2.2 and 3.4
to 4.0), where those of other convolutions have 1.2. Larger strides take that of 2."""


def transferred_loops(
    training: Sequence[MeasuredLoop],
    inference: Sequence[MeasuredLoop],
    gpu: GPU,
    accumulates_gradients: Collection[str],
    without: Collection[Operation] = (),
) -> list[MeasuredLoop]:
    """Estimate the large training loops of kinds that lack them but have large inference loops.

    Args:
        training: Loops measured in training. Kinds that were not measured in training at all are left out.
        inference: Loops measured in inference.
        gpu: The GPU that they were measured on.
        accumulates_gradients: Methods whose loop accumulates gradients.
        without: Training operations that are held out, for which no loop is estimated.
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
    clock = float(gpu.boost_clock_mhz)
    made = []
    for loop in inference:
        operation, group = loop.operation.replace(mode="training"), group_of(loop.operation, gpu)
        if group not in short or operation in taken:
            continue
        line_s = tiled_roofline([operation, loop.operation], gpu, clock).time_s
        work = line_s[0] / line_s[1]
        device_s = loop.time_s * work * _slowdown(operation, slower)
        host_s = after.groups[group].host_s[after.method]
        if device_s > host_s:
            time_s = float(smooth_max(device_s, host_s))
            made.append(MeasuredLoop(operation, after.method, time_s, loop.power_w))
    return made


def _slowdown(operation: Operation, usual: float) -> float:
    """Slowdown over the roofline in training relative to that in inference.

    Args:
        operation: The operation.
        usual: That of kinds that were measured in both modes.
    """
    if not operation.is_depthwise:
        return usual
    return _SLOWER_DEPTHWISE[min(int(np.max(operation.attributes["stride"])), 2)]
