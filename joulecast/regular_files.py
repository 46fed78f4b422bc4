"""Opening files that may be anything. A pipe or a device could hang or never end, so only regular files are opened."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from .errors import InputError

MOST_BYTES = 1 << 20
"""Size of a file that somebody wrote by hand: a recipe, a campaign, a GPU."""


def open_regular(path: Path, what: str = "this file") -> BinaryIO:
    """Open a regular file for reading in binary; `what` is how messages call it.

    Raises:
        InputError: It cannot be opened, or is a folder, a pipe or a device.
    """
    try:
        # A pipe that nobody writes to would block this call otherwise.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:  # a ValueError where the name contains a NUL
        raise InputError(f"{what} cannot be read", given=str(path), hint=_reason(error)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(
            f"{what} cannot be read", given=str(path), allowed="a regular file", hint="copy its content into one"
        )
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, most_bytes: int, what: str = "this file") -> bytes:
    """The content of a regular file; `what` is how messages call it.

    Raises:
        InputError: It cannot be read, or is larger than `most_bytes`.
    """
    with open_regular(path, what) as file:
        try:
            # Room for what is read is taken first; a file that grows meanwhile is cut off.
            data = file.read(min(most_bytes, os.fstat(file.fileno()).st_size) + 1)
        except OSError as error:
            raise InputError(f"{what} cannot be read", given=str(path), hint=_reason(error)) from error
    if len(data) > most_bytes:
        raise InputError(f"{what} is too large", given=str(path), allowed=f"up to {most_bytes:,} bytes")
    return data


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
