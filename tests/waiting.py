"""Waiting for something that another process or thread does."""

import time
from collections.abc import Callable

_PAUSE_S = (0.01, 0.25)
"""Least and longest pause between two checks, in which the process that is waited for can run."""


def until(claim: Callable[[], object], seconds: float = 300.0, otherwise: Callable[[], str] = str) -> None:
    """Return as soon as a claim holds, and fail if it does not hold in time.

    Args:
        claim: The claim, which is checked again and again.
        seconds: Longest wait. It is long, because a busy machine may take a hundred times as long as an idle one.
        otherwise: Gives the message of the failure.
    """
    deadline_s = (began_s := time.monotonic()) + seconds
    while not claim():
        now_s = time.monotonic()
        assert now_s < deadline_s, otherwise()
        # A claim that asks a server is checked less often, or asking would take the time of the answer.
        time.sleep(min(max(_PAUSE_S[0], 4 * (now_s - began_s)), _PAUSE_S[1]))
        began_s = time.monotonic()
