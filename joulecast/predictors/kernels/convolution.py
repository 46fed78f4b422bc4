"""Convolutions of AMD's MIOpen library: the forward pass and the gradients of input and weights, as matrix products.

Each direction is a matrix product for each group. In the forward pass and the gradient of the input, rows are
positions, columns are channels, and the reduction is over channels and the window. In the gradient of the weights, rows
and columns are channels and the reduction is over positions. MIOpen chooses the quickest of its solvers. One of them is
Winograd's algorithm, which this model leaves to the fitted constants and to trees.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.attributes import ELEMENT_BYTES
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from .family import Family
from .product_features import FEATURE_NAMES, product_features
from .products import CONSTANTS, Machine, Products, product_s

_PRECISIONS = ("fp32", "fp16", "bf16")
_DIRECTIONS = ("forward", "input_gradient", "weight_gradient")
_SIZE_NAMES = ("images", "channels_in", "height", "width", "channels_out", "height_out", "width_out")
_MOVE_NAMES = ("kernel_height", "kernel_width", "stride_height", "dilation_height", "padding_height")
_ALIGNED = (4, 8, 16, 32)


def _covers(gpu: GPU) -> bool:
    """Whether a GPU is AMD's. MIOpen is AMD's library, and its times say nothing about NVIDIA's cuDNN."""
    return gpu.compute_capability.startswith("gfx")


def _variant(operation: Operation) -> str | None:
    is_one = operation.kind == "conv2d" and operation.mode == "inference" and operation.precision in _PRECISIONS
    return operation.precision if is_one and not isinstance(operation.attributes["padding"], str) else None


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _numbers(operations: OperationList) -> FloatArray:
    """Sizes, window and its movement, groups, and index of the direction of each operation, shape (operations, 14)."""
    rows = []
    for operation in operations:
        attributes = operation.attributes
        window, stride = _pair(attributes["kernel_size"]), _pair(attributes["stride"])
        padding, dilation = _pair(attributes["padding"]), _pair(attributes["dilation"])
        moves = (*window, stride[0], dilation[0], padding[0])
        direction = _DIRECTIONS.index(attributes["direction"])
        rows.append((*operation.input_shapes[0], *operation.output_shape[1:], *moves, attributes["groups"], direction))
    return np.array(rows, dtype=float)


def _products(operations: OperationList) -> Products:
    """The matrix product of each operation.

    In a gradient of the input with a stride above one, each position meets only a part of the window.
    """
    numbers = operations.derived(_numbers)
    images, inputs, height, width, outputs, height_out, width_out, r, s, stride, _, _, groups, direction = numbers.T
    positions, positions_out = images * height * width, images * height_out * width_out
    inputs, outputs = inputs / groups, outputs / groups
    window = r * s
    which = direction.astype(int)
    rows = np.choose(which, [positions_out, positions, outputs])
    columns = np.choose(which, [outputs, inputs, inputs * window])
    reduction = np.choose(which, [inputs * window, outputs * np.maximum(window / stride**2, 1.0), positions_out])
    element = ELEMENT_BYTES[operations[0].precision]
    moved = element * groups * (positions * inputs + positions_out * outputs + inputs * outputs * window)
    return Products(rows, columns, reduction, element, element, batch=groups, moved_bytes=moved)


def _physics_s(operations: OperationList, gpu: GPU, constants: FloatArray) -> FloatArray:
    return product_s(_products(operations), Machine.of(gpu, operations[0].precision), constants)


def _features(operations: OperationList, gpu: GPU, physics_s: FloatArray) -> NDArray[np.float32]:
    numbers, products = operations.derived(_numbers), _products(operations)
    found = product_features(products, Machine.of(gpu, operations[0].precision), physics_s)
    sizes, moves = np.log2(numbers[:, :7]), numbers[:, 7:12]
    groups, direction = numbers[:, 12:13], numbers[:, 13:]
    per_group = numbers[:, [1, 4]] / groups
    aligned = [per_group % channels == 0 for channels in _ALIGNED]
    directions = direction == np.arange(len(_DIRECTIONS))
    columns = [found, sizes, moves, np.log2(groups), np.log2(per_group), *aligned, directions]
    return np.hstack(columns).astype(np.float32)


def _layer(operation: Operation) -> tuple[Any, ...]:
    """Sizes and attributes that identify a layer in any batch size, direction and precision."""
    attributes = operation.attributes
    names = ("out_channels", "kernel_size", "stride", "padding", "dilation", "groups")
    return (*operation.input_shapes[0][1:], *(attributes[name] for name in names))


CONVOLUTION = Family(
    name="convolution",
    constants=CONSTANTS,
    feature_names=(
        *FEATURE_NAMES,
        *(f"log_{name}" for name in _SIZE_NAMES),
        *_MOVE_NAMES,
        "log_groups",
        "log_channels_in_per_group",
        "log_channels_out_per_group",
        *(f"channels_{side}_in_{count}s" for count in _ALIGNED for side in ("in", "out")),
        *_DIRECTIONS,
    ),
    variant_precisions={precision: precision for precision in _PRECISIONS},
    variant=_variant,
    physics_s=_physics_s,
    features=_features,
    unseen=_layer,
    covers=_covers,
)
"""Convolutions of MIOpen. The times are best cases: MIOpen's database holds the quickest that tuning found."""
