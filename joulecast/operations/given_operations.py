"""Checks of the operations that a user gives to be predicted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import InputError
from .operation import Operation


def mode_of(operations: Sequence[Operation]) -> str:
    """The mode that all operations share.

    Raises:
        InputError: There are operations of both modes, or none at all.
    """
    modes = sorted({operation.mode for operation in operations})
    if len(modes) != 1:
        raise InputError(
            "operations to predict share one mode",
            given=", ".join(modes) or "no operations",
            allowed="one operation or more, of one mode",
            hint="ask once for each mode",
        )
    return modes[0]


def checked_operations(operations: Iterable[Operation]) -> list[Operation]:
    """Check that all items are operations, and return them as a list.

    Raises:
        InputError: The value is not a list of operations.
    """
    listed = list(operations) if isinstance(operations, Iterable) and not isinstance(operations, str) else [operations]
    others = [each for each in listed if not isinstance(each, Operation)]
    if others or isinstance(operations, Operation):
        raise InputError(
            "operations are a list of joulecast.Operation",
            given=repr((others or listed)[0])[:200],
            allowed='such as [Operation("relu", [(32, 64, 56, 56)])]',
            hint="Operation.from_dict(...) makes one of a dictionary",
        )
    return listed
