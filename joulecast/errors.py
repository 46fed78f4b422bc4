"""Every error that a user of joulecast can cause: what is wrong, the value given, the values allowed, the next step.

The command line ends with the exit code of the class. The service names the class in the type of a problem (RFC 9457),
and the client raises the same class again. A new class is needed only where a caller would act differently.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

_LISTED = 12
_LONGEST = 4000  # characters of a value in a message

Row = TypeVar("Row")

PROBLEM_PREFIX = "urn:joulecast:problem:"
"""Prefix of the type of a problem; the class's `problem` follows."""

ERRORS_BY_PROBLEM: dict[str, type[JoulecastError]] = {}
"""Name of a problem -> the error that a client raises for it; a client raises ServiceError for all others."""


class JoulecastError(Exception):
    """Base of every error that a user of joulecast can cause.

    The message is put together from its four parts, each on a line of its own.

    Args:
        what: What is wrong, in one sentence.
        given: The value that was given; None where there is none to show.
        allowed: The values that are allowed, in words.
        hint: What to do next.
    """

    exit_code: ClassVar[int] = 1
    problem: str = "refused"

    def __init_subclass__(cls, *, exit_code: int | None = None, problem: str | None = None) -> None:
        """Give a class its exit code, and the name of its problem over HTTP, or those of its base."""
        if exit_code is not None:
            cls.exit_code = exit_code
        if problem is not None:
            cls.problem, ERRORS_BY_PROBLEM[problem] = problem, cls

    def __init__(self, what: str, *, given: object = None, allowed: object = None, hint: str | None = None) -> None:
        self.what = what
        self.given = given
        self.allowed = allowed
        self.hint = hint
        lines = [what]
        if given is not None:
            lines.append(f"given:   {_shortened(given)}")
        if allowed is not None:
            lines.append(f"allowed: {allowed}")
        if hint is not None:
            lines.append(f"next:    {hint}")
        super().__init__(printable("\n".join(lines), keep="\n"))


def printable(text: str, keep: str = "") -> str:
    """A text with escapes in place of what no terminal, table or XML should get from a stranger.

    These are control characters but those to `keep`, halves of characters, and what changes the direction of writing.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


class InputError(JoulecastError, ValueError, exit_code=2, problem="input"):
    """A value outside what is allowed: a shape, a clock, an attribute, an option."""


class UnknownNameError(InputError, problem="unknown-name"):
    """A model, GPU, kind, precision or predictor that does not exist under that name."""


class ExtractionError(JoulecastError, exit_code=3, problem="extraction"):
    """The operations of a model could not be found."""


class DatasetError(JoulecastError, exit_code=4, problem="dataset"):
    """A dataset is damaged, of another version, or holds impossible measurements."""


class ZooError(JoulecastError, exit_code=5, problem="zoo"):
    """A zoo entry is missing, damaged, changed, or of another format version."""


class UncoveredError(JoulecastError, exit_code=6, problem="uncovered"):
    """A strict prediction contains operations that the predictor does not cover."""


class MissingDependencyError(JoulecastError, ImportError, exit_code=7, problem="missing-dependency"):
    """An optional dependency is needed and not installed."""


class ServiceError(JoulecastError, exit_code=8):
    """The service cannot be reached, refuses, or is at its limits.

    Args:
        what: What is wrong, in one sentence.
        status: Status of the HTTP response; None where there was no answer.
        parts: The other parts of the message, see `JoulecastError`.
    """

    def __init__(self, what: str, *, status: int | None = None, **parts: Any) -> None:
        super().__init__(what, **parts)
        self.status = status


class JournalError(JoulecastError, exit_code=9):
    """The journal of a campaign cannot be used, or the disk is full."""


class SensorError(JoulecastError, exit_code=10):
    """A power sensor cannot be opened, or was lost."""


class DeviceError(JoulecastError, exit_code=11):
    """The device cannot continue the measurements."""


class ClockError(JoulecastError, exit_code=12):
    """A GPU's clock cannot be locked or reset."""


class TrackingError(JoulecastError, exit_code=13):
    """The MLflow server or store cannot be reached, refuses, or lacks what was asked for."""


class RefusalError(JoulecastError, exit_code=14):
    """A refusal that only a service makes: of a request that is too large, takes too long or lacks its token.

    A client raises it as a ServiceError.

    Args:
        status: Status of the HTTP response.
        problem: Name of the problem in the response.
        what: What is wrong, in one sentence.
        retry_after_s: Seconds after which the same request may succeed; None where waiting does not help.
        parts: The other parts of the message, see `JoulecastError`.
    """

    def __init__(self, status: int, problem: str, what: str, *, retry_after_s: int | None = None, **parts: Any) -> None:
        super().__init__(what, **parts)
        self.status = status
        self.problem = problem
        self.headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}


class BudgetError(JoulecastError, exit_code=15):
    """A prediction is over the budget that a review set."""


def with_extra(extra: str) -> str:
    """The next step where packages are missing: how to install joulecast with an extra of pyproject.toml.

    joulecast is installed from its folder or a wheel, since it is on no package index yet.
    """
    return f"in the folder of joulecast, pip install '.[{extra}]'; from a wheel, pip install 'FILE.whl[{extra}]'"


@contextmanager
def needing(what: str, hint: str, *, given: object = None) -> Iterator[None]:
    """Import an optional library inside. Raises MissingDependencyError: it is not installed."""
    try:
        yield
    except ImportError as error:
        raise MissingDependencyError(what, given=given, hint=hint) from error


def _shortened(value: object, text: Callable[[object], str] = str) -> str:
    """A value as text of limited length, whatever it is."""
    try:
        written = text(value)
    except (ValueError, RecursionError):  # an integer of over 4,300 digits, or a list that contains itself
        return f"a value of the type {type(value).__name__} that is too long to print"
    return written if len(written) <= _LONGEST else f"{written[:_LONGEST]} ... ({len(written):,} characters)"


def unknown_name(what: str, given: object, known: Iterable[str], *, hint: str | None = None) -> UnknownNameError:
    """Build the error for a name that is not in `known`, suggesting the closest ones."""
    names = sorted(known)
    # Case folded, or "ResNet50" would be far from "resnet50".
    folded = {name.lower(): name for name in reversed(names)}
    close = [
        folded[match]
        for match in difflib.get_close_matches(_shortened(given)[:200].lower(), list(folded), n=3, cutoff=0.5)
    ]
    shown = ", ".join(names[:_LISTED]) + (f", ... ({len(names)} in all)" if len(names) > _LISTED else "")
    if close:
        suggestion = f"did you mean {' or '.join(close)}?"
        hint = f"{suggestion} {hint}" if hint else suggestion
    elif names and not hint:
        hint = "give one of these"
    return UnknownNameError(f"unknown {what}", given=_shortened(given, repr)[:200], allowed=shown or "none", hint=hint)


def named(what: str, name: object, table: Mapping[str, Row], *, hint: str | None = None) -> Row:
    """The row of a table with a name that a user gave, which may be of any type.

    Args:
        what: What the name is one of, such as "engine".
        name: The name.
        table: Name -> row.
        hint: The next step of the user.

    Raises:
        UnknownNameError: The table has no row of this name.
    """
    if not isinstance(name, str) or name not in table:
        raise unknown_name(what, name, table, hint=hint)
    return table[name]


def located(error: InputError, place: str) -> InputError:
    """Build an error that also says where the wrong value is, such as "operation 3 of resnet50: unknown precision"."""
    return InputError(f"{place}: {error.what}", given=error.given, allowed=error.allowed, hint=error.hint)


def damaged_entry(what: str, given: object, allowed: object = None) -> ZooError:
    """Build the error for a zoo entry with a part that is missing, damaged or does not match the others."""
    return ZooError(what, given=given, allowed=allowed, hint="pull the entry again, or train it again")


def damaged_zoo(what: str, given: object, allowed: object = None) -> ZooError:
    """Build the error for a place that entries are pulled from, and whose content is damaged or not allowed."""
    return ZooError(what, given=given, allowed=allowed, hint="get this zoo again from where it came, or ask its owner")
