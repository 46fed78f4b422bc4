"""Half precision where only whole networks were measured in it: a factor for each of three sorts of operations.

Trees that have seen fp32 say nothing about products on tensor cores. Physics knows the tiles that they are computed in
(least_times.py). By how much products are slower than that, and other operations than in fp32, sums over networks tell.

Other operations move bytes, and a kernel moves half as wide numbers as it moves fp32: trees are asked for the operation
in fp32. Asked for one in half precision, whose intensity they saw of no operation of its kind, they answered with
leaves of other kinds.

Convolutions of one channel each ("depthwise") are computed by a kernel of PyTorch's own in fp32, several times slower
than memory allows, and by cuDNN in half precision (`use_cudnn_depthwise` in ATen/native/Convolution.cpp): bound by
memory, but for the gradient of the weight. How slow that is, was looked at on timm's published times (the half of
benchmarks/public that is not held back).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..formats.numbers import numbers
from .operation_numbers import FAMILIES, numbers_of
from .precisions import in_fp32
from .roofline import on_tensor_cores

_HALF = 2.0  # Bytes of an element.
_MOVEMENT = FAMILIES.index("movement")
_DEPTHWISE_TRAINING = 3.0


@dataclass(frozen=True)
class HalfPrecision:
    """Logarithms of factors on device times in fp16 and bf16.

    Args:
        product: Matrix products, over the least time of physics. The prior is what fp32 products take: 1.35 times that.
        convolution: Over what convolutions on tensor cores would take by what the trees have seen.
        other: The same for what moves more than it computes.
    """

    product: float = 0.3
    convolution: float = 0.0
    other: float = 0.0

    def applied(self, operations: Sequence[Operation], gpu: GPU, ratio: FloatArray) -> FloatArray:
        """Device time over least time, with half precision put right where it runs on tensor cores.

        Args:
            operations: Operations of any precision.
            gpu: Where they run; without tensor cores, half precision runs as fp32 does.
            ratio: What was learned from single operations, one value each.

        Raises:
            InputError: An operation's precision does not exist on the GPU.
        """
        of_product, of_convolution, of_other = half_groups(operations)
        factor = np.exp(self.convolution * of_convolution + self.other * of_other)
        corrected = np.where(of_product > 0, np.exp(self.product), alone(operations, ratio) * factor)
        applied: FloatArray = np.where(on_tensor_cores(numbers_of(operations), gpu), corrected, ratio)
        return applied

    def to_json(self) -> dict[str, float]:
        """The logarithms as a dictionary."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(**numbers(value))


def alone(operations: Sequence[Operation], ratio: FloatArray) -> FloatArray:
    """Device time over least time with depthwise convolutions in half precision put right: nothing else says them."""
    depthwise = OperationList.of(operations).derived(_half_depthwise)
    put: FloatArray = np.where(depthwise > 0, depthwise, ratio)
    return put


def seen_as(operations: OperationList, gpu: GPU) -> OperationList:
    """Operations as trees are asked for them: of half precision, in fp32 what moves more than it computes.

    On a GPU without tensor cores all of it is asked for in fp32, which it runs as there. What has no backward takes as
    long in training as in inference, so it is asked for in inference; so is what moves bytes only, of which no training
    was measured: its backward is one more movement of the same sort.

    Raises:
        InputError: An operation's precision does not exist on the GPU.
    """
    operations = operations.derived(_without_modes)
    n = numbers_of(operations)
    half = n.element_bytes == _HALF
    if not half.any():
        return operations
    return operations.derived(_others_in_fp32 if on_tensor_cores(n, gpu)[half].all() else in_fp32)


def _without_modes(operations: OperationList) -> OperationList:
    """The operations, in inference those that do alike in training; the same list where there are none."""
    n = numbers_of(operations)
    alike = (n.is_training > 0) & ((n.kernels == 1) | (n.family == _MOVEMENT))
    if not alike.any():
        return operations
    return OperationList(
        operation.replace(mode="inference") if same else operation
        for operation, same in zip(operations, alike.tolist(), strict=True)
    )


def _others_in_fp32(operations: OperationList) -> OperationList:
    _, _, of_other = operations.derived(_half_groups)
    return OperationList(
        fp32 if other else operation
        for operation, fp32, other in zip(operations, operations.derived(in_fp32), of_other.tolist(), strict=True)
    )


def half_groups(operations: Sequence[Operation]) -> FloatArray:
    """Which are products, convolutions and others in half precision: zeros and ones, shape (3, operations)."""
    return OperationList.of(operations).derived(_half_groups)


def _half_groups(operations: OperationList) -> FloatArray:
    n = numbers_of(operations)
    half, depthwise = n.element_bytes == _HALF, _is_depthwise(n)
    convolution = (n.family == FAMILIES.index("convolution")) & ~depthwise
    product = (n.is_product > 0) & ~convolution & ~depthwise
    groups = np.array([half & product, half & convolution, half & ~product & ~convolution], dtype=float)
    groups.flags.writeable = False
    return groups


def _half_depthwise(operations: OperationList) -> FloatArray:
    """Device time over least time of depthwise convolutions in half precision; 0 elsewhere."""
    n = numbers_of(operations)
    ratio = np.where(n.is_training > 0, _DEPTHWISE_TRAINING, 1.0)
    put: FloatArray = np.where(_is_depthwise(n) & (n.element_bytes == _HALF), ratio, 0.0)
    put.flags.writeable = False
    return put


def _is_depthwise(n: Any) -> Any:
    return (n.is_convolution > 0) & (n.groups > 1) & (n.groups == n.channels_in)
