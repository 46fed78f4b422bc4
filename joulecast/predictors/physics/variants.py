"""Operations that are asked for in place of others, or beside them: in other precisions and modes, whole, without mask.

- Half precision. Operations other than products and convolutions were not measured in it. Most of them are bound by
  memory, and their kernels move narrow elements in the same way as fp32 elements. So trees predict the same operation
  in fp32. If they were given the operation in half precision, its arithmetic intensity would be one that they never saw
  for this kind, and they would answer with leaves of other kinds. Convolutions on tensor cores take the ratio of TF32,
  which the same kernels compute. Networks do not decide more: with a factor for convolutions, ResNet-101 in bf16 on
  A100 and A10 put it at 1.2, and with one for the others at 1.09, which made timm's networks on RTX 3090, 4090 and 5090
  slower by as much, and worse.
- TF32. Where it is allowed, fp32 is allowed, too.
- Training without some of the gradients, as with frozen layers. Loops were measured of whole operations: a forward, or
  a forward with all gradients of its backward. What a part of them costs follows from its work, which is counted
  (`kind.Training`). A linear layer has three products of the same size, so without the gradient of its weights it costs
  two thirds. A forward alone costs what it does in inference.
- Limits. Training takes at least its forward, and attention at most what it takes without mask. Each is learned from
  other measurements with other errors, so a prediction for training could be below that for inference, and one with a
  mask above that without. What limits an operation is therefore predicted as well. In training the longer of both
  predictions counts, and twice the forward if the backward does as much again. Limits hold at the default clock. At
  others, the clock law may part an operation and its limit by half a percent.

Lists of operations that depend on nothing else are made once for each list, with `OperationList.derived`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU, each_of
from ...operations.attributes import HALF_BYTES, PRECISIONS
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...operations.rules import Product
from ...system.caches import OPERATION_BYTES, remembered
from .operation_numbers import FAMILIES, KIND_PLACES, PRODUCTS, is_depthwise, numbers_of
from .roofline import on_tensor_cores

_INPUT_BYTES = 200  # of one more input of an operation, such as of a concatenation
_MOVEMENT = FAMILIES.index("movement")
_TF32, _FP64 = PRECISIONS.index("tf32"), PRECISIONS.index("fp64")


def _changed(operations: OperationList, which: Any, change: Callable[[Operation], Operation]) -> OperationList:
    """The list with some of its operations changed, given by a mask; the same list if there are none."""
    places, changed = np.flatnonzero(which).tolist(), list(operations)
    for place in places:
        changed[place] = change(operations[place])
    return OperationList(changed) if places else operations


@remembered(lambda made: OPERATION_BYTES + len(made.input_shapes) * _INPUT_BYTES)
def as_fp32(operation: Operation) -> Operation:
    """An operation, converted to fp32."""
    return operation.replace(precision="fp32")


def in_fp32(operations: OperationList) -> OperationList:
    """All operations, converted to fp32."""
    return OperationList(map(as_fp32, operations))


def fp64_in_fp32(operations: OperationList) -> OperationList:
    """The operations, with those in fp64 converted to fp32."""
    return _changed(operations, numbers_of(operations).precision == _FP64, as_fp32)


def without_tf32(operations: OperationList) -> OperationList:
    """The operations, with those in TF32 converted to fp32."""
    return _changed(operations, numbers_of(operations).precision == _TF32, as_fp32)


def as_run(operations: OperationList, gpu: GPU) -> OperationList:
    """The operations as a GPU runs them: TF32 is a permission, of no use where its rate is not above that of fp32."""
    peak_flops = each_of(gpu)[0].peak_flops
    is_quicker = peak_flops.get("tf32", 0.0) > peak_flops["fp32"]
    return operations if is_quicker else operations.derived(without_tf32)


def tf32_in_fp32(operations: OperationList) -> tuple[NDArray[np.bool_], NDArray[np.bool_], OperationList]:
    """Which operations may run in TF32; which of them always run in fp32; and all that may, converted to fp32.

    Kinds without kernels for tensor cores always run in fp32. Masks have the shape (operations,).
    """
    places = numbers_of(operations).precision == _TF32
    always = np.array([not operation.row.tensor_cores for operation in operations], dtype=bool) & places
    return places, always, OperationList(map(as_fp32, compress(operations, places)))


def attention_in_half(operations: OperationList) -> tuple[NDArray[np.intp], OperationList]:
    """Where attention in fp32 stands in a list, shape (attention,), and the same attention in fp16."""
    places = np.flatnonzero([each.kind == "attention" and each.precision == "fp32" for each in operations])
    return places, OperationList(operations[place].replace(precision="fp16") for place in places.tolist())


def refuse_precisions(gpu: GPU, operations: Iterable[Operation]) -> None:
    """Refuse operations in a precision that a GPU does not have.

    Raises:
        InputError: The GPU does not support the precision of an operation.
    """
    for precision in {operation.precision for operation in operations}:
        gpu.running_precision(precision)


def seen_as(operations: OperationList, gpu: GPU) -> OperationList:
    """The operations that trees predict in place of the given ones, because they were trained on these.

    - Operations in half precision other than products and convolutions become fp32. On a GPU without tensor cores all
      of them do, because it computes half precision in fp32.
    - Operations in training become inference where they have no backward kernels and so take as long in both modes.
      So do operations that only move bytes. Their training was not measured, and their backward moves bytes alike.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    operations = operations.derived(_without_modes)
    n = numbers_of(operations)
    half = n.element_bytes == HALF_BYTES
    if not half.any():
        return operations
    return operations.derived(_others_in_fp32 if on_tensor_cores(n, gpu)[..., half].all() else in_fp32)


def _without_modes(operations: OperationList) -> OperationList:
    """The operations, with those in training that take as long in inference changed to inference."""
    n = numbers_of(operations)
    alike = (n.is_training > 0) & ((n.kernels == 1) | (n.family == _MOVEMENT))
    return _changed(operations, alike, lambda operation: operation.replace(mode="inference"))


def _others_in_fp32(operations: OperationList) -> OperationList:
    n = numbers_of(operations)
    product = (n.is_product > 0) & ~is_depthwise(n)
    return _changed(operations, (n.element_bytes == HALF_BYTES) & ~product, as_fp32)


def whole_operations(operations: OperationList) -> OperationList:
    """Each operation with all of its gradients."""
    return _changed(operations, numbers_of(operations).is_partial, lambda operation: operation.replace(gradients="all"))


def measured_operations(operations: OperationList) -> OperationList:
    """Like `whole_operations`, with operations in inference for forwards alone, where both do the same.

    A product of two tensors that is none of a batch is the linear layer of its sizes: PyTorch calls gemm for both.
    """
    n = numbers_of(operations)
    return _changed(operations, (n.is_partial > 0) | ((n.kind == KIND_PLACES["matmul"]) & (n.batch == 1)), _measured)


def _measured(operation: Operation) -> Operation:
    alone = not (operation.has_backward or operation.row.is_noise or operation.mode == "inference")
    product = operation.product if operation.kind == "matmul" else None
    if product is not None and product.batch == 1:
        return _linear(product, operation.precision, "inference" if alone else operation.mode)
    return operation.replace(mode="inference") if alone else operation.replace(gradients="all")


@remembered(lambda made: OPERATION_BYTES)
def _linear(product: Product, precision: str, mode: str) -> Operation:
    attributes = {"out_features": product.columns, "bias": False}
    return Operation("linear", [(product.rows, product.reduction)], attributes, precision=precision, mode=mode)


def work_shares(operations: OperationList, of: OperationList) -> FloatArray:
    """The work of operations over that of others: the FLOPs that run if they are products, otherwise their bytes.

    Returns:
        Shape (operations,); 1 for an operation that is in both lists.
    """
    if operations is of:
        return np.ones(len(operations))
    return np.array([1.0 if one is whole else _share(one, whole) for one, whole in zip(operations, of, strict=True)])


def measured_shares(operations: OperationList) -> FloatArray:
    """The work of operations over that of their `measured_operations`; see `work_shares`."""
    return work_shares(operations, operations.derived(measured_operations))


def _share(operation: Operation, whole: Operation) -> float:
    if operation.row.family in PRODUCTS:
        return operation.executed_flops / whole.executed_flops
    moved, all_moved = (each.bytes_read + each.bytes_written for each in (operation, whole))
    return moved / all_moved if all_moved else 1.0


class WithLimits(NamedTuple):
    """Operations, followed by those that limit some of them.

    Args:
        operations: The operations, followed by attention without the mask of some of them, and by the forward passes of
            all these in training, as operations in inference. The same list if there are none.
        masked: Index of the operation that each attention without a mask belongs to, shape (without a mask,).
        trained: Index of the operation that each forward pass belongs to, shape (forward passes,).
        multiples: The least time of the operation over that of the forward pass, shape (forward passes,): 2 if the
            backward computes and moves at least as much as the forward. Otherwise 1.
    """

    operations: OperationList
    masked: NDArray[np.int64]
    trained: NDArray[np.int64]
    multiples: FloatArray


def with_limits(operations: OperationList) -> WithLimits:
    """Operations followed by those that limit some of them."""
    masked = np.flatnonzero(numbers_of(operations).is_masked)
    limited = _and(operations, [operations[place].with_attributes(causal=False) for place in masked.tolist()])
    n = numbers_of(limited)
    trained = np.flatnonzero((n.is_training > 0) & (n.is_identity == 0))
    forwards = [limited[place].replace(mode="inference") for place in trained.tolist()]
    multiples = [1.0 + _doubles(limited[place], forward) for place, forward in zip(trained, forwards, strict=True)]
    return WithLimits(_and(limited, forwards), masked, trained, np.array(multiples))


def _and(operations: OperationList, more: list[Operation]) -> OperationList:
    return OperationList([*operations, *more]) if more else operations


def _doubles(operation: Operation, forward: Operation) -> bool:
    """Whether an operation in training computes and moves at least twice as much as its forward.

    Of 323 such operations that were measured in both modes (nicolai2025), 4 took less than twice as long in training.
    """
    moved, once = (each.bytes_read + each.bytes_written for each in (operation, forward))
    return moved >= 2 * once and operation.flops >= 2 * forward.flops
