"""Opens regular files only. A path from a user may also name a pipe or a device, which could block or never end."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from .damage import unreadable
from .errors import InputError

MOST_BYTES = 1 << 20
"""Largest size of a file that is written by hand: a recipe, a campaign, a GPU."""


def open_regular(path: Path, what: str = "this file") -> BinaryIO:
    """Open a regular file for reading in binary.

    Args:
        path: Path of the file.
        what: Name of the file in error messages.

    Raises:
        InputError: The file cannot be opened, or is a folder, a pipe or a device.
    """
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:  # ValueError if the name contains a NUL character.
        raise unreadable(f"{what} cannot be read", path, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(
            f"{what} cannot be read", given=str(path), allowed="a regular file", hint="copy its content into one"
        )
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, most_bytes: int, what: str = "this file") -> bytes:
    """The content of a regular file.

    Args:
        path: Path of the file.
        most_bytes: Largest size that is read.
        what: Name of the file in error messages.

    Raises:
        InputError: The file cannot be read, or is larger than `most_bytes`.
    """
    with open_regular(path, what) as file:
        try:
            # read(n) allocates n bytes at once, so n is not larger than the file.
            data = file.read(min(most_bytes, os.fstat(file.fileno()).st_size) + 1)
        except OSError as error:
            raise unreadable(f"{what} cannot be read", path, error) from error
    if len(data) > most_bytes:
        raise InputError(f"{what} is too large", given=str(path), allowed=f"up to {most_bytes:,} bytes")
    return data
