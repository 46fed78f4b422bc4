"""Split conformal prediction (Lei et al., JASA 2018).

Take the k-th smallest of n absolute errors as the half width, with k = ceil((n + 1) x level). Then a share `level` of
new cases like those lies within.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...arrays import FloatArray
from ...errors import InputError


def require_level(level: float) -> None:
    """Require that the level of an interval, the share of cases that lie within, is between 0 and 1.

    Raises:
        InputError: It is not.
    """
    if not 0 < level < 1:
        raise InputError("the level of an interval lies between 0 and 1", given=level, allowed="such as 0.9")


def conformal_rank(level: float, count: int) -> int:
    """Rank of the error, of `count` sorted ones, that covers a share `level` of new cases; above `count` if none does.

    Raises:
        InputError: The level is not between 0 and 1.
    """
    require_level(level)
    return math.ceil((count + 1) * level - 1e-9)


def conformal_error(errors: Sequence[float] | FloatArray, level: float, of_what: str) -> float:
    """The half width that covers a share `level`, out of sorted absolute errors.

    Raises:
        InputError: The level is not between 0 and 1, or too high for so few errors.
    """
    rank = conformal_rank(level, len(errors))
    if rank > len(errors):
        raise InputError(
            f"{len(errors)} {of_what} cannot support such an interval",
            given=level,
            allowed=f"up to {len(errors) / (len(errors) + 1):.3f}",
        )
    return float(errors[rank - 1])
