"""Attributes of operations: the values that each may have, in words and as a check, and its default; and precisions.

A range concerns one attribute alone. Conditions that involve the input, such as groups that divide its channels, are
checked by the shape rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..checked import is_number

LARGEST = 2**31 - 1
"""The largest integer that an attribute may be. Kernels use 32-bit indices."""

REQUIRED = object()
"""Marks an attribute that has no default."""


@dataclass(frozen=True)
class Range:
    """The values that an attribute may have, in words such as "an integer from 1 to 9", and as a check.

    The argument of the check is a number, a text, a truth value, None, or a tuple of those.
    """

    text: str
    holds: Callable[[Any], bool]

    def or_none(self) -> Range:
        """A range that allows None as well."""
        return Range(f"{self.text}, or None", lambda value: value is None or self.holds(value))


@dataclass(frozen=True)
class Attribute:
    """An attribute of a kind of operation.

    The default may be a function of the input shapes; REQUIRED stands for none. A refinement was added to its kind
    later. JSON then contains it only if it differs from its default, so that operations that were written before keep
    their text and their digest.
    """

    values: Range
    default: Any = REQUIRED
    refinement: bool = False


def _is_integer(value: Any, least: int) -> bool:
    return type(value) is int and least <= value <= LARGEST


def _is_dimension(value: Any) -> bool:
    return type(value) is int and -64 <= value < 64  # Tensors of PyTorch have at most 64 dimensions.


def _one_or_several(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: bool(value) and all(map(holds, value)) if isinstance(value, tuple) else holds(value)


def integer(least: int) -> Range:
    """Integers that are at least `least`."""
    return Range(f"an integer from {least} to {LARGEST}", lambda value: _is_integer(value, least))


def sizes(least: int) -> Range:
    """An integer that is at least `least`, or one such integer for each spatial dimension."""
    text = f"an integer from {least} to {LARGEST}, or one for each spatial dimension"
    return Range(text, _one_or_several(lambda value: _is_integer(value, least)))


def one_of(*values: str) -> Range:
    """One of these texts."""
    return Range(" or ".join(map(repr, values)), lambda value: isinstance(value, str) and value in values)


def either(first: Range, second: Range) -> Range:
    """The values of both ranges."""
    return Range(f"{first.text}, or {second.text}", lambda value: first.holds(value) or second.holds(value))


IMPLEMENTATIONS: tuple[str, ...] = ("pytorch", "sglang", "tensorrt_llm", "vllm", "flashinfer", "cudnn", "triton")
"""Whose kernels compute an operation: those that PyTorch calls, or those of an inference engine or a library.

Attention by "pytorch" is FlashAttention 2, or on GPUs before Ampere the memory-efficient kernels. Recent versions of
PyTorch with cuDNN 9.15.1 or later call "cudnn" on Hopper and on Blackwell for data centers
(check_prefer_cudnn_attention in ATen/native/transformers/cuda/sdp_utils.cpp). "triton" is the first FlashAttention in
Triton, with which transformers were trained until 2023.
"""

COUNT = integer(1)
FLAG = Range("True or False", lambda value: isinstance(value, bool))
PROBABILITY = Range("a number from 0 to 1", lambda value: is_number(value, 0, 1, int | float))
NORM = Range("a number from 0 on, or infinity", lambda value: is_number(value, 0, types=int | float))
OUTPUT_SIZE = Range(
    f"an integer from 1 to {LARGEST}, or one for each spatial dimension; None keeps a dimension",
    _one_or_several(lambda value: value is None or _is_integer(value, 1)),
)
SHAPE = Range("a list of positive integers", lambda value: isinstance(value, tuple) and sizes(1).holds(value))
DIMENSION = Range("a dimension of the input, from -64 to 63", _is_dimension)
SOME_DIMENSIONS = Range("a dimension of the input, or a list of them", _one_or_several(_is_dimension))
DIMENSIONS = Range(
    "a dimension of the input, a list of them, or None for all",
    lambda value: value in (None, ()) or SOME_DIMENSIONS.holds(value),
)


Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "nvfp4", "int8", "fp64"]
RequestedPrecision = Literal["default", "fp32", "tf32", "fp16", "bf16"]

PRECISIONS: tuple[str, ...] = get_args(Precision)

QUANTIZED: tuple[str, ...] = ("fp8", "nvfp4", "int8")
"""Precisions of less than 16 bits. Only some kinds have kernels for them, and the outputs of these are bf16."""

HALF_PRECISIONS: tuple[str, ...] = ("fp16", "bf16")
"""Precisions of 16 bits, which the field calls half precision."""

ELEMENT_BYTES: Mapping[str, float] = {
    "fp32": 4,
    "tf32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8": 1,
    # Four bits, and a scale of one byte for every 16 elements (NVIDIA, "Introducing NVFP4", 2025).
    "nvfp4": 0.5 + 1 / 16,
    "int8": 1,
    "fp64": 8,
}
"""Precision -> bytes of one element, including its share of the scales that belong to the format."""

HALF_BYTES = ELEMENT_BYTES["fp16"]
"""Bytes of one element in half precision."""
