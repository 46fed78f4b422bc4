"""The questions that clients may send: questions.toml has a table for each function of the library that answers one."""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

import joulecast

from ..generation.engines import ENGINES
from ..operations.attributes import PRECISIONS, RequestedPrecision
from ..operations.operation import MODES
from ..predictors.networks.execution import EXECUTIONS
from ..remote.requests import NAMES, ONLY_HERE
from . import question_fields
from .question_fields import Name, Positive, Size, Strict, up_to
from .schemas import declared, documented

_TABLES: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("questions.toml").read_text("utf-8"))
_EXAMPLES = json.loads(Path(__file__).with_name("examples.json").read_text("utf-8"))
_TYPES: Mapping[str, Any] = {"bool": bool, "int": Size, "float": Positive, "str": Name}
"""Annotation of an argument -> type of its field, with limits."""

_NONE = re.compile(r"(?:;|\.) None for (.+?)(?=[.;:]|$)")
"""What a docstring says of None, which is the default of a field that is left out."""

_SERVED = ", ".join(engine.name for engine in ENGINES.values() if engine.fused)


class Asked(NamedTuple):
    """A path under /v1 that answers a question in the body of a request, and maybe in its query string.

    Args:
        name: The path, and the method of `Answers` that answers it, whose docstring says what it does.
        question: Class of the body.
        answer: Schema of the answer in JSON, a table of answers.toml.
        tag: Group of the OpenAPI document.
        by_name: Whether the question may be a query string.
    """

    name: str
    question: type[BaseModel]
    answer: str
    tag: str
    by_name: bool


def _showing(name: str) -> ConfigDict:
    """Configuration of a class of which the OpenAPI document shows examples."""
    return ConfigDict(json_schema_extra={"examples": _EXAMPLES[name]})


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
    extra = type(f"_{name}", (base,), {"model_config": _showing(name), "__module__": __name__})
    question: Any = create_model(name, __base__=extra, __doc__=f"{row['about']}; see `joulecast.{path}`.", **fields)
    question.model_rebuild(_types_namespace=vars(question_fields))
    return Asked(path, question, row["answer"], row["tag"], row.get("by_name", False))


def _type_of(parameter: inspect.Parameter) -> Any:
    name, _, optional = str(parameter.annotation).partition(" | ")
    return _TYPES[name] | None if optional else _TYPES[name]


PATHS: Mapping[str, Asked] = {name: _path(name, row) for name, row in _TABLES.items() if "question" in row}
"""Name of a path under /v1 -> the path."""

PredictQuestion: Any = PATHS["predict"].question


_WORDS: Mapping[str, Sequence[str | None]] = {
    "mode": MODES,
    "precision": get_args(RequestedPrecision),
    "composition": (None, "overlap", "sum"),
    "execution": EXECUTIONS,
}
_OPERATION_WORDS: Mapping[str, Sequence[str | None]] = {"mode": MODES, "precision": PRECISIONS}


def _require(place: str, question: BaseModel, words: Mapping[str, Sequence[str | None]]) -> None:
    for name, allowed in words.items():
        if (given := getattr(question, name)) not in allowed:
            listed = ", ".join(word for word in allowed if word)
            raise ValueError(f"{place}.{name}: {given!r} is none of {listed}")


class BatchQuestion(Strict):
    """Many predictions at once. If all fit the schema, each is answered or refused independently."""

    requests: Annotated[list[PredictQuestion], up_to(least=1)]
    details: bool = Field(False, description="Whether to list the operations of each.")

    @model_validator(mode="after")
    def _known_words(self) -> Self:
        """Refuse a batch with words outside the schema. In a single question the library refuses them itself."""
        for place, request in enumerate(self.requests):
            _require(f"requests.{place}", request, _WORDS)
            for item in getattr(request, "operations", None) or ():
                _require(f"requests.{place}.operations", item, _OPERATION_WORDS)
        return self

    model_config = _showing("BatchQuestion")
