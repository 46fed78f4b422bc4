"""Commands from functions: options.toml has the words of their options, and what the library is asked by them."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from ..errors import InputError
from ..operations.inputs import parse_shapes
from .completion import VALUES, completing
from .reading import (
    clocks_mhz,
    intensity,
    lengths,
    model_and_options,
    named_values,
    names,
    positive_integers,
    price_per_hour,
)

TABLES: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("options.toml").read_text("utf-8"))
_TYPES: Mapping[str, Any] = {"int": int, "float": float, "Path": Path, "texts": list[str]}


def _sensors(text: str) -> tuple[str, ...]:
    from ..metering.machine import chosen_devices

    return () if text == "none" else tuple(chosen_devices(text))


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "shapes": parse_shapes,
    "names": names,
    "clocks": clocks_mhz,
    "prices": price_per_hour,
    "intensity": intensity,
    "lengths": lengths,
    "sensors": _sensors,
    "assumptions": lambda texts: named_values(texts, "an assumption") or None,
    "layers": lambda text: text.split(",") if "," in text else text,
    "language model": lambda text: Path(text) if text.endswith(".json") else text,
    "prefixes": lambda text: tuple(positive_integers(text, "prefixes")),
    **{what: partial(positive_integers, what=what) for what in ("batch sizes", "watts", "numbers of GPUs", "batches")},
}
"""Name in options.toml -> function from the text of an option to the value of the library's argument. It is not called
where the option was left out."""


class Asked(dict[str, Any]):
    """What a command line asks: argument of the library -> value.

    Attributes:
        given: Name of an option -> what was given on the command line.
    """

    given: dict[str, Any]


def command(name: str, function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function, whose arguments are options with the words of options.toml.

    If the first argument of the function is `asked`, the options in `asks` come first, and become what it is given.
    """
    table = TABLES.get(name, {})
    asks = {option: _row(option, table) for option in _flat(table.get("asks", ()))}
    further = [_parameter(option, row, *_typed(row)) for option, row in asks.items()]
    answered = [
        _declared(each, table)
        for each in inspect.signature(function, eval_str=True).parameters.values()
        if each.name != "asked"
    ]
    parameters = [*further, *answered]

    @wraps(function)
    def run(**given: Any) -> None:
        if given.get("as_json") and given.get("as_csv"):
            raise InputError("output is either JSON or CSV", given="--json --csv", hint="omit one of them")
        asked = (_asked({option: given.pop(option) for option in asks}, asks),) if asks else ()
        function(*asked, **given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _flat(listed: Iterable[str]) -> Iterator[str]:
    """Names of options, with those of groups in the place of their names."""
    for name in listed:
        yield from _flat(TABLES["groups"][name[1:]]) if name.startswith("@") else [name]


def _row(option: str, table: Mapping[str, Any]) -> Mapping[str, Any]:
    row = table.get(option, TABLES["shared"].get(option))
    assert row is not None, f"options.toml has no {option}"  # noqa: S101  # our own mistake
    row = {"help": row} if isinstance(row, str) else row
    return _row(row["like"], {}) if "like" in row else row


def _typed(row: Mapping[str, Any]) -> tuple[Any, Any]:
    """Type and default of an option that the library is asked by."""
    if "default" in row:
        return type(row["default"]), row["default"]
    type_ = _TYPES[row["type"]] if "type" in row else str
    return (type_, inspect.Parameter.empty) if row.get("required") else (type_ | None, None)


def _declared(parameter: inspect.Parameter, table: Mapping[str, Any]) -> inspect.Parameter:
    """An argument of a function as an option, but for what says itself what typer has to know."""
    if parameter.annotation is typer.Context or hasattr(parameter.annotation, "__metadata__"):
        return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    return _parameter(parameter.name, _row(parameter.name, table), parameter.annotation, parameter.default)


def _parameter(option: str, row: Mapping[str, Any], type_: Any, default: Any) -> inspect.Parameter:
    words = {name: row[name] for name in ("metavar", "min", "max", "show_default") if name in row}
    values = VALUES.get(row.get("values", ""))
    # The values are looked up only where the words name them: completing imports what it needs.
    words["help"] = row["help"].replace("{values}", ", ".join(values()) if values and "{values}" in row["help"] else "")
    if values and int not in (type_, *get_args(type_)):
        words["autocompletion"] = completing(values)
    # An option that is off has no --no-option.
    flags = row.get("flags", [f"--{option.replace('_', '-')}"] if default is False else [])
    info = typer.Argument(**words) if row.get("argument") else typer.Option(*flags, **words)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(option, keyword, default=default, annotation=Annotated[type_, info])


def _asked(given: dict[str, Any], options: Mapping[str, Mapping[str, Any]]) -> Asked:
    asked = Asked()
    asked.given = given
    for name, value in given.items():
        row = options[name]
        asked[row.get("to", name)] = value if value is None or "read" not in row else _READERS[row["read"]](value)
    if "precisions" in given:
        asked["precision"] = asked["precision"] or "default"
    if "training" in asked:
        asked["mode"] = mode_of(asked.pop("training"), asked["mode"])
    if given.get("model") is not None and "model_option" in given:
        asked["model"], asked["model_options"] = model_and_options(given["model"], given["model_option"])
    return asked


def module_to_run(asked: Mapping[str, Any]) -> tuple[Any, Any]:
    """The module of a command line, with weights, and the shapes of its inputs.

    Raises InputError, MissingDependencyError: There is no model, no shape, or no torch.
    """
    from ..accounting.account import needs_torch

    needs_torch()
    model, shapes = asked["model"], asked["input_shape"]
    if model is None:
        raise InputError(
            "there is nothing to account for",
            given="neither a model nor --trace",
            hint="give a model and its shape, such as resnet50 8,3,224,224, or --trace FILE",
        )
    if shapes is None:
        raise InputError("a model needs the shape of its input", given="none", allowed="such as 8,3,224,224")
    if isinstance(model, str):
        from ..extraction.models.named_models import build_to_run

        model = build_to_run(model, asked["model_options"])
    return model, shapes


def mode_of(training: bool, mode: str | None) -> str:
    """The mode that --training and --mode ask for; the library refuses an unknown one.

    Raises InputError: They contradict each other.
    """
    if training and mode not in (None, "training"):
        raise InputError("two modes are asked for", given=f"--training --mode {mode}", hint="omit one of them")
    return "training" if training else mode or "inference"
