"""Operations as numbers that do not depend on the GPU: work, sizes, and the matrix product that each one is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...operations.attributes import ELEMENT_BYTES, PRECISIONS
from ...operations.kind import Counted, passes
from ...operations.kinds import KINDS
from ...operations.operation import Operation
from ...operations.operation_list import AlikeOperations, Group, OperationList, alike_groups
from ...operations.rules import Product, size
from .cached import OperationRows

FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(kind.family for kind in KINDS.values()))

PRODUCTS: tuple[str, ...] = ("convolution", "matmul", "attention")
"""Families of operations that are computed as matrix products, tile by tile."""

KIND_PLACES = {kind: place for place, kind in enumerate(KINDS)}
"""Kind -> its value in the field `kind` of `numbers_of`."""

WINOGRAD = 9 / 4
"""Multiplications of a 3 x 3 convolution over those of Winograd's F(2 x 2, 3 x 3): 36 over 16 for 2 x 2 outputs (Lavin
and Gray, CVPR 2016)."""


class _Numbers(NamedTuple):
    """An operation as numbers that do not depend on the GPU.

    `batch`, `rows`, `columns` and `reduction` are the sizes of its matrix product, `flops` those that run. `family`,
    `kind` and `precision` are indices into FAMILIES, KINDS and PRECISIONS. `is_masked` is of attention with a causal
    mask, `is_partial` of training without all of its gradients. Fields that start with `is_`, `bias` and `transforms`
    are 0 or 1.
    """

    flops: float
    bytes_read: float
    bytes_written: float
    input_size: float
    output_size: float
    parameters: float
    first_size: float
    last_size: float
    channels_in: float
    channels_out: float
    positions: float
    kernel: float
    stride: float
    groups: float
    bias: float
    batch: float
    rows: float
    columns: float
    reduction: float
    is_product: float
    is_convolution: float
    height: float
    width: float
    transforms: float
    winograd: float
    element_bytes: float
    is_identity: float
    kernels: float
    is_training: float
    is_masked: float
    is_partial: float
    family: float
    kind: float
    precision: float


def _numbers(operation: Counted) -> _Numbers:
    # A tensor without dimensions has one element.
    inputs, out, attributes = operation.input_shapes[0] or (1,), operation.output_shape, operation.attributes
    family, kind = operation.row.family, operation.kind
    channels_first = len(inputs) > 2 and family in ("convolution", "pooling")
    channels_first = channels_first or (len(inputs) == 4 and kind not in ("linear", "layer_norm", "gelu"))
    channels_in = inputs[1] if channels_first and len(inputs) > 1 else inputs[-1]
    batch, rows, columns, reduction = _as_product(operation)
    return _Numbers(
        flops=operation.executed_flops,
        bytes_read=operation.bytes_read,
        bytes_written=operation.bytes_written,
        input_size=operation.input_size,
        output_size=size(out),
        parameters=operation.parameters,
        first_size=inputs[0],
        last_size=inputs[-1],
        channels_in=channels_in,
        channels_out=attributes.get("out_channels", attributes.get("out_features", channels_in)),
        positions=size(out[2:]),
        kernel=_mean_size(attributes.get("kernel_size", 1)),
        stride=_mean_size(attributes.get("stride", 1)),
        groups=attributes.get("groups", 1),
        bias=bool(attributes.get("bias", False)),
        batch=batch,
        rows=rows,
        columns=columns,
        reduction=reduction,
        is_product=family in PRODUCTS,
        is_convolution=family == "convolution",
        height=out[-2] if len(out) > 3 else 1.0,
        width=out[-1] if len(out) > 2 else 1.0,
        transforms=_has_transforms(operation),
        winograd=_winograd(operation),
        element_bytes=ELEMENT_BYTES[operation.precision],
        is_identity=operation.is_identity,
        kernels=_kernels(operation),
        is_training=operation.mode == "training",
        is_masked=bool(attributes.get("causal", False)),
        is_partial=operation.gradients != "all",
        family=FAMILIES.index(family),
        kind=KIND_PLACES[kind],
        precision=PRECISIONS.index(operation.precision),
    )


_ROWS = OperationRows(len(_Numbers._fields))
"""The numbers of operations; computing those of one takes longer than predicting its cost."""


def numbers_of(operations: Sequence[Operation]) -> Any:
    """The numbers of many operations: `_Numbers` whose fields are read-only arrays of shape (operations,)."""
    return OperationList.of(operations).derived(_numbers_of)


def by_kind(operations: Sequence[Operation], value: Callable[[Operation], Any]) -> NDArray[Any]:
    """A value for each operation that depends on its kind and precision alone, computed once for each pair."""
    firsts, places = OperationList.of(operations).derived(_kinds)
    return np.array([value(operations[first]) for first in firsts.tolist()])[places]


def _kinds(operations: OperationList) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Index of the first operation of each kind and precision, and which of these kinds every operation is of."""
    n = numbers_of(operations)
    _, firsts, places = np.unique(n.kind * len(PRECISIONS) + n.precision, return_index=True, return_inverse=True)
    return firsts, places


def is_depthwise(n: Any) -> Any:
    """Whether each operation is a convolution in which each channel of the input has filters of its own."""
    return (n.is_convolution > 0) & (n.groups > 1) & (n.groups == n.channels_in)


def _numbers_of(operations: OperationList) -> _Numbers:
    table = _ROWS.of(operations, number_rows)
    columns = np.ascontiguousarray(table.T)
    columns.flags.writeable = False
    return _Numbers(*columns)


def number_rows(operations: Sequence[Operation]) -> FloatArray:
    """The numbers of operations, computed anew, shape (operations, fields); see `numbers_of`.

    Operations that differ in their sizes alone are counted together.
    """
    rows = np.full((len(operations), len(_Numbers._fields)), np.nan)
    for group in OperationList.of(operations).derived(alike_groups):
        _put_group(rows, group)
    for place in np.flatnonzero(np.isnan(rows[:, 0])).tolist():
        rows[place] = _numbers(operations[place])
    return rows


def _put_group(rows: FloatArray, group: Group) -> None:
    """Put the numbers of alike operations into their rows, shape (operations, fields).

    Rows of operations that cannot be counted together stay NaN.
    """
    try:
        alike = AlikeOperations(group)
        numbers = np.array([np.broadcast_to(value, len(group.rows)) for value in _numbers(alike)], dtype=float)
    except (OverflowError, TypeError, ValueError):
        # Some rules compare sizes to choose what to compute, which they cannot do for all of an array at once.
        return
    numbers[:, ~alike.fits] = np.nan
    rows[group.places] = numbers.T


def _kernels(operation: Counted) -> float:
    """Least number of kernels that run one after the other: those of the forward pass, and as many for the backward."""
    row = operation.row
    has_backward = operation.has_backward and passes(row.training).reads != passes(row.forward).reads
    return 0.0 if operation.is_identity else operation.steps * (1.0 + has_backward)


def _has_transforms(operation: Counted) -> bool:
    """Whether Winograd's or Fourier transforms may compute a convolution.

    They apply to square windows of more than one pixel with a stride and a dilation of one, and without groups.
    """
    if not operation.row.transforms or operation.attributes["groups"] != 1:
        return False
    sides = {size for name in ("stride", "dilation") for size in _sizes(operation.attributes.get(name, 1))}
    window = _sizes(operation.attributes["kernel_size"])
    return sides == {1} and len(set(window)) == 1 and window[0] > 1


def _winograd(operation: Counted) -> float:
    """How many times fewer multiplications Winograd's algorithm needs, or 1 where it does not apply.

    F(2 x 2, 3 x 3) computes squares of 2 x 2 outputs with 16 multiplications instead of 36 (Lavin and Gray, CVPR 2016).
    """
    if not _has_transforms(operation) or _mean_size(operation.attributes["kernel_size"]) != 3:
        return 1.0
    squares = math.prod(-(-n // 2) for n in operation.output_shape[2:])
    saving: float = np.maximum(1.0, WINOGRAD * size(operation.output_shape[2:]) / (4 * squares))
    return saving


def _as_product(operation: Counted) -> Product:
    """The operation as a batched matrix product; other operations get their output's shape and a reduction of 1."""
    out = operation.output_shape
    return operation.product or Product(1, size(out[:-1]), out[-1] if out else 1, 1)


def _sizes(value: int | tuple[int, ...] | None) -> tuple[int, ...]:
    if value is None:
        return (1,)
    return (value,) if isinstance(value, int) else value


def _mean_size(value: int | tuple[int, ...] | None) -> float:
    sizes = _sizes(value)
    mean: float = math.prod(sizes) ** (1 / len(sizes))
    return mean
