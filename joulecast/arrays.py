"""Types of arrays, and sums of them that do not depend on the order of their values; values in groups."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_HEADROOM_BITS = 20  # A sum of up to a million values is exact.
_SPARE_BITS = 33  # Bits of the first part of a value: those of a double, less the headroom.


def total(values: FloatArray) -> FloatArray:
    """The sum over the last axis, shape (..., values), the same to the last bit in any order; NaN counts as zero."""
    largest = np.abs(values).max(axis=-1, keepdims=True, initial=0.0)
    if not np.isfinite(largest).all():  # Replacing values takes longer than all the rest.
        values = np.nan_to_num(values)
        largest = np.abs(values).max(axis=-1, keepdims=True, initial=0.0)
    coarse, fine = _split(values, largest)
    sums: FloatArray = coarse.sum(axis=-1) + fine.sum(axis=-1)
    return sums


def totals_by(owners: NDArray[np.intp], values: FloatArray, count: int) -> FloatArray:
    """The sums of groups of values, shape (count,), each as `total` gives it.

    `owners` are the groups, shape (values,).
    """
    finite = np.nan_to_num(values)
    largest = np.zeros(count)
    np.maximum.at(largest, owners, np.abs(finite))
    sums = np.zeros(count)
    for part in _split(finite, largest[owners]):
        sums += np.bincount(owners, part, count)
    return sums


def summed_by(owners: NDArray[np.int64], values: FloatArray, count: int) -> FloatArray:
    """The plain sums of groups of values, shape (..., values), one after the other; shape (..., count)."""
    rows = values.reshape(math.prod(values.shape[:-1]), len(owners))
    return np.array([np.bincount(owners, row, count) for row in rows]).reshape(*values.shape[:-1], count)


def _split(values: FloatArray, largest: FloatArray) -> tuple[Any, Any]:
    """Each value, shape (..., values), as a multiple of one coarse unit and a rest that is a multiple of a fine one.

    Sums of such multiples are exact in doubles, and so they do not depend on their order (Demmel and Nguyen, "Fast
    reproducible floating-point summation", ARITH 2013). What is left out is 2^-66 of the largest value. `largest` is
    the largest absolute value of each sum, in a shape that broadcasts to that of the values.
    """
    # Adding and subtracting such a number rounds to a multiple of the unit in its last place.
    exponent: Any = np.frexp(largest)[1]
    rounder = np.ldexp(1.5, exponent + _HEADROOM_BITS)
    coarse = (values + rounder) - rounder
    finer = np.ldexp(rounder, -_SPARE_BITS)
    return coarse, (values - coarse + finer) - finer


def front_of(seconds: ArrayLike, joules: ArrayLike) -> list[int]:
    """The Pareto front, fastest first: places of points that no other beats in energy without taking longer.

    Points where the energy is NaN are left out.
    """
    energy = np.asarray(joules, dtype=float)
    order = np.lexsort((energy, np.asarray(seconds, dtype=float)))
    order = order[~np.isnan(energy[order])]
    least = np.minimum.accumulate(np.append(np.inf, energy[order]))[:-1]
    places: list[int] = order[energy[order] < least].tolist()
    return places


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Key -> the values that come with it; both in the order in which they come."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
