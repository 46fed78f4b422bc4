"""Operations of a list by the variants of kernels that compute them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from .families import PREDICTED
from .gradients import kernels_of


class Part(NamedTuple):
    """The operations of a list in one precision that belong to one variant, or whose kernels do (gradients.py).

    Args:
        family, variant: Names of the family and of the variant.
        places: Index of each of the operations in the list; the same for all kernels of one operation.
        operations: These operations.
        backward: Whether the backward pass of each of them is meant as well.
    """

    family: str
    variant: str
    places: NDArray[np.int64]
    operations: OperationList
    backward: NDArray[np.bool_]

    @property
    def learned_names(self) -> tuple[str, str]:
        """Names of the family and of the variant whose learned model predicts them."""
        return PREDICTED[self.family].learned_as or self.family, self.variant


def variant_parts(operations: OperationList) -> tuple[Part, ...]:
    """The operations that belong to a family, by variant; the others are in no part."""
    return operations.derived(_parts)


def _parts(operations: OperationList) -> tuple[Part, ...]:
    # By precision as well: fp16 and bf16 are learned together, but not every GPU multiplies them at the same rate.
    found: dict[tuple[str, str, str], list[tuple[int, Operation, bool]]] = {}
    for place, operation in enumerate(operations):
        for kernel in kernels_of(operation):
            for name, family in PREDICTED.items():
                variant = family.variant(kernel)
                if variant is not None:
                    backward = family.backward_s is not None and operation.has_backward
                    found.setdefault((name, variant, kernel.precision), []).append((place, kernel, backward))
                    break
    columns = ((names, zip(*some, strict=True)) for names, some in found.items())
    return tuple(
        Part(family, variant, np.array(places), OperationList(kernels), np.array(backward))
        for (family, variant, _), (places, kernels, backward) in columns
    )
