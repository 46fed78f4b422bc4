"""Limits the memory of this process while a library reads a file whose content may be of any size."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def limited_memory(more_bytes: int) -> Iterator[None]:
    """A context manager in which allocations beyond a limit raise MemoryError.

    On systems without such a limit (macOS, Windows) it has no effect.

    Args:
        more_bytes: Bytes that the process may allocate in addition to what it has at the start.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError, ValueError):
            import resource

            before, hard = resource.getrlimit(resource.RLIMIT_DATA)
            most = [used_bytes() + more_bytes, *(limit for limit in (before, hard) if limit != resource.RLIM_INFINITY)]
            resource.setrlimit(resource.RLIMIT_DATA, (min(most), hard))
            stack.callback(resource.setrlimit, resource.RLIMIT_DATA, (before, hard))
        yield


def used_bytes() -> int:
    """Bytes of this process that count against such a limit.

    Raises:
        OSError: The system does not report them.
    """
    used = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    return int(used[1]) * 1024 if used else 0
