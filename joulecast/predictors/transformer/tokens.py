"""Turns an operation on a GPU into a short sequence of tokens, the input of a transformer.

There are six tokens, each with a role: how the operation runs (kind), its sizes as a batched product (batch, rows,
columns, reduction), and the features of boosted trees (physics). A token is a vector of numbers. All numbers that
depend on the GPU are relative to it and hold at its default clock, at which operations are measured (relative.py).
Ratios that are learned there are taken to hold at other clocks, where only the least time changes.

A size is encoded several times in its token: as a logarithm, as its position between powers of two (piecewise linear
encoding, Gorishniy et al., NeurIPS 2022, so that each octave can be learned separately), by how well it fills tiles,
and by its divisors. In a single training run, the positions between powers of two lowered the mean error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.kinds import KINDS
from ...operations.operation_list import OperationList
from ..physics.operation_numbers import numbers_of
from ..physics.relative import MACHINE_NAMES, RELATIVE_NAMES, relative_features
from ..physics.tiling import padded

_SIZES = ("batch", "rows", "columns", "reduction")
ROLES: tuple[str, ...] = ("kind", *_SIZES, "physics")
"""The roles of the tokens of an operation, in their order."""

# Features that stand in the token `kind` already, as vectors of the family and the kind.
_PHYSICS = [place for place, name in enumerate(RELATIVE_NAMES) if not name.startswith(("family_", "kind_"))]
PHYSICS_NAMES: tuple[str, ...] = tuple(RELATIVE_NAMES[place] for place in _PHYSICS)
"""Names of the numbers of the token `physics`: features of relative.py, scaled by units that training determines."""

MACHINE = [PHYSICS_NAMES.index(name) for name in MACHINE_NAMES]
"""Places of the numbers of the token `physics` that describe the GPU."""

# These features are not logarithms, and differ between operations by factors of a thousand.
_NO_LOGARITHMS = [place for place, name in enumerate(PHYSICS_NAMES) if not name.startswith("log_")]

WIDTH = max(34, len(PHYSICS_NAMES))
"""Numbers per token; the numbers that a role does not use are zero."""

UNKNOWN = ""
"""The first kind of every vocabulary, which stands for all kinds that were not in the training data."""

_FILLS = (32, 64, 128)
_DIVISORS = (2, 4, 8, 16, 32, 64, 128)


class Tokens(NamedTuple):
    """Operations on one GPU as tokens.

    Args:
        values: The tokens of each operation, shape (operations, len(ROLES), WIDTH).
        families: Index of each operation's family in FAMILIES, shape (operations,).
        kinds: Index of each operation's kind in a vocabulary, shape (operations,).
    """

    values: NDArray[np.float32]
    families: NDArray[np.int64]
    kinds: NDArray[np.int64]


def tokens(operations: OperationList, gpu: GPU, vocabulary: Sequence[str]) -> Tokens:
    """Describe operations on a GPU.

    The vocabulary has the kinds with vectors of their own, UNKNOWN first. Raises InputError: the GPU does not support
    the precision of an operation.
    """
    n = numbers_of(operations)
    values = np.zeros((len(operations), len(ROLES), WIDTH), dtype=np.float32)
    for place, name in enumerate(_SIZES, 1):
        size = _one_size(getattr(n, name))
        values[:, place, : size.shape[1]] = size
    seen = relative_features(operations, gpu)[:, _PHYSICS]
    seen[:, _NO_LOGARITHMS] = np.arcsinh(seen[:, _NO_LOGARITHMS])
    values[:, -1, : len(PHYSICS_NAMES)] = seen
    known = {kind: place for place, kind in enumerate(vocabulary)}
    places = np.array([known.get(kind, 0) for kind in KINDS], dtype=np.int64)
    return Tokens(values, n.family.astype(np.int64), places[n.kind.astype(np.int64)])


def _one_size(n: FloatArray) -> FloatArray:
    octave = np.log2(n)
    # Only the two powers of two next to a size have weights above zero: 2^2.25 gives 0.75 for 4 and 0.25 for 8.
    between = np.maximum(0.0, 1 - np.abs(np.minimum(octave, 20)[:, None] - np.arange(21)))
    return np.column_stack(
        [
            between,
            octave / 6,
            n / 2 ** np.ceil(octave),
            *(n / padded(n, tile) for tile in _FILLS),
            *(n % divisor == 0 for divisor in _DIVISORS),
        ]
    )
