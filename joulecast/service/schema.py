"""How the schema of an answer is made from a dataclass of the library, so that neither repeats the other."""

from __future__ import annotations

import re
import sys
import types
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

_ENTRY = re.compile(r"^ {8}(\w+(?:, \w+)*): (.*(?:\n {12}.*)*)", re.MULTILINE)
_PLAIN = (str, int, float, bool, type(None))


class Open(BaseModel):
    """An object that may have further fields."""

    model_config = ConfigDict(extra="allow")


def documented(value: Any) -> dict[str, str]:
    """What the docstring of a function or class says of each argument."""
    entries = _ENTRY.findall(value.__doc__ or "")
    return {each: " ".join(text.split()) for names, text in entries for each in names.split(", ")}


def answer_of(name: str, kind: type[Any], about: str, listed: str = "", /, **declared: Any) -> Any:
    """The schema of a class of the library, as `to_dict` writes it.

    Args:
        name: Name of the schema in the document.
        kind: The class. The words of its docstring and its properties describe the fields.
        about: What it is, as a sentence.
        listed: Names of fields and properties that are written; empty for all fields but those that are declared.
        declared: Types of what is written in another form, or is no field.
    """
    said = documented(kind)
    columns = {field.name: field.type for field in fields(kind) if field.repr}
    found: dict[str, Any] = {}
    for each in listed.split() or [field for field in columns if field not in declared]:
        getter: Any = getattr(kind, each, None)
        words = said.get(each) or (getter.__doc__ if isinstance(getter, property) else "") or ""
        hint = columns[each] if each in columns else getter.fget.__annotations__["return"]
        found[each] = (_plain(_evaluated(hint, kind)), Field(description=words.partition("\n")[0]))
    return object_of(name, about, **found, **declared)


def object_of(name: str, about: str, /, **declared: Any) -> Any:
    """The schema of an answer that is no class of the library: name -> type, or type and description."""
    found: Any = {each: given if isinstance(given, tuple) else (given, ...) for each, given in declared.items()}
    return create_model(name, __base__=Open, __doc__=about, **found)


def several(schema: Any) -> Any:
    """The type of a list of these. A schema is a value for type checkers, so `list[schema]` would be refused."""
    return list[schema]


def said(type_: Any, words: str) -> tuple[Any, Any]:
    """A type and its description."""
    return type_, Field(description=words)


def _evaluated(hint: Any, kind: type[Any]) -> Any:
    """The type that an annotation means in the module of a class; Any where the module imports it for checkers only."""
    held = types.SimpleNamespace(__annotations__={"hint": hint})
    try:
        return get_type_hints(held, vars(sys.modules[kind.__module__]))["hint"]
    except NameError:
        return Any


def _plain(type_: Any) -> Any:
    """The type of a value as plain lists, numbers and texts."""
    if type_ in _PLAIN or get_origin(type_) is Literal:
        return type_
    if get_origin(type_) is types.UnionType and all(each in _PLAIN for each in get_args(type_)):
        return type_
    return {tuple[str, ...]: list[str], tuple[float, float]: list[float]}.get(type_, Any)
