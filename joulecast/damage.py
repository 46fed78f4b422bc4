"""Turns the exceptions of parsers that read files into errors of joulecast, in one place for all files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import InputError, JoulecastError


@contextmanager
def refusing_damage(what: str, path: Path, error_class: type[JoulecastError] = InputError) -> Iterator[None]:
    """A context manager that turns any exception of a parser into an error of joulecast.

    Args:
        what: Message of the error, such as "this ONNX file cannot be read".
        path: Path of the file.
        error_class: Class of the error.
    """
    try:
        yield
    except (JoulecastError, MemoryError):
        raise
    except Exception as error:
        # On damaged bytes, parsers may raise exceptions of any class, even RecursionError.
        hint = f"{type(error).__name__}: {first_line(error)}"
        raise error_class(what, given=str(path), hint=hint) from error


def first_line(error: Exception) -> str:
    """The first line of an error's message, or the name of its class if it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
