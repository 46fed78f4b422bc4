"""Half precision where only whole networks were measured in it: a factor for products, and what stands for the others.

Trees that were trained on fp32 know nothing about products on tensor cores. Physics knows the tiles of these products
(least_times.py). How much slower than physics they are is fitted to the times of whole networks.

Most other operations are bound by memory, and their kernels move narrow elements in the same way as fp32 elements. So
trees predict the same operation in fp32. If they were given the operation in half precision, its arithmetic intensity
would be one that they never saw for this kind, and they would answer with leaves of other kinds.

Convolutions on tensor cores take the ratio of TF32, which the same kernels compute. Networks do not decide more than
the factor of products: with one for convolutions, ResNet-101 in bf16 on A100 and A10 put it at 1.2, and with one for
the others at 1.09, which made timm's networks on RTX 3090, 4090 and 5090 slower by as much, and worse.

Depthwise convolutions, in which each channel has a filter of its own, are a case apart. In fp32 a kernel of PyTorch
computes them, several times slower than memory allows. In half precision cuDNN does (`use_cudnn_depthwise` in
ATen/native/Convolution.cpp), and is bound by memory except for the gradient of the weight. The factor for training was
chosen with timm's published times in view (the half of benchmarks/public that is not held back for tests).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.attributes import HALF_BYTES
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..formats.numbers import numbers, require_features
from .operation_numbers import FAMILIES, numbers_of
from .precisions import as_fp32, in_fp32
from .roofline import on_tensor_cores

_MOVEMENT = FAMILIES.index("movement")
DEPTHWISE_TRAINING = 3.0  # Device time over least time of depthwise convolutions in training.


@dataclass(frozen=True)
class HalfPrecision:
    """The factor on device times of matrix products in fp16 and bf16.

    Args:
        product: Log of their time over the least time of physics. The default, a factor of 1.35, is that of fp32.
    """

    product: float = 0.3

    def applied(self, operations: Sequence[Operation], gpu: GPU, ratio: FloatArray) -> FloatArray:
        """Device time over least time, corrected for half precision where it runs on tensor cores.

        Returns:
            The corrected ratio, shape (operations,).

        Raises:
            InputError: An operation's precision does not exist on the GPU.
        """
        of_product, _ = half_groups(operations)
        corrected = np.where(of_product, np.exp(self.product), alone(operations, ratio))
        applied: FloatArray = np.where(on_tensor_cores(numbers_of(operations), gpu), corrected, ratio)
        return applied

    def to_dict(self) -> dict[str, float]:
        """The logarithm as a dictionary."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote. Raises ZooError: It has other numbers, as those of an older joulecast do."""
        require_features(list(value), [each.name for each in fields(cls)], "half precision")
        return cls(**numbers(value))


def alone(operations: Sequence[Operation], ratio: FloatArray) -> FloatArray:
    """Device time over least time, with that of depthwise convolutions in half precision replaced by constants."""
    depthwise = OperationList.of(operations).derived(_half_depthwise)
    put: FloatArray = np.where(depthwise > 0, depthwise, ratio)
    return put


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
    _, of_other = operations.derived(_half_groups)
    return OperationList(
        as_fp32(operation) if other else operation
        for operation, other in zip(operations, of_other.tolist(), strict=True)
    )


def half_groups(operations: Sequence[Operation]) -> NDArray[np.bool_]:
    """Whether operations are in half precision and products, or neither products nor convolutions.

    Returns:
        Shape (2, operations).
    """
    return OperationList.of(operations).derived(_half_groups)


def _half_groups(operations: OperationList) -> NDArray[np.bool_]:
    n = numbers_of(operations)
    half, depthwise = n.element_bytes == HALF_BYTES, _is_depthwise(n)
    convolution = (n.family == FAMILIES.index("convolution")) & ~depthwise
    product = (n.is_product > 0) & ~convolution & ~depthwise
    groups: NDArray[np.bool_] = np.array([half & product, half & ~product & ~convolution])
    groups.flags.writeable = False
    return groups


def _half_depthwise(operations: OperationList) -> FloatArray:
    """Device time over least time of depthwise convolutions in half precision; 0 for other operations."""
    n = numbers_of(operations)
    ratio = np.where(n.is_training > 0, DEPTHWISE_TRAINING, 1.0)
    put: FloatArray = np.where(_is_depthwise(n) & (n.element_bytes == HALF_BYTES), ratio, 0.0)
    put.flags.writeable = False
    return put


def _is_depthwise(n: Any) -> Any:
    return (n.is_convolution > 0) & (n.groups > 1) & (n.groups == n.channels_in)
