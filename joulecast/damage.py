"""The one boundary of everything that is read from files: what a parser raises becomes an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import InputError, JoulecastError


@contextmanager
def refusing_damage(what: str, path: Path, error_class: type[JoulecastError] = InputError) -> Iterator[None]:
    """Turn any exception of a parser into an error of ours.

    Args:
        what: What is wrong, such as "this ONNX file cannot be read".
        path: The file that is read.
        error_class: Class of the error.
    """
    try:
        yield
    except (JoulecastError, MemoryError):
        raise
    except Exception as error:
        # Parsers of damaged bytes raise whatever their authors did not foresee, RecursionError among it.
        hint = f"{type(error).__name__}: {first_line(error)}"
        raise error_class(what, given=str(path), hint=hint) from error


def first_line(error: Exception) -> str:
    """The first line of what an error says, or the name of its class where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
