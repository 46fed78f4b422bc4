"""Numbers at rest. In JSON they are checked, so that a wrong one causes an error on loading and not later.

Arrays are in the safetensors format: a header of JSON with types and shapes, then the numbers. No code. They are
written and read with numpy alone, so that predicting needs no library for it; any safetensors reader opens the files.
Source: https://huggingface.co/docs/safetensors, "Format".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...checked import number as number  # of this module, too
from ...errors import InputError, ZooError, damaged_entry

_MOST_TEXT = 200


@contextmanager
def refusing_damage(where: str, what: str = "this zoo entry is damaged") -> Iterator[None]:
    """Turn every exception that damaged content causes into a `ZooError` with the message `what`.

    Numbers out of range cause no warning here, because the golden prediction shows them later. Raises ZooError: the
    content is damaged.
    """
    try:
        with np.errstate(all="ignore"):
            yield
    except ZooError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError) as error:
        cause = error.what if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        raise damaged_entry(what, f"{where}: {cause}"[:400]) from error


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Check that all values of a mapping from a file are finite numbers, and return name -> float.

    Raises TypeError: a value is not a finite number.
    """
    return {str(name): number(value) for name, value in values.items()}


def number_array(values: Any) -> NDArray[np.float64]:
    """An array of finite numbers, from a list or from a text of numbers separated by spaces.

    Raises TypeError, ValueError: a value is not a finite number.
    """
    found = np.array(values.split() if isinstance(values, str) else values, dtype=float)
    if found.ndim != 1 or not np.isfinite(found).all():
        raise TypeError(f"finite numbers are expected, not {str(values)[:40]!r}")
    return found


def sorted_errors(values: Any) -> NDArray[np.float64]:
    """Absolute errors from a file, in ascending order; there may be none.

    Raises TypeError, ValueError: they are not numbers, not ascending, or negative.
    """
    found = number_array(values)
    if len(found) and (found[0] < 0 or np.any(np.diff(found) < 0)):
        raise ValueError("errors must not be negative, and must ascend")
    return found


def errors_to_text(errors: Mapping[str, NDArray[np.float64]]) -> dict[str, str]:
    """Errors as text that `sorted_errors` reads. As JSON lists with one number on a line, they would fill an entry."""
    return {quantity: " ".join(f"{error:.4g}" for error in values) for quantity, values in errors.items()}


def require_features(found: object, known: Sequence[str], of: object) -> None:
    """Require that the names of a stored predictor's features, in a file of this name, are those of this version.

    Raises ZooError: they are others, in another order, or something else.
    """
    if found != list(known):
        raise ZooError(
            "this zoo entry was trained with other features than this version computes",
            given=f"{of}: {str(found)[:_MOST_TEXT]}",
            allowed=f"{len(known)} features: {', '.join(known)[:_MOST_TEXT]}",
            hint="train it again",
        )


_TYPES: Mapping[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_MOST_HEADER_BYTES = 1 << 20
_MOST_DIMENSIONS = 8


def arrays_to_bytes(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, str] | None = None) -> bytes:
    """Serialize arrays; the same arrays give the same bytes."""
    header: dict[str, Any] = {"__metadata__": dict(sorted(facts.items()))} if facts else {}
    parts, at = [], 0
    for name, array in sorted(arrays.items()):
        part = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        shape = list(array.shape)
        header[name] = {"dtype": _NAMES[array.dtype], "shape": shape, "data_offsets": [at, at + len(part)]}
        parts.append(part)
        at += len(part)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # as the format wants it, so that numbers are aligned
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def arrays_from_bytes(data: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Read what `arrays_to_bytes` wrote: arrays that cannot be written to, and texts.

    Raises ZooError: the bytes are damaged, or an array has a type that is not supported.
    """
    with refusing_damage("the safetensors format", "a file of arrays in a zoo entry is damaged"):
        size = int.from_bytes(data[:8], "little")
        if len(data) < 8 or size > min(_MOST_HEADER_BYTES, len(data) - 8):
            raise ValueError("the header is longer than the file")
        header = json.loads(data[8 : 8 + size])
        facts = header.pop("__metadata__", {})
        if not all(isinstance(value, str) for value in facts.values()):
            raise TypeError("a fact is not a text")
        numbers = memoryview(data)[8 + size :]
        arrays, taken = {}, 0
        for name, fact in header.items():
            dtype, shape, (start, end) = _TYPES[fact["dtype"]], fact["shape"], fact["data_offsets"]
            whole = [*shape, start, end]
            if len(shape) > _MOST_DIMENSIONS or any(type(n) is not int or n < 0 for n in whole) or end > len(numbers):
                raise ValueError(f"the shape or the offsets of {name} are impossible")
            if math.prod(shape) * dtype.itemsize != end - start:
                raise ValueError(f"the size of {name} does not match its shape")
            arrays[name] = np.frombuffer(numbers[start:end], dtype).reshape(shape)
            taken += end - start
        if taken != len(numbers):
            raise ValueError("some bytes belong to no array, or to several")
        return arrays, dict(facts)


def known_arrays(
    data: bytes, kind: str, known: Mapping[str, tuple[str, int]]
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Read arrays of which all is known but their lengths.

    Raises ZooError: the bytes are damaged. Raises ValueError: they are of another kind, or lack an array, have one
    more, or one of another form.

    Args:
        data: What `arrays_to_bytes` wrote.
        kind: What the texts must say under "kind".
        known: Name of each array -> its type, such as "float32", and number of dimensions.
    """
    arrays, facts = arrays_from_bytes(data)
    found = {name: (array.dtype, array.ndim) for name, array in arrays.items()}
    expected = {name: (np.dtype(dtype), dimensions) for name, (dtype, dimensions) in known.items()}
    if facts.get("kind") != kind or found != expected:
        off = sorted({name for name, _ in found.items() ^ expected.items()})
        raise ValueError(f"no {kind}: kind {facts.get('kind')}, arrays {', '.join(off)[:150]}")
    return arrays, facts
