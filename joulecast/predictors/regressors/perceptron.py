"""A multi-layer perceptron: a small neural network over features, stored as a few arrays and evaluated with numpy.

It differs from trees between and beyond measured sizes: trees repeat the nearest value that they saw, and a perceptron
continues the trend within the range of its inputs. The mean of both has smaller errors than either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import ZooError, damaged_entry
from ..formats.arrays import arrays_to_bytes, known_arrays

Array = NDArray[np.float32]

_KIND = "perceptron"
_AT_ONCE = 512  # Rows per block, so that the values between two layers stay in the processor's cache.
_ROOT, _CUBIC, _ONE_HALF = np.float32((2 / np.pi) ** 0.5), np.float32(0.044715), np.float32(0.5)
_DIMENSIONS = {"lowest": 1, "highest": 1, "first": 2, "first_bias": 1, "layers": 4, "layers_bias": 3, "head": 1}
_DIMENSIONS |= {"head_bias": 1}
_MOST = {"columns": 1 << 12, "width": 1 << 12, "layers": 64}


@dataclass(frozen=True, eq=False)
class Perceptron:
    """A perceptron of residual pairs of layers with GELU activations.

    GELU was chosen because ReLU had larger errors on a left-out GPU (operations on the A100).

    Args:
        lowest, highest: Range of each input in training, shape (columns,); inputs are clipped to it.
        first, first_bias: Weights and biases of the first layer, shapes (columns, width) and (width,).
        layers, layers_bias: Weights and biases of the pairs, shapes (layers, 2, width, width) and (layers, 2, width).
        head, head_bias: Weights and bias of the output, shapes (width,) and (1,).

    Raises:
        ZooError: Shapes that do not match, another type than fp32, or numbers that are not finite.
    """

    lowest: Array
    highest: Array
    first: Array
    first_bias: Array
    layers: Array
    layers_bias: Array
    head: Array
    head_bias: Array

    def __post_init__(self) -> None:
        ranks = {name: getattr(self, name).ndim for name in _DIMENSIONS}
        if ranks != _DIMENSIONS:
            raise _refused("an array has another number of dimensions", ranks, _DIMENSIONS)
        columns, width = self.first.shape
        layers = len(self.layers)
        sizes = {"columns": columns, "width": width, "layers": layers}
        for name, size in sizes.items():
            if not 0 < size <= _MOST[name]:
                raise _refused(f"the number of {name} is out of range", size, f"1 to {_MOST[name]}")
        expected: dict[str, tuple[int, ...]] = {
            "lowest": (columns,),
            "highest": (columns,),
            "first": (columns, width),
            "first_bias": (width,),
            "layers": (layers, 2, width, width),
            "layers_bias": (layers, 2, width),
            "head": (width,),
            "head_bias": (1,),
        }
        for name, shape in expected.items():
            array = getattr(self, name)
            if array.dtype != np.float32 or array.shape != shape or not np.isfinite(array).all():
                found = f"{array.dtype}, shape {array.shape}"
                wanted = f"finite numbers in float32, shape {shape}"
                raise _refused(f"{name} has another shape or type, or numbers that are not finite", found, wanted)

    @property
    def columns(self) -> int:
        """Number of inputs."""
        return len(self.first)

    def __call__(self, inputs: Array) -> FloatArray:
        """One value per row of inputs."""
        parts = [self._some(inputs[first : first + _AT_ONCE]) for first in range(0, len(inputs), _AT_ONCE)]
        return np.concatenate(parts or [np.empty(0, dtype=np.float32)]).astype(np.float64)

    def _some(self, inputs: Array) -> Array:
        # Computed in double precision and rounded to single precision at the end. Matrix products add in another order
        # for another number of rows, but no bit of a row's value may depend on the other rows.
        first, layers, head = self._doubles
        found = _gelu(np.clip(inputs, self.lowest, self.highest) @ first + self.first_bias)
        for (inner, outer), (inner_bias, outer_bias) in zip(layers, self.layers_bias, strict=True):
            found += _gelu(found @ inner + inner_bias) @ outer
            found += outer_bias
        values: Array = (found @ head + self.head_bias).astype(np.float32)
        return values

    @cached_property
    def _doubles(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The matrices in double precision."""
        return self.first.astype(float), self.layers.astype(float), self.head.astype(float)

    def to_files(self, name: str) -> dict[str, bytes]:
        """See `Regressor.to_files`."""
        return {f"{name}.safetensors": self.to_bytes()}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], name: str) -> Self | None:
        """Read what `to_files` wrote; None if there is no such file. Raises ZooError: the file is damaged."""
        stored = files.get(f"{name}.safetensors")
        return None if stored is None else cls.from_bytes(stored)

    def to_bytes(self) -> bytes:
        """The perceptron as safetensors; the same numbers give the same bytes."""
        return arrays_to_bytes({name: getattr(self, name) for name in self.__dataclass_fields__}, {"kind": _KIND})

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        """Read what `to_bytes` wrote. Raises ZooError: the bytes are damaged, or are not a perceptron."""
        known = {name: ("float32", dimensions) for name, dimensions in _DIMENSIONS.items()}
        return cls(**known_arrays(stored, _KIND, "a stored perceptron", known)[0])


def _gelu(values: FloatArray) -> FloatArray:
    """As torch.nn.GELU(approximate="tanh"): Hendrycks and Gimpel, 2016, https://arxiv.org/abs/1606.08415."""
    bent: FloatArray = np.tanh(_ROOT * values * (1 + _CUBIC * values * values))
    bent += 1
    bent *= values
    bent *= _ONE_HALF
    return bent


def _refused(reason: str, given: object, allowed: Any) -> ZooError:
    return damaged_entry(f"a stored perceptron is damaged: {reason}", given, allowed)
