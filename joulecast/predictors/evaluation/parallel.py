"""Runs independent fits in parallel on the cores of this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...progress import tracked

Result = TypeVar("Result")


def in_parallel(
    function: Callable[..., Result], calls: Sequence[tuple[Any, ...]], *, worthwhile: bool, what: str
) -> list[Result]:
    """Call a function several times in parallel. The results are those of sequential calls, and in their order.

    Args:
        function: A function at the top level of a module. Each process uses one thread.
        calls: Arguments of each call.
        worthwhile: Whether processes are worth their start and a copy of the arguments.
        what: What is done by each call, for the bar on the terminal.
    """
    if not worthwhile or len(calls) < 2:
        return [function(*arguments) for arguments in tracked(calls, what)]
    # Imported here, because predicting does not need it.
    from joblib import Parallel, delayed

    parallel = Parallel(n_jobs=-1, inner_max_num_threads=1, return_as="generator")
    return list(tracked(parallel(delayed(function)(*each) for each in calls), what, total=len(calls)))
