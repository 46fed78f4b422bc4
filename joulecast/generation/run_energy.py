"""The energy of kernels, learned from whole runs: of served language models, and of images and videos.

The power of kernels on Hopper and Blackwell was learned from runs of less than a second. NVML averages over about a
second there, so that many readings are too low. Whole runs last for minutes, and their energy was counted, not sampled
(ML.ENERGY's on H100 and B200). It follows from few causes, beside the static power of the board.

Kernels of engines (vLLM 0.11.1):

    E_dynamic = active time x watts + bytes from memory x J_PER_BYTE + FLOPs on tensor cores x joules

Multiprocessors draw power as long as a kernel runs on them, and more in one that draws random numbers. Bytes are those
of weights, of cached keys and values, and of logits that are sorted, whichever kernel asks for them. Least squares over
173 runs of seven models whose time is right gave 0.6 W, 4.3 W, 117 pJ, and 0.84 pJ on Hopper and 0.52 pJ on Blackwell.
Joules are 7 % off with them, and 9 % for a model that was left out. (With prompts of 300 +- 600 tokens, which fit the
tails of latencies, and each run's own number of requests, all of them move by at most 0.23 of their values and models
that are left out come out as before, so that they stay.) Weights of four bits that are unpacked cost joules, too.

Denoisers in eager PyTorch, which read activations of many tokens rather than weights:

    E_dynamic = active time x watts + FLOPs of products x joules

Three pipelines on both GPUs gave 1.4 W and 1.23 pJ, with which the joules of three others are 8 % off where their time
is right; what one GPU gives alone fits the other within 7 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from ..arrays import FloatArray
from ..hardware import GPU
from ..operations.attributes import ELEMENT_BYTES
from ..operations.operation import Operation
from ..operations.rules import size
from ..predictors.operation_predictions import OperationPredictions
from ..predictors.physics.norms import overlapped
from ..zoo.catalogue import find_kernels
from .engines import SORT_BYTES

FOUR_BIT_BYTES: Mapping[str, float] = {"mxfp4": 0.5 + 1 / 32, "int4": 0.5 + 2.5 / 128}
"""Precision -> bytes of a weight: four bits, and a byte of scale for 32 weights (OCP Microscaling Formats 1.0,
2023), or a scale in 16 bits and a zero in four for 128 of them (the groups of AWQ's and GPTQ's checkpoints)."""


def four_bit_factors(predictions: OperationPredictions, narrow: Mapping[Operation, float]) -> FloatArray:
    """Factors on time and dynamic energy from bf16 to four-bit weights, shape (operations,).

    Such are experts in MXFP4 (as GPT-OSS is published), AWQ and GPTQ, with products in 16 bits. No kernels of theirs
    are among the measurements. They are predicted from the same operations in bf16: weights are read from memory with
    about 0.53 instead of 2 bytes each, and unpacked in the multiprocessors, so that computing is as in bf16, as in
    vLLM's Marlin (Frantar et al., arXiv 2408.11743), and so are transfers from caches. Nothing was fitted; runs of
    GPT-OSS 20B on an H100 are 10 % off in time. It was not compared with any run in AWQ or GPTQ.

    `narrow`: Operation with four-bit weights -> bytes of one of them.
    """
    found = np.ones(len(predictions.operations))
    for place, operation in enumerate(predictions.operations):
        if operation not in narrow or predictions.work is None:
            continue
        parts, weights = predictions.work.parts, 1.0
        if operation.kind != "experts":
            weights = operation.parameters / (
                operation.parameters + operation.input_size + size(operation.output_shape)
            )
        compute_s, memory_s, cache_s = parts.compute_s[place], parts.memory_s[place], parts.cache_s[place]
        from_memory = 1 - weights * (1 - narrow[operation] / ELEMENT_BYTES["bf16"])
        lighter = overlapped(compute_s, from_memory * memory_s, cache_s)
        found[place] = lighter / overlapped(compute_s, memory_s, cache_s)
    return found


ACTIVE_W, DRAWING_W = 0.7, 4.0
"""Watts of a multiprocessor on which a kernel runs, and in addition in one that draws random numbers."""

J_PER_BYTE = 110e-12
"""Joules of a byte from HBM3 or HBM3e, on its whole way to the multiprocessors."""

J_PER_UNPACKED = 40e-12
"""Joules of unpacking a weight of four bits where tensor cores do not take it: GPT-OSS 20B on H100, 15 runs, is 17 %
too low in joules without and 11 % off with it. No other model with such weights was compared."""

_HOPPER_J_PER_FLOP, _LATER_J_PER_FLOP = 0.83e-12, 0.58e-12
TRITON_J_PER_FLOP = 1.9e-12
"""Additional joules of a FLOP of experts in 16 bits on Blackwell, whose tensor cores Triton's kernels feed from
registers. It was set with full steps of Qwen3-Coder 480B on B200, which draw 830 W of a board where 470 W would follow
without. With it, joules of Qwen3 235B-A22B on B200, with which it was not set, are 7 instead of 11 % off. It is not
seen on Hopper."""
_DENOISING_W, _DENOISING_J_PER_FLOP = 1.4, 1.23e-12

SIGMA = 0.1
"""Standard deviation of the logarithms of power and of joules of a served model that was left out."""

_READERS = ("linear", "experts", "attention", "matmul")
_PRODUCTS = ("linear", "attention", "matmul", "conv1d", "conv2d", "conv3d")
_LEAST_J = 1e-15


def with_joules(predictions: OperationPredictions, gpu: GPU, joules: FloatArray) -> OperationPredictions:
    """Predictions with other dynamic joules, shape (operations,), if the GPU's power was learned from short runs."""
    if not power_was_learned(gpu):
        return predictions
    return predictions.times(1.0, joules / np.maximum(predictions.dynamic_energy_j, _LEAST_J))


def served_j(
    operations: Sequence[Operation],
    seconds: FloatArray,
    gpu: GPU,
    narrow: Mapping[Operation, float],
    *,
    triton: bool = False,
) -> FloatArray:
    """Dynamic joules of operations of a step from their device times, both of shape (operations,).

    `narrow`: Operation with weights of four bits -> bytes of one of them; others have those of its precision.
    `triton`: Whether kernels of Triton compute experts in 16 bits.
    """
    later = not gpu.compute_capability.startswith("9.")
    per_flop = _LATER_J_PER_FLOP if later else _HOPPER_J_PER_FLOP

    def joules(each: Operation, time_s: float) -> float:
        active = (ACTIVE_W + DRAWING_W * (each.kind == "random")) * gpu.sms * time_s
        if each.kind == "sort":
            return active + J_PER_BYTE * SORT_BYTES * each.input_size
        if each.kind == "add":  # A recurrent state, which is read and written.
            return active + J_PER_BYTE * 2 * ELEMENT_BYTES[each.precision] * each.input_size
        if each.kind not in _READERS:
            return active
        width, read = ELEMENT_BYTES[each.precision], _read_bytes(each)
        stored = narrow.get(each, width)
        taken = stored == width or (stored == FOUR_BIT_BYTES["mxfp4"] and "nvfp4" in gpu.peak_flops)
        unpacked = 0.0 if taken else J_PER_UNPACKED * read / width
        by_triton = triton and each.kind == "experts" and each not in narrow and width == ELEMENT_BYTES["bf16"]
        fed = TRITON_J_PER_FLOP if later and by_triton else 0.0
        return active + unpacked + J_PER_BYTE * stored / width * read + (per_flop * width / 2 + fed) * each.flops

    return np.array([joules(each, float(time_s)) for each, time_s in zip(operations, seconds, strict=True)])


def denoising_j(operations: Sequence[Operation], seconds: FloatArray, gpu: GPU) -> FloatArray:
    """Dynamic joules of operations in eager PyTorch, shape (operations,); see `served_j`."""
    flops = [each.flops * ELEMENT_BYTES[each.precision] / 2 if each.kind in _PRODUCTS else 0.0 for each in operations]
    return _DENOISING_W * gpu.sms * seconds + _DENOISING_J_PER_FLOP * np.array(flops)


@cache
def power_was_learned(gpu: GPU) -> bool:
    """Whether the power of kernels on this GPU was learned from runs that are too short."""
    power = None if (kernels := find_kernels()) is None else kernels.power
    return bool(power and power.covers(gpu) and any(part.startswith("attention") for part in power.measured))


def _read_bytes(operation: Operation) -> float:
    """Bytes of weights, or of keys and values that attention reads."""
    if operation.kind != "attention":
        return operation.bytes_read - operation.input_size * ELEMENT_BYTES[operation.precision]
    _, keys, values = operation.input_shapes
    precision = operation.attributes["cache_precision"] or operation.precision
    return (size(keys) + size(values)) * ELEMENT_BYTES[precision]
