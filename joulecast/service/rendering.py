"""Answers as bytes: JSON, CSV, or the exact values for `joulecast.Client`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson

from ..remote import wire
from ..rendering.answers import finite

JSON, CSV = "application/json", "text/csv; charset=utf-8"


def media_type_of(accept: str, form: str | None = None) -> str:
    """The media type of an answer: that of `?format=`, or else of the header Accept; JSON by default."""
    if form is not None:
        return CSV if form == "csv" else JSON
    accepted = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    answered = {"text/csv": CSV, JSON: JSON, wire.MEDIA_TYPE: wire.MEDIA_TYPE}
    return next((answered[part] for part in accepted if part in answered), JSON)


def rendered(value: Any, media_type: str, to_dict: Callable[[Any], Any]) -> bytes:
    """Encode an answer of the library; `to_dict` turns it into plain lists and dictionaries."""
    if media_type == wire.MEDIA_TYPE:
        return json_bytes(wire.pack(value))
    if media_type == CSV:
        return bytes(value.to_csv(), "utf-8")
    return json_bytes(to_dict(value))


def json_bytes(value: Any) -> bytes:
    """Encode as strict JSON, in which NaN and infinity become null."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError:  # for integers of more than 64 bits
        return json.dumps(finite(value), separators=(",", ":"), allow_nan=False).encode()
