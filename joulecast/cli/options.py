"""Commands from functions: options.toml has the words of their options, and what the library is asked by them."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from ..errors import InputError
from ..extraction.job import Job
from ..extraction.models.spelling import known_as, known_names
from ..extraction.own_file import own_model
from ..operations.inputs import parse_shapes
from ..rendering.answers import documented
from .printing import Shown

# Texts of the command line as values: models, names, numbers, clocks, lengths and prices.


def names(texts: list[str] | None) -> list[str] | None:
    """Split names that are repeated or separated by commas."""
    return [name.strip() for text in texts for name in text.split(",")] if texts else None


def clocks_mhz(text: str | None) -> list[float] | None:
    """Parse "900,1200", or "600:1440:120" (first, last, step). Raises InputError: the text has neither form."""
    if text is None:
        return None
    try:
        if ":" in text:
            first, last, step = (float(part) for part in text.split(":"))
            if not (0 < first <= last and step > 0 and (last - first) / step < 10_000):
                raise ValueError
            return [first + i * step for i in range(int((last - first) / step + 1e-9) + 1)]
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(
            "clocks are a list of MHz, or first:last:step", given=repr(text), allowed="900,1200 or 600:1440:120"
        ) from error


def _parts(pattern: str, what: str, allowed: str, text: str) -> list[str]:
    """Parse what is separated by commas. Raises InputError: a part has another form; the error says `what` is wrong."""
    parts = [part.strip() for part in text.lower().split(",")]
    if not all(re.fullmatch(pattern, part) for part in parts):
        raise InputError(what, given=repr(text), allowed=allowed)
    return parts


def _integers(what: str, text: str) -> list[int]:
    return [*map(int, _parts(r"\d+", f"{what} are positive integers", "such as 1,8,32", text))]


def _lengths(text: str) -> int | list[float]:
    """Parse "512", "650,610" (mean and standard deviation) or the lengths of many requests."""
    allowed = "such as 512; 650,610 for mean and standard deviation"
    parts = _parts(r"-?\d+(\.\d+)?", "tokens are numbers", allowed, text)
    return int(parts[0]) if len(parts) == 1 and "." not in parts[0] else [*map(float, parts)]


def _sizes(texts: list[str]) -> list[list[int]]:
    """Parse heights and widths of images, such as "768x1024"."""
    parts = partial(_parts, r"\d+x\d+", "an image has a height and a width", "such as 768x1024, in pixels")
    return [[*map(int, size.split("x"))] for text in texts for size in parts(text)]


def price_per_hour(texts: list[str] | None) -> float | dict[str, float] | None:
    """Parse prices such as "1.2" for every GPU, "A30=0.7,T4=0.35", a cloud, or a table "mine.csv,spot=0.5".

    Raises UnknownNameError, InputError: there is no such cloud, a price is no number, or the table cannot be read.
    """
    prices: dict[str, float] = {}
    tables, numbers = [], {}
    for part in (part for text in texts or () for part in text.split(",")):
        name, _, price = part.rpartition("=")
        try:
            numbers[name.strip()] = float(price)
        except ValueError as error:
            if name:
                raise InputError(
                    "a price per hour is a number, or GPU=number", given=repr(part), allowed="such as 1.2 or A30=0.7"
                ) from error
            tables.append(price.strip())
    spot_share = numbers.pop("spot", 0.0) if tables else 0.0
    for table in tables:
        from ..queries.objectives import cloud_prices, read_prices

        prices |= (read_prices if "." in table or "/" in table else cloud_prices)(table, spot_share)
    return prices | numbers or None


def intensity(text: str) -> str | list[float]:
    """Parse grams of CO2 per kWh: a number, a place, or a file with a number for each hour.

    Raises InputError: the file cannot be read, or has what is no number.
    """
    if not text.endswith((".csv", ".txt")):
        return text
    try:
        found = [float(each) for each in Path(text).read_text(encoding="utf-8").replace(",", " ").split()]
        if not found:
            raise ValueError("no numbers")
    except (OSError, ValueError) as error:
        raise InputError(
            "the intensities of the hours cannot be read",
            given=f"{text}: {error}",
            allowed="numbers in g/kWh, in lines or separated by commas",
            hint="give such a file, without names of columns and times: the first number is that of the first hour",
        ) from None
    return found


def model_and_options(text: str, options: list[str] | None) -> tuple[Any, dict[str, Any] | None]:
    """Turn the arguments into a model for `joulecast.predict`, and the options that remain for it.

    "my_file.py:Net" runs the user's own file and calls its Net with the options. The service never does that.

    Raises:
        InputError: An option has no value; or the file cannot be run, has no such name, or the model cannot be built.
    """
    if known_as(text) not in known_names():
        from ..generation.images.pipelines import refuse_pipeline

        refuse_pipeline(text)
    return own_model(text, named_values(options, "an option of a model"))


_OF_JSON = {"true": "True", "false": "False", "null": "None"}


def named_values(texts: list[str] | None, what: str) -> dict[str, Any]:
    """Parse name=value.

    Numbers, lists and booleans are read as in Python or JSON, all else is a text. Raises InputError: there is no name.
    """
    values: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"{what} is written as name=value", given=repr(text), allowed="NAME=VALUE")
        try:
            values[name] = ast.literal_eval(_OF_JSON.get(value, value))
        except (SyntaxError, ValueError):
            values[name] = value
    return values


# Values that a shell completes: models, GPUs, precisions, engines, objectives (`joulecast --install-completion`).


def gpu_words() -> list[str]:
    """Names of GPUs without spaces, which a shell would split, and in the case that is typed: typer drops others."""
    from ..hardware import gpus

    names = [gpu.aliases[0].replace(" ", "-") for gpu in gpus().values()]
    return [*names, *map(str.lower, names)]


def values_of(row: Mapping[str, Any]) -> Iterable[str]:
    """The values of an option, imported when they are asked for: those that its row lists, or those of a module."""
    listed = row["values"]
    if isinstance(listed, list):
        return listed
    module, _, name = TABLES["values"][listed].rpartition(".")
    found = getattr(import_module(f"...{module}", __name__), name)
    return get_args(found) or (found() if callable(found) else found)


def completed(incomplete: str, row: Mapping[str, Any]) -> list[str]:
    """The values of an option that begin with what was typed; after a comma, with what follows it."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + value for value in values_of(row) if value.startswith(last)]


TABLES: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("options.toml").read_text("utf-8"))
_TYPES: Mapping[str, Any] = {"int": int, "float": float, "Path": Path, "texts": list[str]}
_WORDS: Mapping[Any, str] = {int: "INTEGER", float: "NUMBER", Path: "PATH", str: "TEXT"}
_NOT_ASKED = {"whitelist", "operators", "autocast", "composition", "strict"}
"""Fields of a job that a command cannot be given, or that commands name themselves."""


def _job_options() -> dict[str, dict[str, Any]]:
    """Field of a job that has no row in options.toml -> a row in the words of the class."""
    words = documented(Job)
    named = {row.get("to", name) if isinstance(row, dict) else name for name, row in TABLES["shared"].items()}
    rows = {}
    for field in fields(Job):
        if field.name not in named | _NOT_ASKED:
            type_ = str(field.type).partition(" |")[0]
            how = {"type": type_} if field.default is None else {"default": field.default}
            rows[field.name] = {"help": words[field.name], **(how if how.get("type") != "str" else {})}
    return rows


JOB_OPTIONS = _job_options()


def _sensors(text: str) -> tuple[str, ...] | None:
    from ..metering.machine import chosen_devices

    return () if text == "none" else chosen_devices(text)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "shapes": parse_shapes,
    "names": names,
    "clocks": clocks_mhz,
    "prices": price_per_hour,
    "intensity": intensity,
    "lengths": _lengths,
    "sizes": _sizes,
    "sensors": _sensors,
    "assumptions": lambda texts: named_values(texts, "an assumption") or None,
    "layers": lambda text: text.split(",") if "," in text else text,
    "language model": lambda text: Path(text) if text.endswith(".json") else text,
    "prefixes": lambda text: tuple(_integers("prefixes", text)),
    **{what: partial(_integers, what) for what in ("batch sizes", "watts", "numbers of GPUs", "batches")},
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

    If it has an argument `asked`, the options in `asks` become what that is given; those in `shows` become `shown`.
    """
    table = TABLES.get(name, {})
    asks = {option: _row(option, table) for option in _flat(table.get("asks", ()))}
    shows = table.get("shows", ())
    shown = inspect.signature(Shown, eval_str=True).parameters
    own = inspect.signature(function, eval_str=True).parameters
    parameters = [option_of(option, row, *_typed(row)) for option, row in asks.items()]
    parameters += [_declared(each, table) for each in own.values() if each.name not in ("asked", "shown")]
    parameters += [_declared(shown[each], table) for each in shows]

    @wraps(function)
    def run(**given: Any) -> None:
        if given.get("as_json") and given.get("as_csv"):
            raise InputError("output is either JSON or CSV", given="--json --csv", hint="omit one of them")
        if asks:
            given["asked"] = _asked({option: given.pop(option) for option in asks}, asks)
        if shows:
            given["shown"] = Shown(**{each: given.pop(each) for each in shows})
        function(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _flat(listed: Iterable[str]) -> Iterator[str]:
    """Names of options, with those of groups in the place of their names."""
    for name in listed:
        if name == "@job":
            yield from (*_flat(("@model", "@how")), *JOB_OPTIONS)
        else:
            yield from _flat(TABLES["groups"][name[1:]]) if name.startswith("@") else [name]


def _row(option: str, table: Mapping[str, Any]) -> Mapping[str, Any]:
    row = table.get(option, TABLES["shared"].get(option, JOB_OPTIONS.get(option)))
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
    return option_of(parameter.name, _row(parameter.name, table), parameter.annotation, parameter.default)


def _word_of(type_: Any) -> str | None:
    """What stands for the value of an option in `--help`; None for one that has no value."""
    inner = (_word_of(each) for each in get_args(type_))
    return _WORDS.get(type_) or next(filter(None, inner), None)


def option_of(option: str, row: Mapping[str, Any], type_: Any, default: Any) -> inspect.Parameter:
    """An option as typer reads it from the argument of a function, of a row as in options.toml."""
    words = {name: row[name] for name in ("metavar", "min", "max", "show_default", "envvar") if name in row}
    words.setdefault("metavar", option.upper() if row.get("argument") else _word_of(type_))
    # The values are looked up only where the words name them: completing imports what it needs.
    words["help"] = row["help"].replace("{values}", ", ".join(values_of(row)) if "{values}" in row["help"] else "")
    if "values" in row and int not in (type_, *get_args(type_)):
        # typer asks for a function whose argument has this name.
        words["autocompletion"] = lambda incomplete: completed(incomplete, row)
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
        training, mode = asked.pop("training"), asked["mode"]
        if training and mode not in (None, "training"):
            raise InputError("two modes are asked for", given=f"--training --mode {mode}", hint="omit one of them")
        asked["mode"] = "training" if training else mode or "inference"
    if given.get("model") is not None and "model_option" in given:
        asked["model"], asked["model_options"] = model_and_options(given["model"], given["model_option"])
    return asked


# Errors of the library in words of the command line: `--price-per-hour` where the library says price_per_hour.

_ARGUMENTS = {
    row["to"] if isinstance(row, dict) and "to" in row else name: name
    for table in (TABLES["run"], TABLES["shared"])
    for name, row in table.items()
}
_NAMED = ("gpu", "clock", "mode", "precision", "host", "execution", "carbon", "lora")
_OPTIONS = {
    # Single words stand in many sentences, so only the forms that name the argument are listed.
    **{f"{argument}=": f"--{_ARGUMENTS[argument].replace('_', '-')}=" for argument in _NAMED},
    "assume={'experts': 'uniform'}": "--assume experts=uniform",
    "assume={'boxes': 20}": "--assume boxes=20",
    "assume={'boxes': 100}": "--assume boxes=100",
    "'box_side': 100": "box_side=100",
    **{argument: f"--{name.replace('_', '-')}" for argument, name in _ARGUMENTS.items() if "_" in argument},
    "carbon: grams": "--carbon: grams",
    "input_shape": "SHAPE",
    "max_power_w": "--max-power",
    "max_time_s": "--max-time",
    "a shape such as (32, 3, 224, 224), a list of shapes, a dictionary of name and shape; or example tensors": (
        "a SHAPE such as 32,3,224,224; for several inputs one for each, or name=shape"
    ),
}
# Names in quotes are those of columns and keys, which stay.
_NAMES = re.compile(
    "|".join(rf'(?<![\w"-]){re.escape(name)}' + (r"(?!\w)" if name[-1].isalnum() else "") for name in _OPTIONS)
)
_SHAPE = re.compile(r"such as [(\[](\d+(?:, \d+)+)[)\]]")


def in_option_words(message: str) -> str:
    """A message of the library, with options in place of the arguments that they stand for."""
    said = _NAMES.sub(lambda found: _OPTIONS[found[0]], message)
    return _SHAPE.sub(lambda found: f"such as {found[1].replace(', ', ',')}", said)
