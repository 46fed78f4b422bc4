"""The kernels that operations consist of, by the part of the one model that learned them.

A product of two tensors is a linear layer; those of a batch have no weights that a loop holds. Products in training or
in TF32 were not measured themselves, but as products that were. Training takes three products of the same number of
FLOPs: the forward, and the gradients of both factors. The gradient of a bias, a sum over rows, is left out. Tensor
cores multiply half as many TF32 as half-precision elements in a clock cycle, and read twice as many bytes for each, so
a product in TF32 takes the time of one in half precision with twice the reduction. The backward pass of an attention
was not measured. It is predicted relative to its forward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...hardware import GPU
from ...operations.attributes import HALF_PRECISIONS
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...operations.rules import Product
from ..physics.operation_numbers import by_kind
from .basis import is_like_measured
from .work import width_of

LINEAR, ATTENTION, DECODING, EXPERTS, CONVOLUTION, POINTWISE = FAMILIES = (
    "linear",
    "attention",
    "decoding",
    "experts",
    "convolution",
    "point-wise",
)
"""Families of operations whose kernels were measured in half precision and below, or on AMD GPUs."""

FLASH_GENERATION = "8.0"
"""Compute capability whose attention kernels PyTorch runs on all GPUs: FlashAttention 2."""

_BY_PYTORCH = ("pytorch", "triton")
_PRODUCTS = ("linear", "matmul", "grouped_linear")

_DIRECTIONS = ("forward", "input_gradient", "weight_gradient")
_PRECISIONS = ("tf32", "fp16", "bf16", "fp8", "nvfp4")  # Of the products and attention that were measured.

_ROWS = 8
"""Rows of linear layers are predicted in multiples of these. Kernels were measured with multiples of 16 rows and with
one row more than those. With 264 to 1024 rows in between (vidur2024, H100), products are 8 to 10 % off if predicted at
multiples of 8, and 15 to 19 % too quick at any other number. Kernels compute whole tiles, so that both take the same.
"""


class Parts(NamedTuple):
    """The kernels of a list of operations that belong to a part of the model; arrays of shape (kernels,).

    Args:
        places: Index of the operation that each kernel belongs to.
        kernels: The kernels, as operations in inference that may have been measured.
        names: Names of their parts, such as "linear, fp8 in blocks".
        flash: Whether PyTorch computes an attention, by the kernels of FLASH_GENERATION.
        backward: Whether the backward pass of an attention is meant as well.
    """

    places: NDArray[np.int64]
    kernels: OperationList
    names: NDArray[np.str_]
    flash: NDArray[np.bool_]
    backward: NDArray[np.bool_]

    def some(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> Parts:
        """The kernels of a mask, or at these indices."""
        kernels = OperationList(self.kernels[place] for place in np.arange(len(self.kernels))[which].tolist())
        return Parts(self.places[which], kernels, self.names[which], self.flash[which], self.backward[which])

    def alone(self) -> Parts:
        """Each kernel as an operation of its own."""
        no = np.zeros(len(self.kernels), dtype=bool)
        return self._replace(places=np.arange(len(self.kernels)), flash=no, backward=no)

    def runs_on(self, gpu: GPU) -> NDArray[np.bool_]:
        """Whether a GPU runs each kernel in the same way as measured GPUs do, shape (kernels,)."""
        return by_kind(self.kernels, lambda each: runs_alike(each.kind == "conv2d", each.precision, gpu)).astype(bool)


def runs_alike(convolution: bool, precision: str, gpu: GPU) -> bool:
    """Whether a GPU runs kernels in the same way as measured GPUs do: convolutions were measured in MIOpen alone."""
    return is_like_measured(gpu, precision) and not (convolution and gpu.is_nvidia)


def part_of(kernel: Operation) -> str | None:
    """Name of the part that learns a kernel; None for operations of no part."""
    family = _family_of(kernel) if kernel.mode == "inference" else None
    return None if family is None else f"{family}, {width_of(kernel)}"


def _family_of(kernel: Operation) -> str | None:
    wide = width_of(kernel) == "fp32"
    if kernel.kind == "conv2d":
        covered = kernel.precision in ("fp32", *HALF_PRECISIONS) and not isinstance(kernel.attributes["padding"], str)
        return CONVOLUTION if covered else None
    if wide:
        return None
    if kernel.kind == "attention":
        return DECODING if decodes(kernel) else ATTENTION
    if kernel.row.family == "elementwise":
        return POINTWISE if kernel.precision in HALF_PRECISIONS and not kernel.is_identity else None
    return EXPERTS if kernel.kind == "experts" else LINEAR if kernel.kind in _PRODUCTS else None


def decodes(operation: Operation) -> bool:
    """Whether an attention has one query per sequence, which reads a cache of keys and values."""
    queries, keys, _ = operation.input_shapes
    return queries[-2] == 1 and keys[-2] > 1


def parts_of(operations: OperationList) -> Parts:
    """The kernels of operations that belong to a part; the other operations have none."""
    return operations.derived(_parts)


def _parts(operations: OperationList) -> Parts:
    rows: list[tuple[int, Operation, str]] = []
    for place, operation in enumerate(operations):
        named = ((kernel, part_of(kernel)) for kernel in kernels_of(operation))
        rows += [(place, kernel, name) for kernel, name in named if name is not None]
    whole = [operations[place] for place, _, _ in rows]
    flash = [
        name == f"{ATTENTION}, half" and kernel.attributes["implementation"] in _BY_PYTORCH for _, kernel, name in rows
    ]
    backward = [
        name.startswith(ATTENTION) and each.has_backward for (_, _, name), each in zip(rows, whole, strict=True)
    ]
    return Parts(
        np.array([place for place, _, _ in rows], np.int64),
        OperationList(kernel for _, kernel, _ in rows),
        np.array([name for _, _, name in rows], str),
        np.array(flash, bool),
        np.array(backward, bool),
    )


def rows_of_tiles(rows: int) -> int:
    """Rows with which a linear layer is predicted that has these rows."""
    return rows if rows < _ROWS else math.ceil(rows / _ROWS) * _ROWS


def kernels_of(operation: Operation) -> tuple[Operation, ...]:
    """The kernels that an operation consists of, as operations that may have been measured.

    Returns:
        The products of a product in training or in TF32, the forward and both gradients of a convolution in training,
        the forward pass of an attention; otherwise one kernel. A product of two tensors that is none of a batch is the
        linear layer of its sizes, as PyTorch calls gemm for both. A linear layer has the rows of its tiles, and adds
        its bias on the way.
    """
    if operation.kind == "conv2d" and operation.mode == "training":
        forward = operation.replace(mode="inference")
        return tuple(forward.with_attributes(direction=each) for each in _DIRECTIONS)
    if operation.kind not in (*_PRODUCTS, "attention") or operation.precision not in _PRECISIONS:
        return (operation,)
    if operation.kind == "attention":
        return (operation.replace(mode="inference"),)
    batch, rows, columns, reduction = operation.product or Product(1, 1, 1, 1)
    rows = rows_of_tiles(rows) if batch == 1 else rows
    if operation.mode == "inference" and operation.precision != "tf32":
        if operation.kind == "grouped_linear" or batch > 1:
            return (operation,)
        asked = operation.attributes if operation.kind == "linear" else {}
        return (_product(1, rows, reduction, columns, operation.precision, asked),)
    precision, wider = ("fp16", 2) if operation.precision == "tf32" else (operation.precision, 1)
    sizes = [(rows, reduction, columns)]
    if operation.mode == "training":
        sizes += [(rows, columns, reduction), (columns, rows, reduction)]
    return tuple(_product(batch, m, wider * k, n, precision) for m, k, n in sizes)


def _product(
    batch: int, m: int, k: int, n: int, precision: str, asked: Mapping[str, Any] = MappingProxyType({})
) -> Operation:
    """A batch of products of two tensors; or a linear layer, with the attributes that were asked for."""
    if batch > 1:
        return Operation("matmul", [(batch, m, k), (batch, k, n)], precision=precision)
    return Operation("linear", [(m, k)], {**asked, "out_features": n, "bias": False}, precision=precision)
