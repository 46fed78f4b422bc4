"""A multi-layer perceptron: a small neural network over features, stored as a few arrays and evaluated with numpy.

It differs from trees between and beyond measured sizes: trees repeat the nearest value that they saw, and a perceptron
continues the trend within the range of its inputs. The mean of both has smaller errors than either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import damaged_entry
from ..formats.arrays import arrays_to_bytes, known_arrays

Array = NDArray[np.float32]

_KIND = "perceptron"
_AT_ONCE = 512  # Rows per block, so that the values between two layers stay in the processor's cache.
_ROOT, _CUBIC, _ONE_HALF = np.float32((2 / np.pi) ** 0.5), np.float32(0.044715), np.float32(0.5)
_DIMENSIONS = {"lowest": 1, "highest": 1, "first": 2, "first_bias": 1, "layers": 4, "layers_bias": 3, "head": 1}
_DIMENSIONS |= {"head_bias": 1}
_MOST = 1 << 12  # Numbers along an axis.


@dataclass(frozen=True, eq=False)
class Perceptron:
    """A perceptron of residual pairs of layers with GELU activations.

    GELU was chosen because ReLU had larger errors on a left-out GPU (operations on the A100).

    Args:
        lowest, highest: Range of each input in training, shape (columns,); inputs are clipped to it.
        first, first_bias: Weights and biases of the first layer, shapes (columns, width) and (width,).
        layers, layers_bias: Weights and biases of the pairs, shapes (layers, 2, width, width) and (layers, 2, width).
        head, head_bias: Weights and bias of the output, shapes (width,) and (1,).
    """

    lowest: Array
    highest: Array
    first: Array
    first_bias: Array
    layers: Array
    layers_bias: Array
    head: Array
    head_bias: Array

    @property
    def columns(self) -> int:
        """Number of inputs."""
        return len(self.first)

    def __call__(self, inputs: Array) -> FloatArray:
        """One value per row of inputs."""
        # Computed in double precision and rounded to single precision at the end. Matrix products add in another order
        # for another number of rows, but no bit of a row's value may depend on the other rows.
        parts = [np.empty(0, dtype=np.float32)]
        for first in range(0, len(inputs), _AT_ONCE):
            some = np.clip(inputs[first : first + _AT_ONCE], self.lowest, self.highest)
            parts.append(values_of(self._doubles, some, gelu).astype(np.float32))
        return np.concatenate(parts).astype(np.float64)

    @cached_property
    def _doubles(self) -> dict[str, FloatArray]:
        """The arrays in double precision."""
        return {name: getattr(self, name).astype(float) for name in _DIMENSIONS}

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
        return arrays_to_bytes({name: getattr(self, name) for name in _DIMENSIONS}, {"kind": _KIND})

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        """Read what `to_bytes` wrote.

        Raises ZooError: the bytes are damaged or are not a perceptron, shapes do not match, or a number is not finite.
        """
        known = {name: ("float32", dimensions) for name, dimensions in _DIMENSIONS.items()}
        arrays, _ = known_arrays(stored, _KIND, "a stored perceptron", known)
        (columns, width), layers = arrays["first"].shape, len(arrays["layers"])
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("lowest", "highest"), (columns,))
        shapes |= {"first": (columns, width), "first_bias": (width,), "head": (width,), "head_bias": (1,)}
        shapes |= {"layers": (layers, 2, width, width), "layers_bias": (layers, 2, width)}
        given = {name: array.shape for name, array in arrays.items()}
        finite = all(np.isfinite(array).all() for array in arrays.values())
        if given != shapes or not finite or not 0 < min(columns, width, layers) <= max(columns, width, layers) <= _MOST:
            reason = "a stored perceptron is damaged: other shapes than expected, or numbers that are not finite"
            raise damaged_entry(reason, given, f"finite numbers, {shapes}, up to {_MOST} along an axis")
        return cls(**arrays)


def values_of(weights: Mapping[str, Any], inputs: Any, bend: Callable[[Any], Any]) -> Any:
    """The arithmetic of a perceptron, with arrays of numpy or of torch; one value per row of inputs.

    Args:
        weights: The arrays of a `Perceptron` by their names.
        inputs: Shape (rows, columns), within the range of training.
        bend: GELU of the arrays' library.
    """
    found = bend(inputs @ weights["first"] + weights["first_bias"])
    for (inner, outer), (inner_bias, outer_bias) in zip(weights["layers"], weights["layers_bias"], strict=True):
        found = found + (bend(found @ inner + inner_bias) @ outer + outer_bias)
    return found @ weights["head"] + weights["head_bias"]


def gelu(values: FloatArray) -> FloatArray:
    """As torch.nn.GELU(approximate="tanh"): Hendrycks and Gimpel, 2016, https://arxiv.org/abs/1606.08415."""
    bent: FloatArray = np.tanh(_ROOT * values * (1 + _CUBIC * values * values))
    bent += 1
    bent *= values
    bent *= _ONE_HALF
    return bent
