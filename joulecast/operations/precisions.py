"""Precisions: their names, and the bytes of memory that one element takes in each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

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
