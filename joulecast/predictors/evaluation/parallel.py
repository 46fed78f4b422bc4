"""Runs independent fits in parallel, on the cores of this machine or on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ...progress import tracked
from ...system.cluster import call_on_workers, is_used

Result = TypeVar("Result")


def in_parallel(
    function: Callable[..., Result], calls: Sequence[tuple[Any, ...]], *, worthwhile: bool, what: str
) -> Iterator[Result]:
    """Call a function several times in parallel. The results are those of sequential calls, and in their order.

    Args:
        function: A function at the top level of a module. Each process uses one thread.
        calls: Arguments of each call.
        worthwhile: Whether processes on this machine are worth their start and a copy of the arguments. Workers of a
            cluster are used in any case.
        what: What is done by each call, for the bar on the terminal.
    """
    yield from tracked(_results(function, calls, worthwhile), what, total=len(calls))


def _results(function: Callable[..., Result], calls: Sequence[tuple[Any, ...]], worthwhile: bool) -> Iterator[Result]:
    if len(calls) > 1 and is_used():
        yield from call_on_workers(function, calls)
    elif len(calls) > 1 and worthwhile:
        # Imported here, because predicting does not need it.
        from joblib import Parallel, delayed

        parallel = Parallel(n_jobs=-1, inner_max_num_threads=1, return_as="generator")
        yield from parallel(delayed(function)(*arguments) for arguments in calls)
    else:
        for arguments in calls:
            yield function(*arguments)
