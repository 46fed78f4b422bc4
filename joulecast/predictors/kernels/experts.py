"""Fused layers of experts: two products for each expert that gets a token, in one call of an engine."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.attributes import ELEMENT_BYTES, HALF_BYTES
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from .family import Family, of_nvidia
from .product_features import FEATURE_NAMES, product_features
from .products import CONSTANTS, Machine, Products, product_s
from .widths import WEIGHT_VARIANTS, weight_variant

_SIZES = ("intermediate", "top_k", "experts", "tensor_parallel", "expert_parallel")
_DISTRIBUTIONS = ("power_law_1.01", "power_law_1.2")
# With generations left out, the mean error in half precision was 31.7 % for 0.5, 31.0 % for 0.7 and 30.8 % for 1, and
# 19.7, 19.6 and 20.2 % in fp8 in blocks.
_SHRINKAGE = 0.7
# FLOPs per cycle and multiprocessor in half precision of the newest instructions that Triton's kernels use: those of
# Hopper, also on Blackwell.
_TRITON_RATE = 4096.0
_GATE_AND_UP = 2  # The gate and the up projection are computed by one product of twice the columns.


def _variant(operation: Operation) -> str | None:
    return weight_variant(operation) if operation.kind == "experts" and operation.mode == "inference" else None


def _numbers(operations: OperationList) -> FloatArray:
    """Tokens, hidden size and the attributes of _SIZES, shape (2 + sizes, operations)."""
    rows = [
        (
            operation.input_size // operation.input_shapes[0][-1],
            operation.input_shapes[0][-1],
            *(operation.attributes[name] for name in _SIZES),
        )
        for operation in operations
    ]
    return np.array(rows, dtype=float).T


def _by_triton(operation: Operation) -> bool:
    """Whether a measurement says anything about other generations.

    FlashInfer calls CUTLASS on Hopper, which is 2 to 3 times as slow as Triton there, and kernels of TensorRT-LLM on
    Blackwell, which are twice as quick as Triton.
    """
    return str(operation.attributes["implementation"]) != "flashinfer"


def _busy(operations: OperationList) -> FloatArray:
    """Experts on this GPU that get a token, and tokens that each of them gets, shape (2, operations).

    This assumes that tokens choose all experts with the same probability. Trees have the true distribution as a
    feature.
    """
    tokens, _, _, top_k, experts, _, groups = operations.derived(_numbers)
    busy = np.maximum(experts / groups * (1 - (1 - top_k / experts) ** tokens), 1.0)
    return np.array([busy, np.maximum(tokens * top_k / groups / busy, 1.0)])


def _products(operations: OperationList) -> tuple[Products, Products]:
    """The product of gate and up projection together, and that of the down projection.

    Kernels before, between and after them pass over one row for each token and expert that it chose. FlashInfer's pass
    over the rows of this GPU's experts alone. Triton's pass over all rows, and its products write zeros to those of
    experts on other GPUs. Measured: with a 64th of the experts and 8192 tokens or more, the time is that of these bytes
    at 0.7 of the bandwidth on an L40S, 0.7 to 0.8 on an H100 and 1.0 on an A100.
    """
    tokens, hidden, intermediate, top_k, _, parts, groups = operations.derived(_numbers)
    busy, rows = operations.derived(_busy)
    inner = intermediate / parts
    element = ELEMENT_BYTES[operations[0].precision]
    own = tokens * top_k / groups
    passed = np.where(operations.derived(_by_flashinfer), own, tokens * top_k)
    zeros = (passed - own) * HALF_BYTES
    quantized = tokens * hidden * (HALF_BYTES + element) if element < HALF_BYTES else 0.0
    gated = passed * inner * (_GATE_AND_UP * HALF_BYTES + element)
    summed = passed * hidden * HALF_BYTES
    first = quantized + zeros * _GATE_AND_UP * inner
    return (
        Products(rows, _GATE_AND_UP * inner, hidden, element, batch=busy, passed_bytes=first),
        Products(rows, hidden, inner, element, batch=busy, passed_bytes=gated + zeros * hidden + summed),
    )


def _by_flashinfer(operations: OperationList) -> NDArray[np.bool_]:
    return np.array([not _by_triton(operation) for operation in operations])


def _physics_s(operations: OperationList, gpu: GPU, constants: FloatArray) -> FloatArray:
    machine = Machine.of(gpu, operations[0].precision)
    newest = _TRITON_RATE * HALF_BYTES / ELEMENT_BYTES[operations[0].precision]
    by_triton = np.minimum(machine.flops_per_cycle, newest)
    rate = np.where(operations.derived(_by_flashinfer), machine.flops_per_cycle, by_triton)
    first, second = _products(operations)
    as_called = replace(machine, flops_per_cycle=rate)
    return product_s(first, as_called, constants) + product_s(second, as_called, constants)


def _features(operations: OperationList, gpu: GPU, physics_s: FloatArray) -> NDArray[np.float32]:
    first, second = _products(operations)
    machine = Machine.of(gpu, operations[0].precision)
    found = product_features(first, machine, physics_s)
    weights = (first.bytes + second.bytes) / machine.bandwidth * machine.clock_hz
    logs = np.log2([*operations.derived(_numbers), *operations.derived(_busy), weights]).T
    spread = [[operation.attributes["distribution"] == name for name in _DISTRIBUTIONS] for operation in operations]
    flashinfer = operations.derived(_by_flashinfer)[:, None]
    return np.hstack([found, logs, spread, flashinfer]).astype(np.float32)


def _layer(operation: Operation) -> Hashable:
    """Sizes that identify a layer on one of its GPUs, for any number of tokens."""
    return operation.input_shapes[0][-1], *(operation.attributes[name] for name in _SIZES)


EXPERTS = Family(
    name="experts",
    constants=CONSTANTS,
    feature_names=(
        *FEATURE_NAMES,
        "log_tokens",
        "log_hidden",
        *(f"log_{name}" for name in _SIZES),
        "log_busy_experts",
        "log_tokens_each",
        "log_weights_cycles",
        *(f"distribution_{name}" for name in _DISTRIBUTIONS),
        "by_flashinfer",
    ),
    variant_precisions=WEIGHT_VARIANTS,
    variant=_variant,
    physics_s=_physics_s,
    features=_features,
    unseen=_layer,
    transfers=_by_triton,
    covers=of_nvidia,
    shrinkage=_SHRINKAGE,
)
"""Layers of experts, measured with the kernels of SGLang (Triton), which can be called from PyTorch, and FlashInfer."""
