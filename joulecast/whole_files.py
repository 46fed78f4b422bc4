"""Writing files whole or not at all: no reader sees half of one, and none is left where the disk is full."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path beside `path` to write a file to, which takes the place of `path` when the block ends in order.

    Args:
        path: Where the file belongs. Its folder must be there.

    Raises:
        OSError: It cannot be moved into place.
    """
    unfinished = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}")
    try:
        yield unfinished
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
