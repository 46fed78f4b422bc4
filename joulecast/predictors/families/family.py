"""What a family of operations is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation_list import OperationList


class Description(NamedTuple):
    """Operations of a family on a GPU.

    Args:
        expected_s: Device time that physics expects at the default clock, shape (operations,).
        inputs: What trees see, shape (operations, inputs of the family), to be read only.
    """

    expected_s: FloatArray
    inputs: NDArray[np.float32]


@dataclass(frozen=True)
class Family:
    """A family of operations.

    Args:
        name: Also of its files in a zoo entry.
        inputs: Names of what trees see.
        about_gpu: Those of the inputs that tell GPUs apart. Trees for chips that were not measured do not see them:
            they would take such a chip for one that they know.
        covers: Which operations belong to it, a mask.
        describe: Operations that belong to it, on a GPU that has their precisions.
    """

    name: str
    inputs: tuple[str, ...]
    about_gpu: frozenset[str]
    covers: Callable[[OperationList], NDArray[np.bool_]]
    describe: Callable[[OperationList, GPU], Description]

    @property
    def shared_columns(self) -> list[int]:
        """Places of the inputs that say nothing about the GPU alone."""
        return [place for place, name in enumerate(self.inputs) if name not in self.about_gpu]
