"""The energy of attention that reads a cache: at least what the same bytes cost when they are weights.

The power of attention on H200, B200 and GB200 was learned from runs of less than a second. NVML averages over about a
second there, so that many readings are too low: at the same bandwidth, half of them lie 20 % or more under the highest
tenth. Linear layers with few rows read their weights at the full bandwidth of the memory as well, were measured in
longer runs, and fit the power of served models. A byte costs the memory the same whichever kernel asks for it. So the
least energy of a byte is taken from a product of 16 rows, the smallest tile of tensor cores, to which attention pads
its queries, too.

With it the power of published H100 runs with 16 to 64 long sequences in TensorRT-LLM is 4 % too low in the mean, and
was 8 % too low without it (benchmarks/serving).
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ..arrays import FloatArray
from ..hardware import GPU
from ..operations.operation import Operation
from ..operations.operation_list import OperationList
from ..operations.precisions import ELEMENT_BYTES
from ..operations.rules import size
from ..predictors.contract import PredictsOperations
from ..predictors.operation_predictions import OperationPredictions
from ..zoo.catalogue import find_kernels

_ROWS, _OUTPUTS, _INPUTS = 16, 28672, 8192
# The product whose energy per byte of weights is the least of all that reads memory.
_WEIGHTS = OperationList(
    [Operation("linear", [(_ROWS, _INPUTS)], {"out_features": _OUTPUTS, "bias": False}, precision="bf16")]
)
_WEIGHTS_BYTES = _OUTPUTS * _INPUTS * ELEMENT_BYTES["bf16"]
_LEAST_J = 1e-15


def cache_energy_factors(
    predictions: OperationPredictions, predictor: PredictsOperations, power_limit_w: float
) -> FloatArray:
    """Factors that raise the dynamic energy of attention to that of the bytes that it reads, shape (operations,).

    Args:
        predictions: Predictions of the operations of a step at the default clock.
        predictor: The predictor that made them.
        power_limit_w: Power cap of the board for which it made them.

    Returns:
        Values of at least one. They are one for everything but attention, and for all operations on a GPU for which the
        power of attention was not learned from readings.
    """
    if not _power_was_learned(predictor.gpu):
        return np.ones(len(predictions.operations))
    byte_j = float(predictor.predict_for_network(_WEIGHTS, power_limit_w).dynamic_energy_j[0]) / _WEIGHTS_BYTES
    least_j = byte_j * np.array([_cache_bytes(each) for each in predictions.operations])
    found: FloatArray = np.fmax(1.0, least_j / np.maximum(predictions.dynamic_energy_j, _LEAST_J))
    return found


@cache
def _power_was_learned(gpu: GPU) -> bool:
    kernels = find_kernels()
    variants = {} if kernels is None else kernels.variants
    return any(
        family == "attention" and variant.power is not None and variant.power.covers(gpu)
        for (family, _), variant in variants.items()
    )


def _cache_bytes(operation: Operation) -> float:
    """Bytes of keys and values that attention reads; 0 for other operations."""
    if operation.kind != "attention":
        return 0.0
    _, keys, values = operation.input_shapes
    precision = operation.attributes["cache_precision"] or operation.precision
    return (size(keys) + size(values)) * ELEMENT_BYTES[precision]
