"""Errors of the library in words of the command line: `--price-per-hour` where the library says price_per_hour."""

from __future__ import annotations

import re

from .options import TABLES

_ARGUMENTS = {
    row["to"] if isinstance(row, dict) and "to" in row else name: name for name, row in TABLES["shared"].items()
}
_OPTIONS = {
    # Single words stand in many sentences, so only the forms that name the argument are listed.
    **{argument: f"--{name.replace('_', '-')}" for argument, name in _ARGUMENTS.items() if "_" in argument},
    "carbon: grams": "--carbon: grams",
    "expert_parallel": "--expert-parallel",
    "input_shape": "SHAPE",
    "max_power_w": "--max-power",
    "max_time_s": "--max-time",
    "tensor_parallel": "--tensor-parallel",
    "a shape such as (32, 3, 224, 224), a list of shapes, a dictionary of name and shape; or example tensors": (
        "a SHAPE such as 32,3,224,224; for several inputs one for each, or name=shape"
    ),
}
# Names in quotes are those of columns and keys, which stay.
_NAMES = re.compile("|".join(rf"(?<![\w\"]){re.escape(name)}(?!\w)" for name in _OPTIONS))


def in_option_words(message: str) -> str:
    """A message of the library, with options in place of the arguments that they stand for."""
    return _NAMES.sub(lambda found: _OPTIONS[found[0]], message)
