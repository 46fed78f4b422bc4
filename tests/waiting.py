"""Waiting for something that another process or thread does."""

import time
from collections.abc import Callable

_PAUSE_S = 0.01
"""Pause between two checks, in which the process that is waited for can run."""


def until(claim: Callable[[], object], seconds: float = 300.0, otherwise: Callable[[], str] = str) -> None:
    """Return as soon as a claim holds, and fail if it does not hold in time.

    Args:
        claim: The claim, which is checked again and again.
        seconds: Longest wait. It is long, because a busy machine may take a hundred times as long as an idle one.
        otherwise: Gives the message of the failure.
    """
    deadline_s = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline_s, otherwise()
        time.sleep(_PAUSE_S)
