"""Boards: several GPUs, for which physics computes in the same lines as for one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from operator import attrgetter
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from .gpu import GPU

Number = TypeVar("Number")


@dataclass(frozen=True)
class Boards:
    """Several GPUs that run operations alike: each in the same precision and on the same units.

    It stands where physics takes a GPU. A figure of it is a column of shape (gpus, 1), so that what depends on an
    operation and its GPU, of shape (operations,) for one GPU, has the shape (gpus, operations).
    """

    each: tuple[GPU, ...]

    @classmethod
    def of(cls, gpus: tuple[GPU, ...]) -> GPU:
        """Several GPUs in place of one. A tuple of one GPU gives the shape (1, operations)."""
        return cast(GPU, cls(gpus))

    def __getattr__(self, name: str) -> NDArray[Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        vars(self)[name] = column = self.column(attrgetter(name))  # The next look-up finds it there.
        return column

    def column(self, value: Callable[[GPU], Any]) -> NDArray[Any]:
        """A number of each GPU, shape (gpus, 1); or several numbers, shape (gpus, numbers)."""
        values = np.array([value(gpu) for gpu in self.each])
        return values if values.ndim > 1 else values[:, None]


def each_of(gpu: GPU) -> tuple[GPU, ...]:
    """The GPUs of `Boards`, or the one."""
    return gpu.each if isinstance(gpu, Boards) else (gpu,)


def per_gpu(value: Callable[[GPU], Number]) -> Callable[[GPU], Number]:
    """A function of a GPU that takes `Boards` as well: it gives their column then."""

    @wraps(value)
    def of(gpu: GPU) -> Number:
        return cast(Number, gpu.column(value)) if isinstance(gpu, Boards) else value(gpu)

    return of
