"""The description of a family of kernels from which its device times can be learned: sizes, physics and features."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList

Names = tuple[str, str]
"""Name of a family, and of one of its variants."""


def of_nvidia(gpu: GPU) -> bool:
    """Whether a family of kernels of NVIDIA's libraries covers a GPU."""
    return gpu.is_nvidia


def of_one_library(operations: OperationList, gpu: GPU) -> NDArray[np.int64]:
    """The index of the only library, for families that have one, shape (operations,)."""
    return np.zeros(len(operations), dtype=np.int64)


class Constant(NamedTuple):
    """A positive number in the physics of a family, to be fitted to measurements.

    Args:
        name: Name that ends in the unit.
        start: Value from which the fit starts.
        low, high: Limits of the fitted value.
    """

    name: str
    start: float
    low: float
    high: float


@dataclass(frozen=True)
class Family:
    """Operations whose kernels are alike.

    Args:
        name: Name of the family, such as "linear".
        constants: The constants of `physics_s`, in the order in which it takes them.
        feature_names: Names of the columns of `features`.
        variant_precisions: The variants of its kernels, such as "half" or "fp8", each learned by itself -> a precision
            that a GPU must have for them.
        variant: Gives the variant that computes an operation; None for operations of no variant of this family.
        physics_s: Computes device seconds at the default clock, shape (operations,), from operations of one variant,
            the GPU, and the values of the constants, shape (constants,) or (constants, operations).
        features: Computes the features of trees, shape (operations, len(feature_names)), from operations of one
            variant, the GPU, and the seconds of `physics_s`. Sizes are relative to the GPU, so that trees hold on
            other GPUs.
        unseen: Gives the group of an operation, such as the sizes of a layer's weights. Cross-validation leaves out
            whole groups.
        learns_from: Whether trees are trained on measurements of an operation.
        transfers: Whether other generations learn from measurements of an operation.
        covers: Whether the family can predict a GPU.
        shrinkage: Weight of the trees on generations that were not measured, from 0 (physics alone) to 1.
        backward_s: Computes seconds of the backward passes of operations by physics, with the arguments of `physics_s`;
            None if the family has no operations in training.
        learned_as: Name of the family whose learned model it uses; None for its own.
        generation: Compute capability whose kernels the family runs on all GPUs; None for those of each GPU.
        libraries: Names of the libraries of kernels that have constants of their own.
        library: Index of the library that computes each operation on a GPU, shape (operations,).
    """

    name: str
    constants: tuple[Constant, ...]
    feature_names: tuple[str, ...]
    variant_precisions: Mapping[str, str]
    variant: Callable[[Operation], str | None]
    physics_s: Callable[[OperationList, GPU, FloatArray], FloatArray]
    features: Callable[[OperationList, GPU, FloatArray], NDArray[np.float32]]
    unseen: Callable[[Operation], Hashable]
    learns_from: Callable[[Operation], bool] = lambda operation: True
    transfers: Callable[[Operation], bool] = lambda operation: True
    covers: Callable[[GPU], bool] = lambda gpu: True
    shrinkage: float = 1.0
    backward_s: Callable[[OperationList, GPU, FloatArray], FloatArray] | None = None
    learned_as: str | None = None
    generation: str | None = None
    libraries: tuple[str, ...] = ("all",)
    library: Callable[[OperationList, GPU], NDArray[np.int64]] = of_one_library

    def by_library_s(self, operations: OperationList, gpu: GPU, constants: FloatArray) -> FloatArray:
        """Device seconds by physics, shape (operations,), each with the constants of its library.

        Args:
            operations: Operations of one variant.
            gpu: The GPU that they run on.
            constants: Values of the constants, shape (libraries, constants).
        """
        return self.physics_s(operations, gpu, self._of_each(operations, gpu, constants))

    def with_backward(self, operations: OperationList, gpu: GPU, constants: FloatArray) -> FloatArray:
        """Seconds of forward and backward pass over those of the forward, by physics, shape (operations,)."""
        if self.backward_s is None:
            return np.ones(len(operations))
        each = self._of_each(operations, gpu, constants)
        return 1 + self.backward_s(operations, gpu, each) / self.physics_s(operations, gpu, each)

    def _of_each(self, operations: OperationList, gpu: GPU, constants: FloatArray) -> FloatArray:
        return constants[0] if len(self.libraries) == 1 else constants[self.library(operations, gpu)].T
