"""Schemas of questions and answers: questions.toml and answers.toml name their fields, the library describes them.

A question has the arguments of the function that answers it, so that a new option of a job is a field without further
ado. Types with limits stand here under the names that questions.toml has for them. Answers have the fields of the
library's classes.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import tomllib
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model, model_validator

import joulecast

from ..extraction.job import OPTIMIZERS
from ..generation.engines import ENGINES
from ..generation.images.predict import ImageInterval
from ..generation.intervals import GenerationInterval
from ..hardware.host import Host
from ..operations.attributes import PRECISIONS, RequestedPrecision
from ..operations.entry import DroppedWork
from ..operations.network import ParameterBytes
from ..operations.operation import MODES
from ..predictors.networks.composition import EXECUTIONS
from ..queries.choice import WRITTEN
from ..queries.objectives import OBJECTIVES, Grid
from ..remote.wire import CLASSES, NAMES, ONLY_HERE
from ..rendering.answers import documented
from ..runs import RunInterval

_HERE = Path(__file__).parent

Item = TypeVar("Item")

LARGEST = 2**31 - 1
_MOST_FIELDS = 64  # in an object; no question has half as many


def up_to(most: int | None = None, *, least: int | None = None) -> Any:
    """Limits on the length of a list or a mapping. It stops at its first fault, because each fault takes kilobytes."""
    return Field(min_length=least, max_length=most, fail_fast=True)


UpTo5 = Annotated[list[Item], up_to(5)]
UpTo100 = Annotated[list[Item], up_to(100)]
OneTo5 = Annotated[list[Item], up_to(5, least=1)]
OneTo8 = Annotated[list[Item], up_to(8, least=1)]
OneTo100 = Annotated[list[Item], up_to(100, least=1)]
Size = Annotated[int, Field(ge=1, le=LARGEST)]
Side = Annotated[int, Field(ge=1, le=100_000)]
Work = Annotated[int, Field(ge=0, le=10**21)]
Shape = Annotated[list[Size], up_to(8)]
InputShape = (
    Annotated[list[Size], up_to(8, least=1)]
    | Annotated[list[Shape], up_to(16, least=1)]
    | Annotated[dict[Annotated[str, Field(max_length=100)], Shape], up_to(16, least=1)]
)
# The library checks names and has the better error messages. The schema only documents the allowed values.
Name = Annotated[str, Field(min_length=1, max_length=100)]
Mode = Annotated[str, WithJsonSchema({"type": "string", "enum": list(MODES)})]
Precision = Annotated[str, WithJsonSchema({"type": "string", "enum": list(get_args(RequestedPrecision))})]
OperationPrecision = Annotated[str, WithJsonSchema({"type": "string", "enum": list(PRECISIONS)})]
Composition = Annotated[str, WithJsonSchema({"type": "string", "enum": ["overlap", "sum"]})]
HostFactor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
HowRun = Annotated[str, WithJsonSchema({"type": "string", "enum": list(EXECUTIONS)})]
Objective = Annotated[str, WithJsonSchema({"type": "string", "enum": list(OBJECTIVES)})]
Optimizer = Annotated[str, WithJsonSchema({"type": "string", "enum": [*OPTIMIZERS]})]
Price = Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)]
Prices = Annotated[dict[Name, Price], up_to(100)]
Hours = Annotated[list[Price], up_to(8784, least=1)]
Clock = Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)]
Clocks = Annotated[list[Clock], up_to(1000)]
Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
Amount = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Level = Annotated[float, Field(gt=0, lt=1)]
Seed = Annotated[int, Field(ge=0, le=2**63)]
_Tokens = Annotated[int, Field(ge=1, le=10**7)]
Lengths = _Tokens | Annotated[list[Annotated[float, Field(ge=0, le=10**7)]], Field(min_length=2, max_length=100_000)]
Prefixes = Annotated[list[_Tokens], Field(min_length=2, max_length=2)]
PairOfSides = Annotated[list[Side], Field(min_length=2, max_length=2)]
Number = Annotated[int, Field(ge=-LARGEST, le=LARGEST)] | Annotated[float, Field(ge=-1e9, le=1e9, allow_inf_nan=False)]
Attribute = bool | Number | Annotated[str, Field(max_length=100)] | None | Annotated[list[Number], up_to(16)]
# Options must not be texts, because a text might be a path or an address.
OptionName = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,49}$")]
Option = bool | Number | Annotated[list[bool | Number], up_to(64)] | None
Options = Annotated[dict[OptionName, Option], up_to(16)]
Calibration = Annotated[dict[Name, Any], up_to(20), WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "string"}]})]
Assumptions = Annotated[dict[Name, Annotated[int, Field(ge=1, le=100_000)] | Name], up_to(4)]


class Strict(BaseModel):
    """A part of a body: unknown fields are refused, and no value is converted to another type."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, content: Any) -> Any:
        """Refuse an object with many fields as a whole, because each that is unknown would be a fault of its own."""
        if isinstance(content, dict) and len(content) > _MOST_FIELDS:
            raise ValueError(f"an object with up to {_MOST_FIELDS} fields")
        return content


class OperationItem(Strict):
    """One operation, as `joulecast extract --json` lists it."""

    kind: Name = Field(examples=["linear"])
    input_shapes: Annotated[list[Shape], up_to(256, least=1)] = Field(examples=[[[32, 128]]])
    attributes: Annotated[dict[str, Attribute], up_to(32)] | None = Field(
        None, examples=[{"out_features": 64, "bias": True}]
    )
    precision: OperationPrecision = "fp32"
    mode: Mode = "inference"
    count: Annotated[int, Field(ge=1, le=10**9, description="Calls per iteration.")] = 1
    module_paths: Annotated[list[Annotated[str, Field(max_length=1000)]], up_to(10_000)] = []
    module_counts: Annotated[list[Size], up_to(10_000)] = []


_Sizes: Any = dict.fromkeys(DroppedWork.__dataclass_fields__, (Work, ...))
DroppedWorkItem: Any = create_model(
    "DroppedWorkItem", __base__=Strict, __doc__="The size of dropped work in the forward pass, all calls.", **_Sizes
)


_Bytes: Any = dict.fromkeys(ParameterBytes._fields, (Work, ...))
ParameterItem: Any = create_model(
    "ParameterItem", __base__=Strict, __doc__="Bytes of a model's parameters, as Network.parameter_bytes.", **_Bytes
)


class DroppedItem(Strict):
    """Work that extraction found but that no operation kind describes. It counts as not covered."""

    name: Name
    count: Annotated[int, Field(ge=1, le=10**9)]
    module_paths: Annotated[list[Annotated[str, Field(max_length=1000)]], up_to(10_000)]
    reason: Name
    work: DroppedWorkItem | None = Field(
        None, description="As extraction reports it. Without it the prediction has no interval."
    )


Operations = Annotated[list[OperationItem], up_to(least=1)]
DroppedItems = Annotated[list[DroppedItem], up_to(1000)]


class ManyItem(Strict):
    """One of many networks: a model by name, or a list of operations."""

    model: Name | None = Field(None, description="Name of a model. Files are not read.", examples=["resnet50"])
    operations: Operations | None = Field(None, description="Instead of a model: its operations with their counts.")
    name: Name | None = Field(None, description="Name for a list of operations.")
    dropped: DroppedItems | None = Field(None, description="Operators that the extraction of the operations dropped.")
    channels_last: bool = Field(False, description="Whether images of the operations lie with their channels last.")
    parameter_bytes: ParameterItem | None = Field(None, description="Where the operations do not say them.")


class Subject(ManyItem):
    """A model by name with the shape of its input, or a list of operations. Options of a job are the library's."""

    assumptions: Annotated[list[Name], up_to(10)] = Field(
        [], description="Assumptions made when the operations were extracted; the answer repeats them."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.model is None) == (self.operations is None):
            raise ValueError("either a model or operations")
        return self


class WithTree(Subject):
    """A subject whose prediction may come with its energy tree."""

    tree: bool = Field(False, description="Whether to add the energy by phase, module and operation.")


class Many(Strict):
    """Many networks."""

    networks: Annotated[list[ManyItem], up_to()]

    @model_validator(mode="after")
    def _subjects_are_valid(self) -> Self:
        if any((item.model is None) == (item.operations is None) for item in self.networks):
            raise ValueError("each network is either a model or operations")
        return self

    def subjects(self) -> Iterator[SimpleNamespace]:
        """Each network as the subject of a question of its own."""
        asked = vars(self)
        for item in self.networks:
            shape = asked["input_shape"] if item.model is not None else None
            yield SimpleNamespace(**vars(item), input_shape=shape, mode=asked["mode"], assumptions=[])


_TABLES: Mapping[str, Any] = tomllib.loads((_HERE / "questions.toml").read_text("utf-8"))
_EXAMPLES = json.loads((_HERE / "examples.json").read_text("utf-8"))
_TYPES: Mapping[str, Any] = {"bool": bool, "int": Size, "float": Positive, "str": Name}
"""Annotation of an argument -> type of its field, with limits."""

_NONE = re.compile(r"(?:;|\.) None for (.+?)(?=[.;:]|$)")
"""What a docstring says of None, which is the default of a field that is left out."""

_SERVED = ", ".join(engine.name for engine in ENGINES.values() if engine.fused)


def declared(given: str | list[Any] | dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The type of a field of answers.toml or questions.toml, and what pydantic's Field takes besides."""
    if isinstance(given, str):
        return given, {}
    if isinstance(given, list):
        type_, description, *examples = given
        return type_, {"description": description, **({"examples": examples} if examples else {})}
    more = {name: value for name, value in given.items() if name not in ("type", "optional")}
    return given["type"], {**({"default": None} if "optional" in given else {}), **more}


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
    base: type[BaseModel] = globals()[row.get("base", "Strict")]
    rows: dict[str, Any] = {}
    for table in (_TABLES["fields"], *(_TABLES[each]["fields"] for each in row.get("like", ())), row.get("fields", {})):
        rows |= {each: given for names, given in table.items() for each in names.split()}
    words = {**documented(joulecast.best), **documented(function)}
    asked: dict[str, Any] = {}
    type_: Any
    for argument, parameter in inspect.signature(function).parameters.items():
        if argument in ONLY_HERE or argument in base.model_fields:
            continue
        said = _NONE.sub(r". Default: \1", words.get(argument, ""))
        plain, _, optional = str(parameter.annotation).partition(" | ")
        if argument in rows:
            type_, more = declared(rows[argument])
        else:
            type_, more = _TYPES[plain] | None if optional else _TYPES[plain], {}
        default = [*parameter.default] if isinstance(parameter.default, tuple) else parameter.default
        if default is inspect.Parameter.empty or (default is None and argument == "gpu"):
            default = ...
        more = {"description": said, **more}
        more["description"] = more["description"].replace("{engines}", _SERVED)
        asked[NAMES.get(argument, argument)] = type_, Field(default, **more)
    name = row["question"]
    extra = type(
        f"_{name}",
        (base,),
        {"model_config": {"json_schema_extra": {"examples": _EXAMPLES[name]}}, "__module__": __name__},
    )
    question: Any = create_model(name, __base__=extra, __doc__=f"{row['about']}; see `joulecast.{path}`.", **asked)
    question.model_rebuild(_types_namespace=globals())
    return Asked(path, question, row["answer"], row["tag"])


PATHS: Mapping[str, Asked] = {name: _path(name, row) for name, row in _TABLES.items() if "question" in row}
"""Name of a path under /v1 -> the path."""

PredictQuestion: Any = PATHS["predict"].question


# Answers.

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


def _schemas() -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, row in tomllib.loads((_HERE / "answers.toml").read_text("utf-8")).items():
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
