"""Fused layers of experts: two products for each expert that gets a token, in one call of an engine."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...operations.precisions import ELEMENT_BYTES
from .family import Family, of_nvidia
from .products import CONSTANTS, FEATURE_NAMES, Machine, Products, product_features, product_s
from .widths import WEIGHT_VARIANTS, weight_variant

_SIZES = ("intermediate", "top_k", "experts", "tensor_parallel", "expert_parallel")
_DISTRIBUTIONS = ("power_law_1.01", "power_law_1.2")
# With generations left out, the mean error in half precision was 48 % for 0.4, 51 % for 0.7 and 59 % for 1, and 28, 24
# and 26 % in fp8 in blocks: what FlashInfer calls on Blackwell has little in common with what it calls on Hopper.
_SHRINKAGE = 0.5
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


def _busy(operations: OperationList) -> FloatArray:
    """Experts on this GPU that get a token, and tokens that each of them gets, shape (2, operations).

    This assumes that tokens choose all experts with the same probability. Trees have the true distribution as a
    feature.
    """
    tokens, _, _, top_k, experts, _, groups = operations.derived(_numbers)
    busy = np.maximum(experts / groups * (1 - (1 - top_k / experts) ** tokens), 1.0)
    return np.array([busy, np.maximum(tokens * top_k / groups / busy, 1.0)])


def _products(operations: OperationList) -> tuple[Products, Products]:
    """The product of gate and up projection together, and that of the down projection."""
    _, hidden, intermediate, _, _, parts, _ = operations.derived(_numbers)
    busy, rows = operations.derived(_busy)
    inner = intermediate / parts
    element = ELEMENT_BYTES[operations[0].precision]
    return (
        Products(rows, _GATE_AND_UP * inner, hidden, element, batch=busy),
        Products(rows, hidden, inner, element, batch=busy),
    )


def _physics_s(operations: OperationList, gpu: GPU, constants: FloatArray) -> FloatArray:
    machine = Machine.of(gpu, operations[0].precision)
    first, second = _products(operations)
    return product_s(first, machine, constants) + product_s(second, machine, constants)


def _features(operations: OperationList, gpu: GPU, physics_s: FloatArray) -> NDArray[np.float32]:
    first, second = _products(operations)
    machine = Machine.of(gpu, operations[0].precision)
    found = product_features(first, machine, physics_s)
    weights = (first.bytes + second.bytes) / machine.bandwidth * machine.clock_hz
    logs = np.log2([*operations.derived(_numbers), *operations.derived(_busy), weights]).T
    spread = [[operation.attributes["distribution"] == name for name in _DISTRIBUTIONS] for operation in operations]
    flashinfer = [[operation.attributes["implementation"] == "flashinfer"] for operation in operations]
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
    covers=of_nvidia,
    shrinkage=_SHRINKAGE,
)
"""Layers of experts, measured with the kernels of SGLang (Triton), which can be called from PyTorch, and FlashInfer."""
