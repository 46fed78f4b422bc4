"""Converts values in the JSON of a program of `torch.export` to Python values.

Each value is an object with one key, its type: torch/_export/serde/schema.py of PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..known_values import NeedsValuesError

# ScalarType and MemoryFormat of the same file.
DTYPES: Mapping[int, torch.dtype] = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    10: torch.complex64,
    11: torch.complex128,
    12: torch.bool,
    13: torch.bfloat16,
    29: torch.float8_e4m3fn,
    30: torch.float8_e5m2,
}
_MEMORY_FORMATS = {
    1: torch.contiguous_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
    4: torch.preserve_format,
}


def size_of(size: Mapping[str, Any]) -> int:
    """A size, or the one that a variable size had when the model was exported."""
    value = size.get("as_int", None)
    return int(size["as_expr"]["hint"]["as_int"] if value is None else value)


def bind(output: Mapping[str, Any], result: Any, values: dict[str, Any]) -> None:
    """Store the results of a node under their names in the graph."""
    ((sort, content),) = output.items()
    if sort == "as_tensors":
        for item, one in zip(content, result, strict=True):
            values[item["name"]] = one
    elif isinstance(content, Mapping) and (name := content.get("name") or content.get("as_name")):
        values[name] = result


def value_of(argument: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """An argument as a Python value.

    Args:
        argument: The argument as the program writes it.
        values: Name -> result of the nodes that have run.

    Raises:
        NeedsValuesError: The type of the argument exists only after the program is loaded by torch.
    """
    ((sort, content),) = argument.items()
    match sort:
        case "as_none":
            return None
        case "as_tensor":
            return values[content["name"]]
        case "as_tensors":
            return [values[item["name"]] for item in content]
        case "as_optional_tensor":
            return value_of(content, values)
        case "as_optional_tensors" | "as_sym_ints" | "as_sym_bools" | "as_sym_floats":
            return [value_of(item, values) for item in content]
        case "as_sym_int" | "as_sym_bool" | "as_sym_float":
            return value_of(content, values)
        case "as_name":
            return values[content]
        case "as_scalar_type":
            return DTYPES[content]
        case "as_memory_format":
            return _MEMORY_FORMATS[content]
        case "as_layout":
            return torch.strided
        case "as_device":
            return torch.device("meta")
        case "as_complex":
            return complex(content["real"], content["imag"])
        case "as_float":
            return float(content)  # JSON has no infinity, so it is a text
        case "as_floats":
            return list(map(float, content))
        case "as_int" | "as_ints" | "as_bool" | "as_bools" | "as_string" | "as_strings":
            return content
    raise NeedsValuesError(f"an argument of the kind {sort} cannot be read without loading the program")
