"""Writes files atomically: readers never see an incomplete file, and none is left behind on a full disk."""

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
