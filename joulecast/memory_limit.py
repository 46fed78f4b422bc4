"""A limit on the memory of this process, for a while: what a library reads from a file may be of any size."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def limited_memory(more_bytes: int) -> Iterator[None]:
    """Refuse this process more memory than it has now and so many bytes; what asks for more gets a MemoryError.

    Where the system knows no such limit (macOS, Windows) there is none.

    Args:
        more_bytes: Beside what the process has when this begins.
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
    """Memory of this process that counts against such a limit.

    Raises:
        OSError: The system does not tell.
    """
    used = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    return int(used[1]) * 1024 if used else 0
