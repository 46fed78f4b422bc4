"""Schemas of the answers, for the OpenAPI document: answers.toml names fields, classes of the library describe them."""

from __future__ import annotations

import sys
import tomllib
import types
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from ..generation.images.predict import ImageInterval
from ..generation.intervals import GenerationInterval
from ..hardware.host import Host
from ..queries.choice import WRITTEN
from ..queries.objectives import Grid
from ..remote.wire import CLASSES
from ..rendering.answers import documented
from ..runs import RunInterval

_KINDS = {**CLASSES, **{kind.__name__: kind for kind in (GenerationInterval, Grid, Host, ImageInterval, RunInterval)}}

_PLAIN = (str, int, float, bool, type(None))


class _Open(BaseModel):
    """An object that may have further fields."""

    model_config = ConfigDict(extra="allow")


def _fields_of(kind: type[Any], listed: str, declared: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that follow from a class of the library, as `to_dict` writes them."""
    said = documented(kind)
    columns = {field.name: field.type for field in fields(kind) if field.repr}
    found: dict[str, Any] = {}
    for each in listed.split() or [field for field in columns if field not in declared]:
        getter: Any = getattr(kind, each, None)
        words = said.get(each) or (getter.__doc__ if isinstance(getter, property) else "") or ""
        hint = columns[each] if each in columns else getter.fget.__annotations__["return"]
        found[each] = (_plain(_evaluated(hint, kind)), Field(description=words.partition("\n")[0]))
    return found


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


def declared(given: str | list[Any] | dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The type of a field of answers.toml or questions.toml, and what pydantic's Field takes besides."""
    if isinstance(given, str):
        return given, {}
    if isinstance(given, list):
        type_, description, *examples = given
        return type_, {"description": description, **({"examples": examples} if examples else {})}
    more = {name: value for name, value in given.items() if name not in ("type", "optional")}
    return given["type"], {**({"default": None} if "optional" in given else {}), **more}


def _schemas() -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, row in tomllib.loads(Path(__file__).with_name("answers.toml").read_text("utf-8")).items():
        rows = row.get("fields", {}).items()
        columns: dict[str, Any] = {}
        for names, (type_, more) in ((names, declared(given)) for names, given in rows):
            columns |= {each: (type_, Field(**more)) for each in names.split()}
        if "class" in row:
            listed = row.get("listed", "").replace("{WRITTEN}", WRITTEN.replace(" value ", " "))
            columns = {**_fields_of(_KINDS[row["class"]], listed, columns), **columns}
        base = made[row["like"]] if "like" in row else _Open
        made[name] = create_model(name, __base__=base, __doc__=row["about"], **columns)
        # Types are texts, which pydantic reads with these names.
        made[name].model_rebuild(_types_namespace={**made, "Any": Any, "Literal": Literal})
    return made


SCHEMAS: Mapping[str, Any] = _schemas()
"""Name in the document -> schema."""
