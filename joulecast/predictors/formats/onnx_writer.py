"""Messages of onnx.proto, as far as models of ours need them.

Source: https://github.com/onnx/onnx, onnx/onnx.proto
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .protobuf import bytes_field, number_field, packed_integers

# Fields of GraphProto.
NODE, INITIALIZER, INPUT, OUTPUT = 1, 5, 11, 12

_INT, _TENSOR, _INTS = 2, 4, 7  # AttributeProto.type
_TYPES = {np.dtype("<f4"): 1, np.dtype("u1"): 2, np.dtype("<i8"): 7}  # TensorProto.data_type


def whole(name: str, value: int) -> bytes:
    """An attribute with an integer that is not negative."""
    return _attribute(name, _INT, number_field(3, value))


def integers(name: str, values: NDArray[np.int64]) -> bytes:
    """An attribute with integers that are not negative."""
    return _attribute(name, _INTS, bytes_field(8, packed_integers(values)))


def array(name: str, values: NDArray[Any]) -> bytes:
    """An attribute with a tensor."""
    return _attribute(name, _TENSOR, bytes_field(5, _tensor(values)))


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], *attributes: bytes, domain: str = "") -> bytes:
    """A node of a graph."""
    return bytes_field(
        NODE,
        *(bytes_field(1, name.encode()) for name in inputs),
        *(bytes_field(2, name.encode()) for name in outputs),
        bytes_field(4, operator.encode()),
        *attributes,
        bytes_field(7, domain.encode()),
    )


def initializer(name: str, values: NDArray[Any]) -> bytes:
    """A constant of a graph."""
    return bytes_field(INITIALIZER, _tensor(values), bytes_field(8, name.encode()))


def value(field: int, name: str, dtype: type[np.generic], shape: Sequence[str | int]) -> bytes:
    """An input or output of a graph; sizes that are free have a name."""
    sizes = (
        bytes_field(1, number_field(1, size) if isinstance(size, int) else bytes_field(2, size.encode()))
        for size in shape
    )
    tensor = bytes_field(1, number_field(1, _TYPES[np.dtype(dtype)]), bytes_field(2, *sizes))
    return bytes_field(field, bytes_field(1, name.encode()), bytes_field(2, tensor))


def model(graph: Sequence[bytes], *, ir_version: int, **operator_sets: int) -> bytes:
    """A model: its graph, and the versions of the operators; `ml` for those of ai.onnx.ml, `default` for the others."""
    domains = {"default": "", "ml": "ai.onnx.ml"}
    return b"".join(
        [
            number_field(1, ir_version),
            bytes_field(7, *graph, bytes_field(2, b"joulecast")),
            *(
                bytes_field(8, bytes_field(1, domains[name].encode()), number_field(2, number))
                for name, number in operator_sets.items()
            ),
        ]
    )


def _attribute(name: str, kind: int, part: bytes) -> bytes:
    return bytes_field(5, bytes_field(1, name.encode()), part, number_field(20, kind))


def _tensor(values: NDArray[Any]) -> bytes:
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).reshape(values.shape)
    shape = b"".join(number_field(1, size) for size in values.shape)
    return shape + number_field(2, _TYPES[little.dtype]) + bytes_field(9, little.tobytes())
