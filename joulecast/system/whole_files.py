"""Writes files atomically: readers never see an incomplete file, and none is left behind on a full disk. Locks."""

from __future__ import annotations

import ctypes
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import RawIOBase
from pathlib import Path
from typing import IO, Any


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`, and rename it to `path` at the end.

    If the block raises an error, the temporary file is removed, and `path` stays as it was.
    """
    if path.is_char_device() or path.parent == Path("/dev"):  # Such as /dev/stdout, which must not be replaced.
        yield path
        return
    unfinished = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}")
    try:
        yield unfinished
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def append_whole(file: RawIOBase, data: bytes) -> None:
    """Append data to a file without a buffer, and return when they are on disk. Raises OSError: nothing was added."""
    end = file.seek(0, os.SEEK_END)
    try:
        while data:
            data = data[file.write(data) :]
        os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            file.truncate(end)
        raise


_AT_FDCWD = -100  # /usr/include/linux/fcntl.h: paths are relative to the working folder
_RENAME_EXCHANGE = 2  # /usr/include/linux/fs.h


def exchanged(first: Path, second: Path) -> bool:
    """Exchange two files or folders in one step, so that a kill leaves each of them whole at one of the two paths.

    It is False where the system or the file system cannot do that, and nothing was changed.
    """
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    paths = (_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second))
    return rename is not None and not rename(*paths, ctypes.c_uint(_RENAME_EXCHANGE))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """A context manager that only one process at a time can be in. The others wait, and a kill ends the lock.

    The file that is locked is created where there is none.
    """
    with path.open("w") as file:
        lock(file)
        yield


def lock(file: IO[Any], *, wait: bool = True) -> bool:
    """Lock an open file until it is closed, or its process ends. Windows has no such lock, and the last write counts.

    Returns:
        Whether it is locked now; False if another process has locked it and this one does not wait.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
