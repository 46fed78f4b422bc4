"""Errors as application/problem+json (RFC 9457), with the four parts of the library's errors."""

from __future__ import annotations

import json
import re
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.responses import Response

from ..checked import shown
from ..errors import PROBLEM_PREFIX, DatasetError, JoulecastError, RefusalError, ZooError

MEDIA_TYPE = "application/problem+json"


# Errors of the service itself. All other errors are caused by the request.
_OURS = (DatasetError, ZooError)


def problem_response(error: JoulecastError, request_id: str | None = None, **changed: Any) -> Response:
    """The response for an error. `changed` replaces parts of the problem, such as its status."""
    status = error.status if isinstance(error, RefusalError) else 503 if isinstance(error, _OURS) else 422
    problem = {
        "type": PROBLEM_PREFIX + error.problem,
        "title": error.what,
        "status": status,
        "detail": str(error),
        "given": None if error.given is None else str(error.given),
        "allowed": None if error.allowed is None else str(error.allowed),
        "hint": error.hint,
        **changed,
    }
    if request_id is not None:
        problem["instance"] = f"urn:joulecast:request:{request_id}"
    headers = error.headers if isinstance(error, RefusalError) else {}
    return Response(json.dumps(problem), problem["status"], headers, MEDIA_TYPE)


def refuse_over(what: str, given: float, most: int) -> None:
    """Refuse what exceeds a limit of the service. Raises RefusalError: it does."""
    if given > most:
        raise RefusalError(413, "too-large", what, given=given, allowed=f"up to {most}", hint="split it")


def busy(what: str, given: object, allowed: object) -> RefusalError:
    """The error for a request that finds too many others waiting."""
    hint = "try again in a second"
    return RefusalError(429, "busy", what, given=given, allowed=allowed, retry_after_s=1, hint=hint)


def client_left() -> RefusalError:
    """The error for a client that disconnected. Nobody receives it; the log and the metrics show its status."""
    return RefusalError(499, "left", "the client disconnected before its answer was ready")


def invalid(error: ValidationError | RequestValidationError, part: str | None = None) -> JoulecastError:
    """The error for a request that does not fit the schema: its first fault, and the number of further ones.

    `part` is the part of the request that was validated by itself, "body" or "query"; None where the faults say so.
    """
    faults = [{**fault, "loc": (part, *fault["loc"]) if part else fault["loc"]} for fault in error.errors()]
    first = faults[0]
    where = _place(first)
    # A value that fits none of a field's alternative types counts as one fault, not one for each type.
    others = len({_place(fault) for fault in faults} - {where})
    more = f"; {others} more like this" if others else ""
    if first["type"] == "extra_forbidden":
        return RefusalError(422, "input", f"there is no field {where!r}{more}", given=where, hint=_LISTED)
    if first["type"] == "missing":
        return RefusalError(422, "input", f"the field {where!r} is missing{more}", hint=_LISTED)
    place = where or "body"
    shape = where == "input_shape" or where.startswith("input_shape.")
    allowed = _SHAPES if shape else first["msg"].removeprefix("Value error, ")
    what, given = f"{place} has an invalid value{more}", shown(first.get("input"))
    return RefusalError(422, "input", what, given=given, allowed=allowed, hint=f"give another; {_LISTED}")


def _place(fault: dict[str, Any]) -> str:
    """The path of the field at fault, without the names that pydantic adds for alternative types."""
    return ".".join(str(part) for part in fault["loc"][1:] if re.fullmatch(r"\w+", str(part)))


_SHAPES = "sizes of at least 1, such as [32, 3, 224, 224]; for several inputs a list of these, or an object by name"
_LISTED = "/v1/openapi.json lists the fields"
