"""Variants of kernels for tensor cores: one for each width of the numbers that they multiply."""

from __future__ import annotations

from collections.abc import Mapping

from ...operations.operation import Operation

WIDTHS: Mapping[str, str] = {"fp16": "half", "bf16": "half", "fp8": "fp8", "nvfp4": "nvfp4"}
"""Precision -> name of its width.

fp16 and bf16 have the same width and the same rate on tensor cores, so measurements of one hold for the other.
"""

WEIGHT_VARIANTS: Mapping[str, str] = {"half": "bf16", "fp8": "fp8", "fp8 in blocks": "fp8", "nvfp4": "nvfp4"}
"""Variant of the kernels that multiply by weights -> a precision that a GPU must have for them."""


def weight_variant(operation: Operation) -> str | None:
    """The variant that computes a layer with the attribute `block_scaled`; None for precisions without one."""
    width = WIDTHS.get(operation.precision)
    return f"{width} in blocks" if width and operation.attributes["block_scaled"] else width
