"""Reads files from outside within limits, whatever they contain.

A path from a user may also name a pipe or a device, which could block or never end, so only regular files are opened. A
small file may unpack to any size, and a sparse one may be larger than the disk, so every reader has a limit in bytes.
Whatever a parser raises becomes an error of joulecast, in one place for all files.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import InputError, JoulecastError

MOST_BYTES = 1 << 20
"""Largest size of a file that is written by hand: a recipe, a campaign, a GPU."""

MOST_JSON_BYTES = 32 << 20
"""Largest size of a network or of a model's configuration."""


@contextmanager
def refusing_damage(what: str, path: Path, error_class: type[JoulecastError] = InputError) -> Iterator[None]:
    """Turn any exception of a parser into an error of this class with the message `what`."""
    try:
        yield
    except (JoulecastError, MemoryError):
        raise
    except Exception as error:
        # On damaged bytes, parsers may raise exceptions of any class, even RecursionError.
        raise unreadable(what, path, error, error_class) from error


def unreadable(
    what: str, path: Path, error: Exception, error_class: type[JoulecastError] = InputError
) -> JoulecastError:
    """Build the error for a file that cannot be opened, or whose content is not what it should be."""
    if isinstance(error, OSError):
        cause = error.strerror or first_line(error)
        hint = "name a path that exists and that this user may use"
    else:
        cause = f"{type(error).__name__}: {first_line(error)}"
        hint = "mend the file, or get it again from where it came"
    return error_class(what, given=f"{path}: {cause}", hint=hint)


def first_line(error: Exception) -> str:
    """The first line of an error's message, or the name of its class if it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]


def is_file(path: Path) -> bool:
    """Whether there is a file at a path; there is none where the path is too long or contains a NUL."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def open_regular(
    path: Path, what: str = "this file", error_class: type[JoulecastError] = InputError, *, follow_links: bool = True
) -> BinaryIO:
    """Open a regular file for reading in binary.

    Raises an error: it cannot be opened, or is a folder, a pipe or a device, or a link that is not to be followed.
    """
    # Without O_NONBLOCK, opening a pipe would wait for a writer. Windows has none of these flags but the last.
    flags = ["O_NONBLOCK", "O_BINARY", *([] if follow_links else ["O_NOFOLLOW"])]
    try:
        descriptor = os.open(path, sum((getattr(os, flag, 0) for flag in flags), os.O_RDONLY))
    except (OSError, ValueError) as error:  # ValueError if the name contains a NUL character.
        raise unreadable(f"{what} cannot be read", path, error, error_class) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise error_class(
            f"{what} cannot be read", given=str(path), allowed="a regular file", hint="copy its content into one"
        )
    return os.fdopen(descriptor, "rb")


def read_regular(
    path: Path,
    most_bytes: int,
    what: str = "this file",
    error_class: type[JoulecastError] = InputError,
    *,
    follow_links: bool = True,
) -> bytes:
    """The content of a regular file. Raises an error: it cannot be read, or is larger than `most_bytes`."""
    with open_regular(path, what, error_class, follow_links=follow_links) as file:
        try:
            # read(n) allocates n bytes at once, so n is not larger than the file.
            data = file.read(min(most_bytes, os.fstat(file.fileno()).st_size) + 1)
        except OSError as error:
            raise unreadable(f"{what} cannot be read", path, error, error_class) from error
    if len(data) > most_bytes:
        raise _too_large(what, path, most_bytes, error_class)
    return data


def lines(path: Path, most_bytes: int, most_line_bytes: int, what: str) -> Iterator[bytes]:
    """The lines of a regular file, with their ends.

    Raises InputError: it cannot be read, or it or a line is too large.
    """
    with open_regular(path, what) as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise _too_large(what, path, most_bytes)
        try:
            while line := file.readline(most_line_bytes + 1):
                if len(line) > most_line_bytes:
                    raise _too_large(f"a line of {what}", path, most_line_bytes)
                yield line
        except OSError as error:
            raise unreadable(f"{what} cannot be read", path, error) from error


def read_json(path: Path, most_bytes: int, what: str, error_class: type[JoulecastError] = InputError) -> Any:
    """The content of a file with JSON, within a limit on its size and without NaN and infinities.

    Raises an error: the file cannot be read, is too large, or is not JSON.
    """
    data = read_regular(path, most_bytes, what, error_class)
    try:
        return loaded_json(data)
    except (ValueError, RecursionError) as error:
        raise unreadable(f"{what} cannot be read: it is not valid JSON", path, error, error_class) from error


def loaded_json(data: str | bytes) -> Any:
    """Parse JSON. Raises ValueError, RecursionError: it is not valid, or has NaN or an infinity."""
    return json.loads(data, parse_constant=_finite, parse_float=_finite)


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is not a number that JSON may contain")
    return value


def _too_large(
    what: str, path: Path, most_bytes: int, error_class: type[JoulecastError] = InputError
) -> JoulecastError:
    """The error for a file, or a part of it, with more in it than may be read."""
    allowed, hint = f"up to {most_bytes:,} bytes", "divide it into several files"
    return error_class(f"{what} is too large", given=str(path), allowed=allowed, hint=hint)
