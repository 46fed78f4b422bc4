"""What a family of kernels has to say, so that its device times can be learned: sizes, physics and features."""

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
"""A family and one of its variants."""


class Constant(NamedTuple):
    """A positive number in the physics of a family, to be fitted to measurements.

    Args:
        name: With its unit.
        start: What it is looked for from.
        low, high: What it lies between.
    """

    name: str
    start: float
    low: float
    high: float


@dataclass(frozen=True)
class Family:
    """Operations whose kernels are alike.

    Args:
        name: Such as "linear".
        constants: Those of `physics_s`.
        feature_names: One per column of `features`.
        variant_precisions: The variants of its kernels, such as "half" or "fp8", each learned by itself -> a precision
            that a GPU must have for them.
        variant: Which variant computes an operation; None where the family says nothing about the operation.
        physics_s: Seconds on a GPU at its default clock, from operations of one variant and an array with the value of
            each constant; shape (operations,).
        features: What trees see of operations of one variant on a GPU, from these and the seconds of `physics_s`;
            shape (operations, len(feature_names)). Sizes are relative to the GPU, so that they say the same elsewhere.
        unseen: What is left out together when errors are found, such as the sizes of a layer's weights.
        learns_from: Whether measurements of an operation are to be learned from.
        covers: Whether the family knows anything about a GPU.
        shrinkage: How far trees are trusted on other generations than those that were measured, from 0 (physics alone)
            to 1.
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
    covers: Callable[[GPU], bool] = lambda gpu: True
    shrinkage: float = 1.0
