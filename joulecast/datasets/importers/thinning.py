"""Samples rows of a table: every part of it is represented, and the choice is always the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_SEED = 2026


def thinned(stratum: npt.NDArray[Any], rows: int | None) -> npt.NDArray[np.int64]:
    """Indices of the rows to take, ascending.

    Strata share the rows evenly. What a small stratum does not use is shared by the others.

    Args:
        stratum: Number of each row's stratum, from 0.
        rows: Total number of rows to take; None for every row.
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
    # The smallest stratum comes first, so that what it does not use is shared by the rest.
    for rank, place in enumerate(sorted(open_strata, key=lambda place: int(sizes[place]))):
        shares[place] = min(int(sizes[place]), left // (len(open_strata) - rank))
        left -= int(shares[place])
    return shares
