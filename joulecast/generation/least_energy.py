"""The least energy of what a step reads from memory and computes, learned from whole runs of served models.

The power of kernels on H200, B200 and GB200 was learned from runs of less than a second. NVML averages over about a
second there, so that many readings are too low: on B200 most of the long ones lie under 80 % of what others read. Runs
of served models last for minutes, and their energy was counted, not sampled. A step costs at least what its bytes and
FLOPs cost there:

    E_dynamic >= J_PER_BYTE x bytes from memory + J_PER_FLOP x FLOPs on tensor cores

Bytes are those of weights and of cached keys and values, whichever kernel asks for them. The two constants follow from
runs of four dense models on H100 and B200 (ML.ENERGY, vLLM 0.11.1). Least squares gave 134 and 148 pJ for a byte, 0.94
and 0.63 pJ for a FLOP; from Llama 3.1 8B and Qwen3 14B alone 130 and 139 pJ for a byte. Models of experts, other
engines and other sources were not used for them, and got better, too (benchmarks/serving/ENERGY.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from ..arrays import FloatArray
from ..hardware import GPU
from ..operations.attributes import ELEMENT_BYTES
from ..operations.operation import Operation
from ..operations.rules import size
from ..predictors.operation_predictions import OperationPredictions
from ..zoo.catalogue import find_kernels
from .four_bit_experts import MXFP4_BYTES

J_PER_BYTE, J_PER_FLOP = 138e-12, 0.6e-12
"""Joules of a byte from HBM3 or HBM3e, on its whole way to the multiprocessors, and of a FLOP in 16 bits."""

_READERS = ("linear", "experts", "attention")
_LEAST_J = 1e-15


def least_energy_factors(predictions: OperationPredictions, gpu: GPU, four_bit_experts: bool = False) -> FloatArray:
    """Factors that raise the dynamic energy of operations to the least, shape (operations,).

    Args:
        predictions: Predictions of the operations of a step at the default clock.
        gpu: The GPU.
        four_bit_experts: Whether the weights of experts have four bits.

    Returns:
        Values of at least one. They are one for all operations on a GPU whose power was not learned from short runs.
    """
    if not _power_was_learned(gpu):
        return np.ones(len(predictions.operations))
    least = least_j(predictions.operations, MXFP4_BYTES if four_bit_experts else None)
    found: FloatArray = np.fmax(1.0, least / np.maximum(predictions.dynamic_energy_j, _LEAST_J))
    return found


def least_j(operations: Sequence[Operation], expert_bytes: float | None = None) -> FloatArray:
    """The least dynamic joules of operations; 0 where nothing is said, shape (operations,).

    Args:
        operations: Operations of a step.
        expert_bytes: Bytes of an expert's weight; None for those of the operation's precision.
    """

    def joules(each: Operation) -> float:
        if each.kind not in _READERS:
            return 0.0
        width = ELEMENT_BYTES[each.precision]
        lighter = expert_bytes / width if expert_bytes and each.kind == "experts" else 1.0
        return J_PER_BYTE * lighter * _read_bytes(each) + J_PER_FLOP * width / 2 * each.flops

    return np.array([joules(each) for each in operations])


@cache
def _power_was_learned(gpu: GPU) -> bool:
    kernels = find_kernels()
    if kernels is None or not kernels.power.covers(gpu):
        return False
    return any(part.startswith("attention") for part in kernels.power.measured)


def _read_bytes(operation: Operation) -> float:
    """Bytes of weights, or of keys and values that attention reads."""
    if operation.kind != "attention":
        return operation.bytes_read - operation.input_size * ELEMENT_BYTES[operation.precision]
    _, keys, values = operation.input_shapes
    precision = operation.attributes["cache_precision"] or operation.precision
    return (size(keys) + size(values)) * ELEMENT_BYTES[precision]
