"""Checks of names from clients: a model, GPU or predictor is looked up, and never treated as a path."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from ..errors import InputError, UnknownNameError, unknown_name
from ..extraction.models.spelling import known_as, known_names
from ..generation.images.pipelines import refuse_pipeline
from ..hardware import GPU, find_gpu
from ..hardware.host import USUAL, Host, find_host, hosts, is_wait
from ..remote.wire import NAMES
from ..zoo import entries
from ..zoo.store import pulled

_MODEL = re.compile(r"(timm/)?\w+(\.\w+)?", re.ASCII)
_PREDICTOR = re.compile(r"[a-z0-9-]+(/[a-z0-9-]+)?")
_FILES = (".json", ".pt2", ".onnx", ".toml", ".pt", ".pth", ".pkl")
_LONGEST = 100
_GPUS = "/v1/gpus lists them"


def checked_model(name: str) -> str:
    """The name that is known here of a model, however it is spelled; or the text, if it may be another model's name.

    Raises InputError: the text could be a path.
    """
    if len(name) <= _LONGEST:
        if (known := known_as(name)) in known_names():
            return known
        refuse_pipeline(name)
    if len(name) > _LONGEST or not _MODEL.fullmatch(name) or name.lower().endswith(_FILES):
        raise InputError(
            "a model must be given by name here, not as a file",
            given=repr(name[:_LONGEST]),
            allowed="such as resnet50, llama3_8b, timm/resnet26d",
            hint="for other models send the operations, as joulecast extract --json lists them",
        )
    return name


def checked_gpu(name: str) -> GPU:
    """Find a GPU of the catalogue. Raises UnknownNameError: the catalogue has no such name, as for every path."""
    if len(name) > _LONGEST or "/" in name or "\\" in name or name.lower().endswith(_FILES):
        raise UnknownNameError(
            "a GPU must be given by name here, not as a file",
            given=repr(name[:_LONGEST]),
            allowed="a name or alias of the catalogue",
            hint=_GPUS,
        )
    try:
        return find_gpu(name)
    except UnknownNameError as error:
        raise (with_next_step(error, _GPUS) if error.what == "unknown GPU" else error) from error


def checked_host(wanted: str | float | None) -> Host | str:
    """Find a host by name or factor, never the path of a profile; "25 ms" stays as it is, because only engines know it.

    Raises UnknownNameError, InputError: there is none.
    """
    if isinstance(wanted, str) and is_wait(wanted):
        return wanted
    if isinstance(wanted, str) and wanted != USUAL.name and wanted not in hosts():
        raise unknown_name("host", wanted, hosts(), hint="or a factor such as 0.5")
    return find_host(wanted)


def checked_prices(price: float | str | Mapping[str, float] | None) -> float | str | dict[str, float] | None:
    """Prices by GPU, one price for all, or a cloud. Raises UnknownNameError: there is no such GPU."""
    if not isinstance(price, Mapping):
        return price
    for name in price:
        checked_gpu(name)
    return dict(price)


def plain_clock(clock_mhz: Any) -> Any:
    """A clock, or several, as a user would write it, because errors repeat it: 900, not 900.0."""
    if isinstance(clock_mhz, list):
        return [*map(plain_clock, clock_mhz)]
    return int(clock_mhz) if clock_mhz is not None and clock_mhz.is_integer() else clock_mhz


def arguments_of(question: BaseModel) -> dict[str, Any]:
    """What a question asks, under the names of the library's arguments.

    Hosts and prices are looked up by name. Raises UnknownNameError, InputError: there is no such host or GPU.
    """
    asked: dict[str, Any] = {}
    for field, value in question:
        asked[_ARGUMENTS.get(field, field)] = _CHECKS[field](value) if field in _CHECKS and value is not None else value
    return asked


_ARGUMENTS = {field: argument for argument, field in NAMES.items()}
_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "clock_mhz": plain_clock,
    "clocks_mhz": plain_clock,
    "host": checked_host,
    "price_per_hour": checked_prices,
}


def with_next_step(error: UnknownNameError, listing: str) -> UnknownNameError:
    """Replace the next step of an error by one that works over HTTP, where files, modules and commands do not."""
    suggestion, asked, _ = (error.hint or "").partition("? ")
    hint = f"{suggestion}? {listing}" if asked else listing
    return UnknownNameError(error.what, given=error.given, allowed=error.allowed, hint=hint)


def checked_predictor(name: str | None, gpu: GPU | None = None, mode: str = "inference") -> str | None:
    """Check the name of a zoo entry, or of a predictor for which a GPU has an entry; without a GPU, for any.

    Raises UnknownNameError: there is no such entry, as for every path and every address of a registry.
    """
    if name is None:
        return None
    names = sorted({*entries(), *(each for each in pulled() if _PREDICTOR.fullmatch(each))})
    full = name if "/" in name or gpu is None else f"{gpu.slug}/{name}-{mode}"
    short = {each.partition("/")[2].rpartition("-")[0] for each in names} if gpu is None else set()
    if not _PREDICTOR.fullmatch(name) or full not in {*names, *short}:
        raise unknown_name("predictor", name[:_LONGEST], names, hint="/v1/zoo lists them")
    return full
