"""The inputs of Nicolai's forests: a printed torch module and its input shape as a row of numbers, without torch.

As in his code (random_forest/ of github.com/ConstantinNicolai/ml-operator-profiling): the kind one-hot; of each
attribute its value and a flag that says whether the kind has it, -1 and 0 where not; of a pair both numbers and one
flag; the four sizes of the input with flags; and the clock. Dilation and groups are no inputs of his.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import numpy as np

ATTRIBUTES = (
    "bias",
    "in_channels",
    "out_channels",
    "kernel_size",
    "padding",
    "stride",
    "in_features",
    "out_features",
    "inplace",
    "affine",
    "eps",
    "momentum",
    "num_features",
    "p",
    "output_size",
)
MISSING = -1.0
# What a module has and does not print, or prints without a name.
POSITIONAL = {"Conv2d": ("in_channels", "out_channels"), "BatchNorm2d": ("num_features",)}
DEFAULTS: dict[str, dict[str, Any]] = {
    "Conv2d": {"bias": True, "padding": (0, 0)},
    "BatchNorm2d": {"bias": True},
    "LayerNorm": {"bias": True},
    "LayerNorm2d": {"bias": True},
    "ReLU": {"inplace": False},
    "SiLU": {"inplace": False},
    "Dropout": {"inplace": False},
}

Cells = dict[str, float]


def attributes_of(module: str) -> tuple[str, dict[str, Any]]:
    """Class of a printed module, and those of its attributes that are in ATTRIBUTES."""
    call = ast.parse(module, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise TypeError(f"{module!r} is not a printed module, such as ReLU(inplace=True)")
    kind = call.func.id
    found = dict(DEFAULTS.get(kind, {}))
    found |= {name: ast.literal_eval(value) for name, value in zip(POSITIONAL.get(kind, ()), call.args, strict=False)}
    found |= {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg in ATTRIBUTES}
    return kind, found


def cells_of(module: str, shape: Sequence[int], clock_mhz: float) -> Cells:
    """Names and values of what a forest sees of a measurement; a name that another kind lacks is filled in later."""
    kind, found = attributes_of(module)
    cells: Cells = {f"type_{kind}": 1.0}
    for name in ATTRIBUTES:
        value = found.get(name)
        if isinstance(value, tuple):
            cells |= {f"{name}_{place}": float(each) for place, each in enumerate(value[:2])}
            cells[f"{name}_tuple_applicable"] = 1.0
        else:
            cells[name] = MISSING if value is None else float(value)
            cells[f"{name}_applicable"] = float(value is not None)
    for place in range(4):
        cells[f"input_size_{place}"] = float(shape[place]) if place < len(shape) else MISSING
        cells[f"input_size_{place}_applicable"] = float(place < len(shape))
    cells["clockspeed"] = clock_mhz
    return cells


def matrix_of(rows: Sequence[Cells]) -> tuple[np.ndarray, list[str]]:
    """All rows with the same columns, and their names: no flag and no kind is 0, no value is -1."""
    names = sorted({name for row in rows for name in row})
    absent = [0.0 if name.endswith("_applicable") or name.startswith("type_") else MISSING for name in names]
    columns = list(zip(names, absent, strict=True))
    return np.array([[row.get(name, default) for name, default in columns] for row in rows]), names
