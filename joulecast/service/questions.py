"""The questions that clients may send: questions.toml has a table for each function of the library that answers one."""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, Field, create_model

import joulecast

from ..generation.engines import ENGINES
from ..remote.requests import NAMES, ONLY_HERE
from . import question_fields
from .question_fields import Name, Positive, Size
from .schemas import declared, documented

_TABLES: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("questions.toml").read_text("utf-8"))
_EXAMPLES = json.loads(Path(__file__).with_name("examples.json").read_text("utf-8"))
_TYPES: Mapping[str, Any] = {"bool": bool, "int": Size, "float": Positive, "str": Name}
"""Annotation of an argument -> type of its field, with limits."""

_NONE = re.compile(r"(?:;|\.) None for (.+?)(?=[.;:]|$)")
"""What a docstring says of None, which is the default of a field that is left out."""

_SERVED = ", ".join(engine.name for engine in ENGINES.values() if engine.fused)


class Asked(NamedTuple):
    """A path under /v1 that answers a question in the body of a request.

    Args:
        name: The path, and the method of `Answers` that answers it, whose docstring says what it does.
        question: Class of the body.
        answer: Schema of the answer in JSON, a table of answers.toml.
        tag: Group of the OpenAPI document.
    """

    name: str
    question: type[BaseModel]
    answer: str
    tag: str


def _path(path: str, row: Mapping[str, Any]) -> Asked:
    """A path with the class of its questions: the arguments of a function as fields, in the words of its docstring.

    Types follow from annotations, where questions.toml does not have them.
    """
    function = getattr(joulecast, path)
    base: type[BaseModel] = getattr(question_fields, row.get("base", "Strict"))
    rows: dict[str, Any] = {}
    for table in (_TABLES["fields"], *(_TABLES[each]["fields"] for each in row.get("like", ())), row.get("fields", {})):
        rows |= {each: given for names, given in table.items() for each in names.split()}
    words = {**documented(joulecast.best), **documented(function)}
    fields: dict[str, Any] = {}
    for argument, parameter in inspect.signature(function).parameters.items():
        if argument in ONLY_HERE or argument in base.model_fields:
            continue
        said = _NONE.sub(r". Default: \1", words.get(argument, ""))
        type_, more = declared(rows[argument]) if argument in rows else (_type_of(parameter), {})
        default = [*parameter.default] if isinstance(parameter.default, tuple) else parameter.default
        if default is inspect.Parameter.empty or (default is None and argument == "gpu"):
            default = ...
        more = {"description": said, **more}
        more["description"] = more["description"].replace("{engines}", _SERVED)
        fields[NAMES.get(argument, argument)] = type_, Field(default, **more)
    name = row["question"]
    extra = type(
        f"_{name}",
        (base,),
        {"model_config": {"json_schema_extra": {"examples": _EXAMPLES[name]}}, "__module__": __name__},
    )
    question: Any = create_model(name, __base__=extra, __doc__=f"{row['about']}; see `joulecast.{path}`.", **fields)
    question.model_rebuild(_types_namespace=vars(question_fields))
    return Asked(path, question, row["answer"], row["tag"])


def _type_of(parameter: inspect.Parameter) -> Any:
    name, _, optional = str(parameter.annotation).partition(" | ")
    return _TYPES[name] | None if optional else _TYPES[name]


PATHS: Mapping[str, Asked] = {name: _path(name, row) for name, row in _TABLES.items() if "question" in row}
"""Name of a path under /v1 -> the path."""

PredictQuestion: Any = PATHS["predict"].question
