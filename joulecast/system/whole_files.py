"""Writes files atomically: readers never see an incomplete file, and none is left behind on a full disk. Locks."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A context manager that yields a temporary path in the folder of `path`, and renames it to `path` at the end.

    If the block raises an error, the temporary file is removed, and `path` stays as it was.

    Args:
        path: Path of the finished file. Its folder must exist.

    Raises:
        OSError: The file cannot be renamed.
    """
    unfinished = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}")
    try:
        yield unfinished
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """A context manager that only one process at a time can be in. The others wait, and a kill ends the lock.

    Args:
        path: Path of the file that is locked, which is created where there is none. Its folder must exist.

    Raises:
        OSError: The file cannot be created.
    """
    with path.open("w") as file:
        try:
            import fcntl
        except ImportError:  # On Windows there is no lock, and the last write counts.
            pass
        else:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
