"""Linear layers on tensor cores: in half precision, in fp8 and in nvfp4."""

from __future__ import annotations

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
from .widths import WEIGHT_VARIANTS, WIDTHS, weight_variant

# With generations left out, mean errors were 11.1 % for 0.7 and 11.2 % for 1 in half precision, 13.8 and 13.9 % in fp8,
# and 32.4 and 33.5 % in fp8 in blocks.
_SHRINKAGE = 0.7


def _variant(operation: Operation) -> str | None:
    return weight_variant(operation) if operation.kind == "linear" and operation.mode == "inference" else None


def _is_trusted(operation: Operation) -> bool:
    """Whether a measurement is reliable.

    Measurements of vLLM in half precision are not. They leave the weights uninitialized, and if these are zero, a GPU
    draws less power and holds a higher clock.
    """
    return WIDTHS[operation.precision] != "half" or operation.attributes["implementation"] != "vllm"


def _sizes(operations: OperationList) -> FloatArray:
    """Rows, columns and reduction of each operation, shape (3, operations)."""
    found = [
        (operation.input_size // operation.input_shapes[0][-1], *_weights_of(operation)) for operation in operations
    ]
    return np.array(found, dtype=float).T


def _weights_of(operation: Operation) -> tuple[int, int]:
    return operation.attributes["out_features"], operation.input_shapes[0][-1]


def _products(operations: OperationList) -> Products:
    rows, columns, reduction = operations.derived(_sizes)
    width = ELEMENT_BYTES[operations[0].precision]
    quantizing = rows * reduction * (HALF_BYTES + width) if width < HALF_BYTES else 0.0
    return Products(rows, columns, reduction, width, passed_bytes=quantizing)


def _physics_s(operations: OperationList, gpu: GPU, constants: FloatArray) -> FloatArray:
    return product_s(_products(operations), Machine.of(gpu, operations[0].precision), constants)


def _features(operations: OperationList, gpu: GPU, physics_s: FloatArray) -> NDArray[np.float32]:
    machine = Machine.of(gpu, operations[0].precision)
    found = product_features(_products(operations), machine, physics_s)
    # In half precision all engines call cuBLAS; TensorRT-LLM calls it with settings of its own. Quantized layers were
    # measured with SGLang and TensorRT-LLM. All other engines, including PyTorch, are assumed to be as quick as SGLang.
    in_fp16 = [operation.precision == "fp16" for operation in operations]
    return np.column_stack([found, _library(operations, gpu), in_fp16]).astype(np.float32)


def _library(operations: OperationList, gpu: GPU) -> NDArray[np.int64]:
    """Index of the library for each operation, shape (operations,)."""
    return np.array([operation.attributes["implementation"] == "tensorrt_llm" for operation in operations], np.int64)


LINEAR = Family(
    name="linear",
    constants=CONSTANTS,
    feature_names=(*FEATURE_NAMES, "by_tensorrt_llm", "fp16"),
    variant_precisions=WEIGHT_VARIANTS,
    variant=_variant,
    physics_s=_physics_s,
    features=_features,
    unseen=_weights_of,
    learns_from=_is_trusted,
    covers=of_nvidia,
    shrinkage=_SHRINKAGE,
    libraries=("sglang", "tensorrt_llm"),
    library=_library,
)
"""Linear layers. They were measured in bf16 with the kernels that PyTorch calls, and in fp8 and nvfp4 with those of
engines for language models."""
