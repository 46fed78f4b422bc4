"""Writes ONNX models, as far as models of ours need them, and imports ONNX Runtime, which computes them.

Sources: https://github.com/onnx/onnx, onnx/onnx.proto; https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ZooError
from ...system.regular_files import first_line

_IR_VERSION = 10
_INT, _TENSOR, _INTS = 2, 4, 7  # AttributeProto.type
_TYPES = {np.dtype("<f4"): 1, np.dtype("u1"): 2, np.dtype("<i8"): 7}  # TensorProto.data_type
_VARINT, _BYTES = 0, 2  # wire types of Protocol Buffers
_SWITCH = "ORT_DISABLE_TELEMETRY"
_IMPORT = Lock()


def session(model: bytes, what: str, allowed: str, hint: str) -> Any:
    """ONNX Runtime for a model, in one thread: starting more takes longer than they save for tens of operations.

    Raises ZooError: ONNX Runtime cannot load it.
    """
    # Imported here, because measurements are collected on machines without ONNX Runtime.
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # Fatal errors only: all others are raised as exceptions, too.
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # The exception classes of onnxruntime have no common base.
        given = f"onnxruntime {onnxruntime.__version__}: {first_line(error)}"
        raise ZooError(f"ONNX Runtime cannot compute {what}", given=given, allowed=allowed, hint=hint) from error


def import_onnxruntime() -> ModuleType:
    """Import ONNX Runtime without its telemetry.

    Unless an environment variable turns that off at the moment of the import, importing it writes a device id into the
    home folder, and looks up a host of Microsoft.
    """
    # A module that another thread still imports is in `sys.modules` already, without most of its names.
    with _IMPORT:
        if "onnxruntime" in sys.modules:
            return sys.modules["onnxruntime"]
        before = os.environ.get(_SWITCH)
        os.environ[_SWITCH] = "1"
        try:
            import onnxruntime
        finally:
            if before is None:
                del os.environ[_SWITCH]
            else:
                os.environ[_SWITCH] = before
        onnxruntime.disable_telemetry_events()
        found: ModuleType = onnxruntime
        return found


def model(
    operator: str, attributes: Mapping[str, int | NDArray[Any]], taken: tuple[str, int], given: tuple[str, int]
) -> bytes:
    """A model of one operator of ai.onnx.ml, from rows of numbers in single precision to other rows.

    Args:
        operator: Its name.
        attributes: Name -> an integer or an array; integers are not negative.
        taken: Name of the input, and how many numbers a row has.
        given: Name of the output, and how many numbers a row has.
    """
    node = _bytes_field(
        1,
        _text_field(1, taken[0]),
        _text_field(2, given[0]),
        _text_field(4, operator),
        *(_attribute(name, value) for name, value in attributes.items()),
        _text_field(7, "ai.onnx.ml"),
    )
    ends = _rows(11, *taken), _rows(12, *given), _text_field(2, "joulecast")
    versions = (
        _bytes_field(8, _text_field(1, domain), _number_field(2, version))
        for domain, version in (("ai.onnx.ml", 5), ("", 21))
    )
    return b"".join([_number_field(1, _IR_VERSION), _bytes_field(7, node, *ends), *versions])


def _rows(field: int, name: str, columns: int) -> bytes:
    """An input or output of a graph: any number of rows."""
    sizes = _bytes_field(1, _text_field(2, "rows")), _bytes_field(1, _number_field(1, columns))
    tensor = _bytes_field(1, _number_field(1, _TYPES[np.dtype(np.float32)]), _bytes_field(2, *sizes))
    return _bytes_field(field, _text_field(1, name), _bytes_field(2, tensor))


def _attribute(name: str, value: int | NDArray[Any]) -> bytes:
    if isinstance(value, int):
        kind, part = _INT, _number_field(3, value)
    elif value.dtype == np.int64:
        kind, part = _INTS, _bytes_field(8, packed_integers(value))
    else:
        kind, part = _TENSOR, _bytes_field(5, _tensor(value))
    return _bytes_field(5, _text_field(1, name), part, _number_field(20, kind))


def _tensor(values: NDArray[Any]) -> bytes:
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).reshape(values.shape)
    shape = b"".join(_number_field(1, size) for size in values.shape)
    return shape + _number_field(2, _TYPES[little.dtype]) + _bytes_field(9, little.tobytes())


def _varint(value: int) -> bytes:
    """A number that is not negative, seven bits in each byte; the highest bit says that more follow."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _number_field(number: int, value: int) -> bytes:
    """A field with a number that is not negative."""
    return _varint(number << 3 | _VARINT) + _varint(value)


def _bytes_field(number: int, *parts: bytes) -> bytes:
    """A field with bytes, a text or a message, put together from its parts."""
    data = b"".join(parts)
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def _text_field(number: int, text: str) -> bytes:
    return _bytes_field(number, text.encode())


def packed_integers(values: NDArray[np.int64]) -> bytes:
    """Numbers that are not negative, one after the other as a packed field holds them; see `_varint`."""
    unsigned = values.astype(np.uint64)
    widest = max(1, -(-int(unsigned.max(initial=0)).bit_length() // 7))
    # A row for each number, a column for each seven bits of it; what is above its highest bit is left out.
    rest = unsigned[:, None] >> (7 * np.arange(widest, dtype=np.uint64))
    more = (rest > 0x7F).astype(np.uint8) << 7
    there = rest > 0
    there[:, 0] = True
    septets = rest.astype(np.uint8) & 0x7F | more
    return septets[there].tobytes()
