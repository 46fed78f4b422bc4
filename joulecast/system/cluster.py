"""A Dask cluster: how to connect to it, and calls of functions on its workers or on this machine's cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import InputError, needing, with_extra
from ..progress import tracked

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy import Cluster

Result = TypeVar("Result")

_CONNECT_S = 10.0  # for a scheduler to answer, and for its first worker to come
_USED: ContextVar[Client | None] = ContextVar("the cluster that is used", default=None)


def connect(cluster: str | Cluster) -> Client:
    """A connection to the scheduler of a cluster, by its address, such as tcp://host:8786, or the cluster itself.

    Raises:
        InputError: No scheduler answers, or TLS is not set up.
        MissingDependencyError: Dask is not installed.
    """
    with needing("a cluster needs Dask", with_extra("cluster")):
        import dask
        from distributed import Client
    if isinstance(cluster, str) and cluster.startswith("tls:") and not dask.config.get("distributed.comm.tls.ca-file"):
        raise InputError(
            "TLS needs the certificates of the cluster",
            given=cluster,
            allowed="the files that Dask's configuration names in distributed.comm.tls",
            hint="let DASK_CONFIG name the file with it; docs/cluster.md has an example",
        )
    try:
        return Client(cluster, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            "no Dask scheduler answers at this address",
            given=cluster,
            allowed="tcp://HOST:PORT or tls://HOST:PORT, as `dask scheduler` prints it",
            hint="start one, or check host, port and firewall",
        ) from error


@contextmanager
def on_cluster(address: str | None) -> Iterator[None]:
    """Within this context, `call_on_workers` uses the workers of the scheduler at an address; None for no cluster.

    Raises:
        InputError: No scheduler answers, it has no workers, or a worker has another version of joulecast.
        MissingDependencyError: Dask or joblib is not installed.
    """
    if address is None:
        yield
        return
    from .. import __version__

    with connect(address) as client:
        try:
            client.wait_for_workers(1, timeout=_CONNECT_S)
        except TimeoutError as error:
            raise InputError(
                "this cluster has no workers",
                given=address,
                allowed="at least one worker",
                hint="start some by `dask worker` on its machines",
            ) from error
        # Workers of another version would give other results.
        if others := {version for version in client.run(_version).values() if version != __version__}:
            raise InputError(
                "workers of this cluster have another version of joulecast",
                given=", ".join(sorted(others)),
                allowed=__version__,
                hint="install the same version on all machines of the cluster",
            )
        used = _USED.set(client)
        try:
            yield
        finally:
            _USED.reset(used)


def is_used() -> bool:
    """Whether this is within a context of `on_cluster` that has a cluster."""
    return _USED.get() is not None


def call_on_workers(function: Callable[..., Result], calls: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
    """Call a function on the workers, several times at once. The results come in the order of the calls.

    The function stands at the top level of a module, and gives the same if it is called again, because the calls of a
    worker that is lost are made again by another. Arguments are read when they are needed, so there may be many.
    """
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(backend="dask", client=_USED.get()):
        parallel = Parallel(n_jobs=-1, return_as="generator", batch_size=1)
    # Outside of this context, or scikit-learn would use the workers for parts of a fit in this process.
    yield from parallel(delayed(_alone)(function, *arguments) for arguments in calls)


def _alone(function: Callable[..., Result], *arguments: Any) -> Result:
    """A call that computes in one thread of this worker, so that its last bits do not depend on the worker's cores."""
    from joblib import parallel_config
    from threadpoolctl import threadpool_limits

    # Otherwise scikit-learn would send parts of each fit to other workers.
    with parallel_config(backend="sequential"), threadpool_limits(1):
        return function(*arguments)


def _version() -> str:
    """The version of joulecast on a worker; "none" where it is not installed."""
    try:
        import joulecast
    except ImportError:
        return "none"
    return joulecast.__version__


def in_parallel(
    function: Callable[..., Result], calls: Sequence[tuple[Any, ...]], *, worthwhile: bool, what: str
) -> Iterator[Result]:
    """Call a function several times in parallel. The results are those of sequential calls, and in their order.

    The function stands at the top level of a module; each process uses one thread. `worthwhile` says whether processes
    on this machine are worth their start and a copy of the arguments; workers of a cluster are used in any case. `what`
    is done by each call, for the bar on the terminal.
    """
    results: Iterable[Result] = (function(*arguments) for arguments in calls)
    if len(calls) > 1 and is_used():
        results = call_on_workers(function, calls)
    elif len(calls) > 1 and worthwhile:
        # Imported here, because predicting does not need it.
        from joblib import Parallel, delayed

        parallel = Parallel(n_jobs=-1, inner_max_num_threads=1, return_as="generator")
        results = parallel(delayed(function)(*arguments) for arguments in calls)
    yield from tracked(results, what, total=len(calls))
