"""A GPU in TOML: how a description becomes a GPU, and a GPU a description."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from ..checked import is_number
from ..errors import InputError
from ..operations.attributes import PRECISIONS
from ..system.regular_files import MOST_BYTES, read_regular, refusing_damage
from .gpu import GPU, MEMORY_LEVELS, IdleCurve, VoltageCurve


@cache
def multiprocessors() -> Mapping[str, Mapping[str, Any]]:
    """Compute capability ("8.0") or AMD's LLVM target ("gfx90a") -> memory of a multiprocessor, and its source.

    On AMD's GPUs it is that of a compute unit. On NVIDIA's from Volta on, l1_bytes includes the shared memory, of which
    kernels may use shared_memory_bytes at most.
    """
    text = files(__package__).joinpath("gpus", "multiprocessors.toml").read_text(encoding="utf-8")
    return {row["compute_capability"]: row for row in tomllib.loads(text)["multiprocessor"]}


_HINT = "docs/gpus.md describes every field, and has an example"


class _Field(NamedTuple):
    """What may be written for a field of a GPU, in words and as a test, and what becomes of it."""

    allowed: str
    holds: Callable[[Any], bool]
    made: Callable[[Any], Any] = lambda value: value


def _matching(pattern: str, allowed: str) -> _Field:
    return _Field(allowed, lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None)


def _is_text(value: object, most: int = 1000) -> bool:
    return isinstance(value, str) and bool(value.strip()) and len(value) <= most


def _number(low: float, high: float, unit: str, *, whole: bool = False) -> _Field:
    # The bounds are wide, but catch values in a wrong unit, such as 933 for 933 GB/s.
    return _Field(
        f"a {'whole ' if whole else ''}number of {unit} between {low:g} and {high:g}",
        lambda value: is_number(value, low, high, int if whole else int | float),
    )


def _are_numbers(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(is_number(each, 1, 1e5) for each in value)


def _is_table(value: object, keys: Iterable[str], low: float, high: float) -> bool:
    return isinstance(value, dict) and {*value} == {*keys} and all(is_number(x, low, high) for x in value.values())


def _floats(value: Mapping[str, Any]) -> Mapping[str, float]:
    return {key: float(number) for key, number in value.items()}


def _is_idle_curve(value: Any) -> bool:
    if not isinstance(value, dict) or {*value} != {*_IDLE} or not all(map(_are_numbers, value.values())):
        return False
    clocks, powers = (value[name] for name in _IDLE)
    return len(clocks) == len(powers) and clocks == sorted(set(clocks))


_IDLE = ("clock_mhz", "power_w")
_VOLTAGE = ("flat_mv", "knee_mhz", "top_mhz", "top_mv", "bend")


def _is_voltage(value: Any) -> bool:
    if not _is_table(value, _VOLTAGE, 0.1, 1e5):
        return False
    return bool(value["knee_mhz"] < value["top_mhz"] and value["flat_mv"] <= value["top_mv"])


_WORDS = _Field("a text of up to 1000 characters", _is_text)
_TEXTS = _Field(
    'a list of texts, such as ["A30"]',
    lambda value: isinstance(value, list) and bool(value) and all(map(_is_text, value)),
    tuple,
)
_RATES = _Field(
    f"a table of FLOP/s between 1e9 and 1e17 by precision: fp32, and any of {', '.join(PRECISIONS[1:])}",
    lambda value: (
        isinstance(value, dict)
        and "fp32" in value
        and _is_table(value, [precision for precision in PRECISIONS if precision in value], 1e9, 1e17)
    ),
    _floats,
)
_CLOCK = _number(1, 1e4, "MHz", whole=True)

_FIELDS: dict[str, _Field] = {
    "name": _Field("a text of up to 100 characters", lambda value: _is_text(value, 100)),  # a part of a path
    **dict.fromkeys(("aliases", "sources"), _TEXTS),
    **dict.fromkeys(("architecture", "chip", "process"), _WORDS),
    "compute_capability": _matching(
        # A pattern, because float("nan") would accept the text "nan".
        r"[0-9]{1,2}\.[0-9]|[a-z]+(-[a-z]+)*[0-9][0-9a-z]*",
        'a compute capability, such as "8.0", or an LLVM target, such as "gfx90a"',
    ),
    "released": _matching(r"\d{4}-(0[1-9]|1[0-2])", 'year and month, such as "2020-05"'),
    "sms": _number(1, 1e4, "multiprocessors", whole=True),
    **dict.fromkeys([f"{which}_clock_mhz" for which in ("base", "boost", "tensor", "min", "max")], _CLOCK),
    "clock_step_mhz": _number(0.1, 1e3, "MHz"),
    "memory_type": _matching(
        r"(HBM|GDDR|LPDDR)\d*\w*",
        'a type of memory: "HBM2e", "GDDR6", "LPDDR5" or another one of these three families',
    ),
    "inline_ecc": _Field(
        "true if error correction takes a part of the memory, as on T4, A10 and L4, otherwise false",
        lambda value: isinstance(value, bool),
    ),
    "memory_bytes": _number(1e8, 1e14, "bytes", whole=True),
    "memory_bandwidth": _number(1e9, 1e15, "bytes per second"),
    "memory_bus_bits": _number(8, 1e5, "bits", whole=True),
    "memory_rate": _number(1e8, 1e12, "bits per second and pin"),
    **dict.fromkeys(("l2_bytes", "infinity_cache_bytes"), _number(1e4, 1e12, "bytes", whole=True)),
    **dict.fromkeys(("l1_bytes", "shared_memory_bytes"), _number(1e3, 1e7, "bytes", whole=True)),
    "link_bandwidth": _number(1e9, 1e14, "bytes per second"),
    "link_gpus": _number(2, 1e4, "GPUs", whole=True),
    "pcie_bandwidth": _number(1e8, 1e13, "bytes per second"),
    **dict.fromkeys(("power_limit_w", "idle_power_w"), _number(1, 1e4, "watts")),
    "power_range_w": _Field("a list of numbers of watts", _are_numbers, tuple),
    **dict.fromkeys(("peak_flops", "vector_flops"), _RATES),
    "tensor_precisions": _Field(
        f"a list of precisions, which may be empty, of {', '.join(PRECISIONS)}",
        lambda value: isinstance(value, list) and all(isinstance(each, str) and each in PRECISIONS for each in value),
        tuple,
    ),
    "idle_curve": _Field(
        "a table of clock_mhz and power_w: as many power_w as clock_mhz, of 1 MHz and 1 watts or more, clocks rising",
        _is_idle_curve,
        lambda value: IdleCurve(tuple(value["clock_mhz"]), tuple(value["power_w"])),
    ),
    "voltage": _Field(
        f"a table of {', '.join(_VOLTAGE)} from 0.1 to 1e5, knee_mhz below top_mhz, and flat_mv not above top_mv",
        _is_voltage,
        lambda value: VoltageCurve(**_floats(value)),
    ),
    "access_energy_j": _Field(
        f"a table of {', '.join(MEMORY_LEVELS)}: joules per access to 32 bytes, between 1e-12 and 1e-07",
        lambda value: _is_table(value, MEMORY_LEVELS, 1e-12, 1e-7),
        _floats,
    ),
}
_REQUIRED = [field.name for field in fields(GPU) if field.default is MISSING and field.name != "aliases"]


def _quoted(keys: Iterable[str]) -> str:
    # In quotes, because the command line writes its options in place of the library's arguments of the same name.
    return ", ".join(f'"{key}"' for key in keys)


def described_gpu(row: Mapping[str, object], where: str) -> GPU:
    """Make a GPU from a table of its figures: field -> value, as in the catalogue.

    Without aliases, the GPU has only its name. Without l1_bytes and shared_memory_bytes, these are taken from the
    compute capability, if it is known. Raises InputError: a field is unknown, missing, of another type or out of range,
    or two contradict each other.
    """
    for key in row:
        if key not in _FIELDS:
            close = difflib.get_close_matches(key, _FIELDS, n=1)
            hint = f'did you mean "{close[0]}"? {_HINT}' if close else _HINT
            raise InputError(f"unknown field in {where}", given=key, allowed=_quoted(_FIELDS), hint=hint)
    missing = [key for key in _REQUIRED if key not in row]
    if missing:
        raise InputError(
            f"{where} lacks {_quoted(missing)}",
            given=_quoted(row) or "nothing",
            allowed="; ".join(f'"{key}": {_FIELDS[key].allowed}' for key in missing),
            hint=_HINT,
        )
    values: dict[str, object] = {"aliases": (row["name"],)}
    memory = multiprocessors().get(str(row["compute_capability"]), {})
    values |= {name: memory[name] for name in ("l1_bytes", "shared_memory_bytes") if name in memory}
    for key, value in row.items():
        field = _FIELDS[key]
        if not field.holds(value):
            raise InputError(
                f'"{key}" in {where} is out of range or of the wrong type',
                given=repr(value),
                allowed=field.allowed,
                hint=_HINT,
            )
        values[key] = field.made(value)
    return GPU(**values)  # type: ignore[arg-type]  # each value is checked by its field


def read_gpu(path: str | Path) -> GPU:
    """Read a GPU from a TOML file: the fields of a catalogue entry, with or without the line `[[gpu]]`.

    Raises InputError: the file cannot be read, is not TOML, or does not describe exactly one GPU.
    """
    path = Path(path)
    text = read_regular(path, MOST_BYTES, "this description of a GPU")
    try:
        data: dict[str, object] = tomllib.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise InputError("a GPU description is not valid TOML", given=f"{path}: {error}", hint=_HINT) from None
    if set(data) == {"gpu"}:
        entries = data["gpu"]
        if not isinstance(entries, list) or len(entries) != 1 or not isinstance(entries[0], dict):
            raise InputError(
                "a file must describe exactly one GPU",
                given=f"{path}: not one",
                allowed="a single [[gpu]] table, or the fields without a table",
                hint=_HINT,
            )
        data = entries[0]
    with refusing_damage("a value in this description of a GPU has the wrong type", path):
        return described_gpu(data, str(path))


def gpu_toml(gpu: GPU) -> str:
    """The known figures of a GPU, one per line. `read_gpu` reads this text."""
    # An empty list of tensor_precisions says that there are no tensor cores; a missing one says that all use them.
    left_out = {"aliases": (), "sources": ()}
    figures = {name: value for name, value in asdict(gpu).items() if value is not None and value != left_out.get(name)}
    return "".join(f"{name} = {_value_text(value)}\n" for name, value in figures.items())


def _value_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_value_text(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value_text, value)) + "]"
    # JSON writes texts and numbers as TOML does.
    return json.dumps(value, ensure_ascii=False)
