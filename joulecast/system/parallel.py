"""Calls of functions in parallel, on the cores of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ..progress import tracked

Result = TypeVar("Result")


def in_parallel(
    function: Callable[..., Result], calls: Sequence[tuple[Any, ...]], *, worthwhile: bool, what: str
) -> Iterator[Result]:
    """Call a function several times in parallel. The results are those of sequential calls, and in their order.

    The function stands at the top level of a module; each process uses one thread. `worthwhile` says whether processes
    are worth their start and a copy of the arguments. `what` is done by each call, for the bar on the terminal.
    """
    yield from tracked(_results(function, calls, worthwhile), what, total=len(calls))


def _results(function: Callable[..., Result], calls: Sequence[tuple[Any, ...]], worthwhile: bool) -> Iterator[Result]:
    if len(calls) > 1 and worthwhile:
        # Imported here, because predicting does not need it.
        from joblib import Parallel, delayed

        parallel = Parallel(n_jobs=-1, inner_max_num_threads=1, return_as="generator")
        yield from parallel(delayed(function)(*arguments) for arguments in calls)
    else:
        for arguments in calls:
            yield function(*arguments)
