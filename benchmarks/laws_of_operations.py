"""Laws of single operations: bounds by the data sheet, and what must hold between an operation and its variants."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
from law import OperationLaw, differing
from laws_drawn import COSTS, Batch, costs

from joulecast.arrays import FloatArray
from joulecast.hardware import GPU, gpus
from joulecast.operations.kind import passes
from joulecast.operations.kinds import KINDS
from joulecast.operations.operation import Operation
from joulecast.predictors.operation_predictions import OperationPredictions
from joulecast.predictors.physics.energy import static_power_w

KERNEL_S = 1e-6
"""Shortest time of a kernel: no measured kernel took less on any GPU."""

DEVICE, TIME, DYNAMIC, ENERGY = range(len(COSTS))

_LEAST = 1e-30  # Instead of a division by zero.
# An operation at a lower clock is compared at clocks that the search for the power cap finds to one megahertz.
_CLOCK_ROUNDING = 1e-3
_MOST_GROWTH = 4.0
# From so many queries on, the diagonal of a mask, whose tiles are computed whole, is a small part: tiles of 128 queries
# of 2048 waste a sixteenth. What is left beside the half is for launches and the ends of waves.
_LONG, _NEAR_HALF = 2048, 0.65
# Ada has up to 96 MB of L2 beside GDDR6: what fits moves up to 6.6 times as fast (decoding on an L40S,
# aiconfigurator2026). Of what does not fit, the cache still may hold as much as it can.
_ADA, _CACHED_FASTER = "8.9", 6.6
# Quantizing the rows takes a kernel of its own, which decides the time of small products and of those of few columns.
# Products that take less than 10 us in bf16 mostly take longer in fp8 (aiconfigurator2026). Of those over 200 us with
# at least 2048 columns and a reduction of 1024, 0.06 to 7 % do by GPU and library, and the median takes a third less.
_LARGE_S, _ALIGNED, _COLUMNS, _ROWS = 200e-6, 1024, 2048, 16384
# Loops hold several weights of a linear layer, and one product of two tensors. A product with a vector has nothing to
# do but to read its matrix; small ones wait for launches and steps.
_MOST_APART, _MOST_PASSES, _SMALL_S = 2.0, 3.0, 50e-6
_ALONE = 50  # One operation of so many is predicted alone, and compared with its prediction among others.
ANY_GPU = "any-gpu/forest"
"""The predictor that answers from a data sheet alone, on every GPU."""


def _over(value: FloatArray, least: FloatArray) -> FloatArray:
    """By what factor values are below what is required; NaN where either is not known or nothing is required."""
    factor: FloatArray = np.where(least > _LEAST, least / np.maximum(value, _LEAST), np.nan)
    return np.where(np.isnan(value), np.nan, factor)


def _worst(*excesses: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore"):
        worst: FloatArray = np.fmax.reduce(excesses)
    return worst


def _floor(batch: Batch) -> FloatArray:
    return _over(batch.costs[DEVICE], np.where(batch.works, KERNEL_S, 0.0))


def _compute_s(operation: Operation, gpu: GPU) -> float:
    """Seconds of FLOPs at the peak of the boost clock; transforms may save FLOPs of convolutions.

    Winograd's F(4 x 4, 3 x 3) needs 4 times fewer multiplications, and Fourier transforms of 32 x 32 pixels 15 times
    fewer for windows of 7 x 7, the largest that are drawn.
    """
    saving = {3: 4.0, 5: 9.1, 7: 15.3}.get(operation.attributes.get("kernel_size"), 1.0)
    saving = saving if operation.kind == "conv2d" and operation.attributes["stride"] == 1 else 1.0
    return operation.flops / saving / gpu.peak_flops[gpu.running_precision(operation.precision)]


def _peak(batch: Batch) -> FloatArray:
    least_s = np.array([_compute_s(one, batch.gpu) for one in batch.ones])
    at_lower_s = least_s * batch.gpu.boost_clock_mhz / batch.clock_mhz
    return _worst(_over(batch.costs[DEVICE], least_s), _over(batch.slower.device_time_s, at_lower_s))


def _bandwidth(batch: Batch) -> FloatArray:
    gpu = batch.gpu
    moved = np.array([float(one.bytes_read + one.bytes_written) for one in batch.ones])
    cached = np.minimum(moved, gpu.l2_bytes) if gpu.compute_capability == _ADA else 0.0
    least_s = (moved - cached + cached / _CACHED_FASTER) / gpu.memory_bandwidth
    return _worst(_over(batch.costs[DEVICE], least_s), _over(batch.slower.device_time_s, least_s))


def _power(batch: Batch) -> FloatArray:
    return _worst(_power_of(batch.faster, batch.gpu), _power_of(batch.slower, batch.gpu))


def _power_of(p: OperationPredictions, gpu: GPU) -> FloatArray:
    static_w, cap_w = static_power_w(gpu, p.held_clock_mhz), gpu.power_limit_w
    least_w = np.maximum(np.minimum(static_w, p.static_power_w), gpu.idle_power_w or 0.0)
    on_device_w = p.dynamic_energy_j / np.maximum(p.device_time_s, 1e-15) + least_w
    on_device_w = np.where(p.device_time_s > 0, on_device_w, 0.0)
    return _worst(least_w / p.power_w, p.power_w / cap_w, on_device_w / cap_w)


def _clock(batch: Batch) -> FloatArray:
    return _over(batch.slower.device_time_s, batch.costs[DEVICE])


def _not_less(rows: tuple[int, ...], batch: Batch) -> FloatArray:
    return _worst(*(_over(batch.costs_of_twice[row], batch.costs[row]) for row in rows))


def _not_over_four_times(rows: tuple[int, ...], batch: Batch) -> FloatArray:
    return _worst(*(_over(_MOST_GROWTH * batch.costs[row], batch.costs_of_twice[row]) for row in rows))


def _in_training(one: Operation) -> Operation | None:
    """The operation in training, if it has a backward at all."""
    row = KINDS[one.kind]
    if one.mode == "training" or row.measured_only or one.precision in row.quantized:
        return None
    return (
        one.replace(mode="training")
        if row.has_gradient and passes(row.training).reads != passes(row.forward).reads
        else None
    )


def _with_heavy_backward(one: Operation) -> Operation | None:
    """The operation in training, if its backward computes and moves at least as much as its forward."""
    trained = _in_training(one)
    if trained is None:
        return None
    moved = [each.bytes_read + each.bytes_written for each in (one, trained)]
    return trained if moved[1] >= 2 * moved[0] and trained.flops >= 2 * one.flops else None


def _training(batch: Batch) -> FloatArray:
    return _over(batch.changed(_in_training)[DEVICE], batch.costs[DEVICE])


def _backward(batch: Batch) -> FloatArray:
    return _over(batch.changed(_with_heavy_backward)[DEVICE], 2.0 * batch.costs[DEVICE])


def _masked(causal: bool, one: Operation) -> Operation | None:
    """Attention with or without a mask, if it has at least as many keys as queries."""
    if one.kind != "attention" or one.input_shapes[0][-2] > one.input_shapes[1][-2]:
        return None
    return one.with_attributes(causal=causal)


def _causal(batch: Batch) -> FloatArray:
    full, masked = (batch.changed(partial(_masked, causal)) for causal in (False, True))
    return _worst(*(_over(full[row], masked[row]) for row in (DEVICE, TIME, DYNAMIC, ENERGY)))


def _near_half(batch: Batch) -> FloatArray:
    full, masked = (batch.changed(partial(_long_square, causal)) for causal in (False, True))
    return _over(_NEAR_HALF * full[DEVICE], masked[DEVICE])


def _long_square(causal: bool, one: Operation) -> Operation | None:
    """Long attention of a sequence to itself, with or without a mask, if it has work for the whole GPU."""
    if one.kind != "attention" or one.input_shapes[0][-2] != one.input_shapes[1][-2]:
        return None
    batch, heads, queries, _ = one.input_shapes[0]
    return one.with_attributes(causal=causal) if queries >= _LONG and batch * heads >= 32 else None


def _large_product(precision: str, gpu: GPU, one: Operation) -> Operation | None:
    """A linear layer of sizes like these that is large enough for fp8, in a precision; None if it is no such layer."""
    if one.kind != "linear" or one.mode != "inference":
        return None
    *rows, reduction = one.input_shapes[0]
    m, k, n = (_ALIGNED * -(-size // _ALIGNED) for size in (math.prod(rows), reduction, one.attributes["out_features"]))
    m, k, n = max(m, _ROWS), max(k, _COLUMNS), max(n, _COLUMNS)
    is_large = 2.0 * m * k * n > _LARGE_S * gpu.peak_flops["bf16"]
    return Operation("linear", [(m, k)], {"out_features": n}, precision=precision) if is_large else None


def _narrow(batch: Batch) -> FloatArray:
    gpu = batch.gpu
    if gpu.peak_flops.get("fp8", 0.0) <= gpu.peak_flops.get("bf16", np.inf):
        return np.full(len(batch.pairs), np.nan)
    narrow, wide = (batch.changed(partial(_large_product, precision, gpu))[DEVICE] for precision in ("fp8", "bf16"))
    return _over(wide, narrow)


def _single(kind: str, one: Operation) -> Operation | None:
    """One of the products of a batch, as a product of two tensors or as a linear layer."""
    if one.kind != "matmul":
        return None
    (*_, m, k), (*_, n) = one.input_shapes
    if kind == "linear":
        return Operation("linear", [(m, k)], {"out_features": n, "bias": False}, precision=one.precision, mode=one.mode)
    return Operation("matmul", [(1, m, k), (1, k, n)], precision=one.precision, mode=one.mode)


def _single_product(batch: Batch) -> FloatArray:
    matmul, linear = (batch.changed(partial(_single, kind))[DEVICE] for kind in ("matmul", "linear"))
    return _worst(_over(_MOST_APART * matmul, linear), _over(_MOST_APART * linear, matmul))


def _by_vector(one: Operation) -> Operation | None:
    """The products of a batch with a single column."""
    if one.kind != "matmul":
        return None
    left, (*_, k, _n) = one.input_shapes
    return Operation("matmul", [left, (left[0], k, 1)], precision=one.precision, mode=one.mode)


def _vector(batch: Batch) -> FloatArray:
    variants = [_by_vector(one) for one in batch.ones]
    moved = np.array([0.0 if each is None else float(each.bytes_read + each.bytes_written) for each in variants])
    most_s = _SMALL_S + _MOST_PASSES * moved / batch.gpu.memory_bandwidth
    return _over(most_s, batch.changed(_by_vector)[DEVICE])


FIGURES = ("sms", "boost_clock_mhz", "memory_bandwidth", "l2_bytes", "power_limit_w", "max_clock_mhz")
"""Figures of a data sheet of which more is never slower."""


def siblings(gpu: GPU) -> list[GPU]:
    """GPUs of the same chip that are at least as good in every figure of the data sheet."""
    return [other for other in no_worse(gpu) if other.chip == gpu.chip]


def no_worse(gpu: GPU) -> list[GPU]:
    """GPUs that run the same kernels, and are at least as good in every figure of the data sheet."""
    return [
        other
        for other in gpus().values()
        if other.compute_capability == gpu.compute_capability
        and other != gpu
        and all(getattr(other, name) >= getattr(gpu, name) for name in FIGURES)
        and other.memory_type is not None
        and all(other.peak_flops.get(precision, 0.0) >= peak for precision, peak in gpu.peak_flops.items())
    ]


def _siblings(batch: Batch) -> FloatArray:
    worst = np.full(len(batch.pairs), np.nan)
    for other in siblings(batch.gpu):
        better = costs(batch.subject.operations(other, batch.mode).predict(batch.ones))
        worst = _worst(worst, _over(batch.costs[DEVICE], better[DEVICE]))
    return worst


def renamed(gpu: GPU) -> GPU:
    """The same data sheet under a name that says nothing."""
    return replace(gpu, name="Board 7", aliases=("board 7",))


def _name(batch: Batch) -> FloatArray:
    same, other = (
        costs(batch.subject.operations(gpu, batch.mode, batch.subject.predictor or ANY_GPU).predict(batch.ones))
        for gpu in (batch.gpu, renamed(batch.gpu))
    )
    return differing(same, other)


def _company(batch: Batch) -> FloatArray:
    predictor = batch.subject.operations(batch.gpu, batch.mode)
    excess = differing(batch.costs, costs(predictor.predict(batch.ones[::-1]))[:, ::-1])
    for place in range(0, len(batch.ones), _ALONE):
        alone = costs(predictor.predict(batch.ones[place : place + 1]))
        excess[place] = max(excess[place], differing(batch.costs[:, place : place + 1], alone)[0])
    return excess


OPERATION_LAWS: dict[str, OperationLaw] = {
    "floor": OperationLaw("A kernel takes at least 1 us on the device.", _floor),
    "peak": OperationLaw("No operation computes faster than the peak of its units at the clock.", _peak),
    "bandwidth": OperationLaw("No operation moves bytes faster than the bandwidth.", _bandwidth),
    "power": OperationLaw("A board draws at least what it draws without work, and at most its cap.", _power),
    "clock": OperationLaw("A higher clock is not slower.", _clock, tolerance=_CLOCK_ROUNDING),
    "growth of time": OperationLaw(
        "Twice the batch takes no less time.", partial(_not_less, (DEVICE, TIME)), exact=False
    ),
    "growth of energy": OperationLaw(
        "Twice the batch takes no less energy.", partial(_not_less, (DYNAMIC, ENERGY)), exact=False
    ),
    "leap of time": OperationLaw(
        "Twice the batch takes at most 4 times the time.", partial(_not_over_four_times, (DEVICE, TIME)), exact=False
    ),
    "leap of energy": OperationLaw(
        "Twice the batch takes at most 4 times the energy.",
        partial(_not_over_four_times, (DYNAMIC, ENERGY)),
        exact=False,
    ),
    "training": OperationLaw("Training takes at least the time of its forward.", _training, exact=False),
    "backward": OperationLaw(
        "A backward that computes and moves at least as much as its forward takes at least its time.",
        _backward,
        exact=False,
    ),
    "mask": OperationLaw("Attention under a causal mask costs at most what it costs without.", _causal, exact=False),
    "half of the mask": OperationLaw(
        f"Attention of at least {_LONG} tokens to themselves takes at most {_NEAR_HALF} of its time under a mask.",
        _near_half,
        exact=False,
    ),
    "narrow products": OperationLaw(
        f"A linear layer of at least {_LARGE_S * 1e6:g} us and {_COLUMNS} columns is not slower in fp8 than in bf16.",
        _narrow,
        exact=False,
    ),
    "single products": OperationLaw(
        f"A single product takes within a factor of {_MOST_APART:g} what a linear layer of its sizes does.",
        _single_product,
        exact=False,
    ),
    "vectors": OperationLaw(
        f"A product with a vector takes at most {_MOST_PASSES:g} times what its bytes do, and {_SMALL_S * 1e6:g} us.",
        _vector,
        exact=False,
    ),
    "siblings": OperationLaw(
        "A GPU of the same chip with no lower figure on its data sheet is not slower.", _siblings, exact=False
    ),
    "name": OperationLaw("The same data sheet under another name gives the same bits.", _name, tolerance=0.0),
    "company": OperationLaw(
        "The order and number of operations in a request changes no bit of any.", _company, tolerance=0.0
    ),
}
"""Name -> law of operations."""
