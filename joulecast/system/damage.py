"""Turns the exceptions of parsers that read files into errors of joulecast, in one place for all files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import InputError, JoulecastError


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
