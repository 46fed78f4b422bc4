"""The one error tree: what is wrong, the value given, the values allowed, the next step.

The command line maps a class to an exit code and the service will map it to a status, so a new class is
needed only where a caller would act differently.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LISTED = 12


class JoulecastError(Exception):
    """Base of every error that a user of joulecast can cause.

    The message is put together from its four parts, each on a line of its own.
    """

    exit_code = 1

    def __init__(self, what: str, *, given: object = None, allowed: object = None, hint: str | None = None) -> None:
        self.what = what
        self.given = given
        self.allowed = allowed
        self.hint = hint
        lines = [what]
        if given is not None:
            lines.append(f"given:   {given}")
        if allowed is not None:
            lines.append(f"allowed: {allowed}")
        if hint is not None:
            lines.append(f"next:    {hint}")
        super().__init__("\n".join(lines))


class InputError(JoulecastError, ValueError):
    """A value outside what is allowed: a shape, a clock, an attribute, an option."""

    exit_code = 2


class UnknownNameError(InputError):
    """A model, GPU, kind, precision or predictor that does not exist under that name."""


class ExtractionError(JoulecastError):
    """The operations of a model could not be read off it."""

    exit_code = 3


class DatasetError(JoulecastError):
    """A dataset is damaged, of another version, or holds impossible measurements."""

    exit_code = 4


class ZooError(JoulecastError):
    """A zoo entry is missing, damaged, changed, or of another format version."""

    exit_code = 5


class UncoveredError(JoulecastError):
    """A strict prediction met operations that the predictor cannot cost."""

    exit_code = 6


class MissingDependencyError(JoulecastError, ImportError):
    """An optional dependency is needed and not installed."""

    exit_code = 7


def unknown_name(what: str, given: object, known: Iterable[str], *, hint: str | None = None) -> UnknownNameError:
    """Build the error for a name that is not in `known`, suggesting the closest ones."""
    names = sorted(known)
    # Case folded, or "ResNet50" would be far from "resnet50".
    folded = {name.lower(): name for name in reversed(names)}
    close = [folded[match] for match in difflib.get_close_matches(str(given).lower(), list(folded), n=3, cutoff=0.5)]
    shown = ", ".join(names[:_LISTED]) + (f", ... ({len(names)} in all)" if len(names) > _LISTED else "")
    if close:
        suggestion = f"did you mean {' or '.join(close)}?"
        hint = f"{suggestion} {hint}" if hint else suggestion
    return UnknownNameError(f"unknown {what}", given=repr(given), allowed=shown or "none", hint=hint)
