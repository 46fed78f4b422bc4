"""Bytes that the tensors of an operation take in memory, by the precision that each is stored in."""

from __future__ import annotations

from typing import NamedTuple

from .precisions import ELEMENT_BYTES, QUANTIZED
from .rules import Attributes, Shape, Shapes, size

_INDEX_BYTES = 8  # PyTorch's embeddings take int64 indices.
_SCALE_BYTES = 4  # Scales of blocks are fp32.
_BLOCK = 128
"""Elements of an activation's row, and rows and columns of a weight's square, that share a scale.

DeepSeek-V3 technical report (arXiv 2412.19437), section 3.3.2; DeepGEMM and vLLM call it block-wise fp8.
"""


class Storage(NamedTuple):
    """Bytes of the inputs, the output and the parameters of an operation, each counted once."""

    inputs: float
    output: float
    parameters: float


def output_bytes(precision: str) -> float:
    """Bytes of one element of an output: quantized products accumulate in fp32 and are written as bf16."""
    return ELEMENT_BYTES["bf16" if precision in QUANTIZED else precision]


def plain(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """Inputs and parameters in the precision of the operation, and the output as it is written."""
    element = ELEMENT_BYTES[precision]
    return Storage(element * sum(map(size, shapes)), output_bytes(precision) * size(output), element * parameters)


def convolution(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """As `plain`; a gradient reads the output's gradient, and writes that of the input or of the weights."""
    stored = plain(shapes, attributes, output, parameters, precision)
    match attributes["direction"]:
        case "input_gradient":
            return stored._replace(inputs=stored.output, output=stored.inputs)
        case "weight_gradient":
            return Storage(stored.inputs + stored.output, stored.parameters, 0.0)
        case _:
            return stored


def embedding(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """Indices in, vectors out."""
    return plain(shapes, attributes, output, parameters, precision)._replace(inputs=_INDEX_BYTES * size(shapes[0]))


def linear(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """As `plain`, and where blocks are scaled, the scales of inputs and weights."""
    stored = plain(shapes, attributes, output, parameters, precision)
    if not attributes["block_scaled"]:
        return stored
    return stored._replace(
        inputs=stored.inputs + _SCALE_BYTES * size(shapes[0]) / _BLOCK,
        parameters=stored.parameters + _SCALE_BYTES * parameters / _BLOCK**2,
    )


def attention(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """Queries, and of keys and values what some query sees through its window, in the precision of the cache."""
    queries, keys, values = shapes
    seen = 1.0
    if attributes["window"] is not None:
        seen = min(1.0, (attributes["window"] + queries[-2] - 1) / keys[-2])
    cache_element = ELEMENT_BYTES[attributes["cache_precision"] or precision]
    stored = plain(shapes, attributes, output, parameters, precision)
    cached = cache_element * seen * (size(keys) + size(values))
    return stored._replace(inputs=ELEMENT_BYTES[precision] * size(queries) + cached)
