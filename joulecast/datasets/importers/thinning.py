"""Fewer rows of a table, drawn so that every part of it stays, and the same ones each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_SEED = 2026


def thinned(stratum: npt.NDArray[Any], rows: int | None) -> npt.NDArray[np.int64]:
    """Places of the rows to take, in their order.

    Strata share the rows evenly; what a small one leaves over goes to the others.

    Args:
        stratum: A number for each row, from 0.
        rows: How many to take in all; None for every row.
    """
    if rows is None or rows >= len(stratum):
        return np.arange(len(stratum))
    sizes = np.bincount(stratum)
    shares = _shares(sizes, rows)
    shuffled = np.random.default_rng(_SEED).permutation(len(stratum))
    shuffled = shuffled[np.argsort(stratum[shuffled], kind="stable")]
    begins = np.cumsum(sizes) - sizes
    taken = [shuffled[begin : begin + share] for begin, share in zip(begins, shares, strict=True)]
    return np.sort(np.concatenate(taken))


def _shares(sizes: npt.NDArray[np.int64], rows: int) -> npt.NDArray[np.int64]:
    shares = np.zeros(len(sizes), dtype=np.int64)
    left, open_strata = rows, [place for place in range(len(sizes)) if sizes[place]]
    # The smallest first: what it does not need is divided among those that are left.
    for rank, place in enumerate(sorted(open_strata, key=lambda place: int(sizes[place]))):
        shares[place] = min(int(sizes[place]), left // (len(open_strata) - rank))
        left -= int(shares[place])
    return shares
