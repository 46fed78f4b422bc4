"""What stands for operations in half precision whose kernels were not measured in it: the same operations in fp32.

Most of them are bound by memory, and their kernels move narrow elements in the same way as fp32 elements. So trees
predict the same operation in fp32. If they were given the operation in half precision, its arithmetic intensity would
be one that they never saw for this kind, and they would answer with leaves of other kinds. Convolutions on tensor cores
take the ratio of TF32, which the same kernels compute. Networks do not decide more: with a factor for convolutions,
ResNet-101 in bf16 on A100 and A10 put it at 1.2, and with one for the others at 1.09, which made timm's networks on RTX
3090, 4090 and 5090 slower by as much, and worse.

Depthwise convolutions, in which each channel has a filter of its own, are a case apart. In fp32 a kernel of PyTorch
computes them, several times slower than memory allows. In half precision cuDNN does (`use_cudnn_depthwise` in
ATen/native/Convolution.cpp), and is bound by memory except for the gradient of the weight. The factor for training was
chosen with timm's published times in view (the half of benchmarks/public that is not held back for tests).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.attributes import HALF_BYTES
from ...operations.operation_list import OperationList
from .fp32_kernels import counted_ratio
from .operation_numbers import FAMILIES, numbers_of
from .precisions import as_fp32, in_fp32
from .roofline import on_tensor_cores

_MOVEMENT = FAMILIES.index("movement")
DEPTHWISE_TRAINING = 3.0  # Device time over least time of depthwise convolutions in training.


def device_ratio(operations: OperationList, gpu: GPU, learned: FloatArray, capped: bool) -> FloatArray:
    """Device time over least time from what was learned of it: what is counted of kernels in fp32 is a part of it.

    Products count as they are seen. Rows in half precision take as many steps as in fp32, for fewer bytes. Shape
    (operations,).
    """
    product = numbers_of(operations).is_product > 0
    counted = np.where(product, *(counted_ratio(each, gpu, capped) for each in (seen_as(operations, gpu), operations)))
    return _with_depthwise(operations, gpu, learned * counted)


def _with_depthwise(operations: OperationList, gpu: GPU, ratio: FloatArray) -> FloatArray:
    """Device time over least time, with that of depthwise convolutions in half precision replaced by constants.

    They hold where half precision runs on tensor cores. Shape (operations,).
    """
    put = operations.derived(_half_depthwise)
    found: FloatArray = np.where((put > 0) & on_tensor_cores(numbers_of(operations), gpu), put, ratio)
    return found


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
    return operations.derived(_others_in_fp32 if on_tensor_cores(n, gpu)[half].all() else in_fp32)


def _without_modes(operations: OperationList) -> OperationList:
    """The operations, with those in training that take as long in inference changed to inference.

    The same list if there are none.
    """
    n = numbers_of(operations)
    alike = (n.is_training > 0) & ((n.kernels == 1) | (n.family == _MOVEMENT))
    if not alike.any():
        return operations
    return OperationList(
        operation.replace(mode="inference") if same else operation
        for operation, same in zip(operations, alike.tolist(), strict=True)
    )


def _others_in_fp32(operations: OperationList) -> OperationList:
    others = operations.derived(_half_others)
    return OperationList(
        as_fp32(operation) if other else operation for operation, other in zip(operations, others.tolist(), strict=True)
    )


def _half_others(operations: OperationList) -> NDArray[np.bool_]:
    """Which operations are in half precision, and neither products nor convolutions; shape (operations,)."""
    n = numbers_of(operations)
    product = (n.is_product > 0) & ~_is_depthwise(n)
    others: NDArray[np.bool_] = (n.element_bytes == HALF_BYTES) & ~product
    return others


def _half_depthwise(operations: OperationList) -> FloatArray:
    """Device time over least time of depthwise convolutions in half precision; 0 for other operations."""
    n = numbers_of(operations)
    ratio = np.where(n.is_training > 0, DEPTHWISE_TRAINING, 1.0)
    put: FloatArray = np.where(_is_depthwise(n) & (n.element_bytes == HALF_BYTES), ratio, 0.0)
    put.flags.writeable = False
    return put


def _is_depthwise(n: Any) -> Any:
    return (n.is_convolution > 0) & (n.groups > 1) & (n.groups == n.channels_in)
