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
_BYTES = 2  # Wire type of texts, bytes and messages; that of integers is 0.
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
    fields = ((5, _attribute(name, value)) for name, value in attributes.items())
    node = _message((1, taken[0]), (2, given[0]), (4, operator), *fields, (7, "ai.onnx.ml"))
    graph = _message((1, node), (2, "joulecast"), (11, _rows(*taken)), (12, _rows(*given)))
    versions = ((8, _message((1, domain), (2, version))) for domain, version in (("ai.onnx.ml", 5), ("", 21)))
    return _message((1, _IR_VERSION), (7, graph), *versions)


def _rows(name: str, columns: int) -> bytes:
    """An input or output of a graph: any number of rows."""
    sizes = _message((1, _message((2, "rows"))), (1, _message((1, columns))))
    tensor = _message((1, _TYPES[np.dtype(np.float32)]), (2, sizes))
    return _message((1, name), (2, _message((1, tensor))))


def _attribute(name: str, value: int | NDArray[Any]) -> bytes:
    if isinstance(value, int):
        return _message((1, name), (3, value), (20, _INT))
    if value.dtype == np.int64:
        return _message((1, name), (8, packed_integers(value)), (20, _INTS))
    little = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
    tensor = _message(*((1, size) for size in value.shape), (2, _TYPES[little.dtype]), (9, little.tobytes()))
    return _message((1, name), (5, tensor), (20, _TENSOR))


def _message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """A message of Protocol Buffers: the number and the value of each field.

    A value is an integer that is not negative, a text, or bytes, such as another message.
    """
    found = []
    for number, value in fields:
        if isinstance(value, int):
            found += [_integer(number << 3), _integer(value)]
        else:
            data = value.encode() if isinstance(value, str) else value
            found += [_integer(number << 3 | _BYTES), _integer(len(data)), data]
    return b"".join(found)


def _integer(value: int) -> bytes:
    return packed_integers(np.array([value]))


def packed_integers(values: NDArray[np.int64]) -> bytes:
    """Numbers that are not negative, one after the other, all with as many bytes as the largest needs.

    Each byte has seven bits of a number, the lowest first, and its highest bit says that more bytes follow.
    """
    count = max(1, -(-int(values.max(initial=0)).bit_length() // 7))
    septets = values[:, None] >> (7 * np.arange(count)) & 0x7F
    septets[:, :-1] |= 0x80
    return septets.astype(np.uint8).tobytes()
