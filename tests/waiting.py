"""Waiting for something that another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable

_PAUSE_S = 0.01  # between two looks, so that what is waited for has the processor


def until(claim: Callable[[], object], seconds: float = 120.0, otherwise: Callable[[], str] = str) -> None:
    """Return as soon as a claim holds.

    Args:
        claim: What is looked at again and again.
        seconds: Longest wait.
        otherwise: Text of the failure if the claim does not hold by then.
    """
    deadline_s = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline_s, otherwise()
        time.sleep(_PAUSE_S)
