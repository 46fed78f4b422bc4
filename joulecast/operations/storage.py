"""Bytes of an operation's tensors in memory, each in the precision in which it is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from .attributes import ELEMENT_BYTES, QUANTIZED
from .rules import Attributes, Shape, Shapes, row_length, size
from .transforms import fft_passes, gate_elements

INDEX_BYTES = 8  # PyTorch's indices are int64.
MASK_BYTES = 1
_SCALE_BYTES = 4  # Scales of blocks are fp32.
_BLOCK = 128
"""Elements of an activation's row, and rows and columns of a weight's square, that share a scale.

DeepSeek-V3 technical report (arXiv 2412.19437), section 3.3.2; DeepGEMM and vLLM call it block-wise fp8.
"""


class Storage(NamedTuple):
    """Bytes of the tensors of an operation, each counted once, as far as it is read or written.

    The workspace are further tensors that kernels write, such as the gates of a recurrent layer, or a gradient that is
    larger than the part of the input that was read.
    """

    inputs: float
    output: float
    parameters: float
    workspace: float = 0.0


def output_bytes(precision: str) -> float:
    """Bytes of one element of an output. Quantized products accumulate in fp32 and are written as bf16."""
    return ELEMENT_BYTES["bf16" if precision in QUANTIZED else precision]


def plain(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """Inputs and parameters in the precision of the operation, the output in the precision of `output_bytes`."""
    element = ELEMENT_BYTES[precision]
    return Storage(element * sum(map(size, shapes)), output_bytes(precision) * size(output), element * parameters)


def convolution(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """Like `plain` in the forward. A gradient reads that of the output and writes that of input or weights."""
    stored = plain(shapes, attributes, output, parameters, precision)
    match attributes["direction"]:
        case "input_gradient":
            return stored._replace(inputs=stored.output, output=stored.inputs)
        case "weight_gradient":
            return Storage(stored.inputs + stored.output, stored.parameters, 0.0)
        case _:
            return stored


def linear(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """Like `plain`, with the scales of inputs and weights if there is one for each block."""
    stored = plain(shapes, attributes, output, parameters, precision)
    if not attributes["block_scaled"]:
        return stored
    return stored._replace(
        inputs=stored.inputs + _SCALE_BYTES * size(shapes[0]) / _BLOCK,
        parameters=stored.parameters + _SCALE_BYTES * parameters / _BLOCK**2,
    )


def attention(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """Queries in the precision of the operation; keys and values in that of the cache, and only those in a window."""
    queries, keys, values = shapes
    seen = 1.0
    if attributes["window"] is not None:
        seen = np.minimum(1.0, (attributes["window"] + queries[-2] - 1) / keys[-2])
    cache_element = ELEMENT_BYTES[attributes["cache_precision"] or precision]
    stored = plain(shapes, attributes, output, parameters, precision)
    cached = cache_element * seen * (size(keys) + size(values))
    return stored._replace(inputs=ELEMENT_BYTES[precision] * size(queries) + cached)


def with_types(
    inputs: Mapping[int, int], output: int | None = None
) -> Callable[[Shapes, Attributes, Shape, int, str], Storage]:
    """Like `plain`, but with so many bytes for each element of the inputs at these positions, and of the output."""

    def stored(shapes: Shapes, attributes: Attributes, result: Shape, parameters: int, precision: str) -> Storage:
        element = ELEMENT_BYTES[precision]
        read = sum(inputs.get(position, element) * size(shape) for position, shape in enumerate(shapes))
        written = output_bytes(precision) if output is None else output
        return Storage(read, written * size(result), element * parameters)

    return stored


def looked_up(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """The index and the elements that it selects are read; the gradient of the input is as large as the whole input."""
    element = ELEMENT_BYTES[precision]
    read = INDEX_BYTES * size(shapes[1]) + element * size(output)
    return Storage(read, element * size(output), 0.0, element * size(shapes[0]))


def scattered(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """Source and index are read, and as much of the output is written as the source has elements.

    If the source is added to elements of the input, these are read as well. If it replaces them, the backward copies
    the whole gradient and sets the gradients of the replaced elements to zero.
    """
    x, source, index = (size(shape) for shape in shapes)
    element = ELEMENT_BYTES[precision]
    accumulates = attributes["accumulate"]
    read = INDEX_BYTES * index + element * source * (2 if accumulates else 1)
    return Storage(read, element * source, 0.0, 0.0 if accumulates else element * x)


def bags(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """Indices, offsets and the rows that are looked up are read, and one vector per bag is written."""
    element = ELEMENT_BYTES[precision]
    rows = element * size(shapes[0]) * output[-1]
    read = INDEX_BYTES * (size(shapes[0]) + size(shapes[1])) + rows
    return Storage(read, element * size(output), element * parameters, rows)


# A block of threads sorts a row of up to this length in one pass (aten/src/ATen/native/cuda/Sort.cpp). Longer rows take
# a radix sort, which looks at eight bits of each value per pass.
_SORTED_AT_ONCE = 4096
_BITS_PER_PASS = 8


def ranked(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """Sorted values with their indices; a radix sort of long rows reads and writes both in each pass."""
    element = ELEMENT_BYTES[precision]
    long = row_length(shapes, attributes) > _SORTED_AT_ONCE
    passes = int(8 * element) // _BITS_PER_PASS if long else 1
    each = element + INDEX_BYTES
    return Storage(element * size(shapes[0]), each * size(output), 0.0, (passes - 1) * each * size(shapes[0]))


def largest(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """All values are read; the largest are written with their indices."""
    element = ELEMENT_BYTES[precision]
    return Storage(element * size(shapes[0]), (element + INDEX_BYTES) * size(output), 0.0)


def gated(gates: int) -> Callable[[Shapes, Attributes, Shape, int, str], Storage]:
    """Like `plain`, with the gates of a recurrent layer, which one kernel writes and later ones read step by step."""

    def stored(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
        between = ELEMENT_BYTES[precision] * gate_elements(gates, shapes, attributes)
        return plain(shapes, attributes, output, parameters, precision)._replace(workspace=between)

    return stored


def of_experts(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """Like `plain`, with the weights of all experts, or of one expert per row if there are fewer rows than experts."""
    stored = plain(shapes, attributes, output, parameters, precision)
    share = min(1.0, size(shapes[0][:-1]) / attributes["num_experts"])
    return stored._replace(parameters=share * stored.parameters)


def passed(shapes: Shapes, attributes: Attributes, output: Shape, parameters: int, precision: str) -> Storage:
    """Like `plain`, with one more pass over the data for each further dimension of a Fourier transform."""
    stored = plain(shapes, attributes, output, parameters, precision)
    return stored._replace(workspace=(fft_passes(shapes, attributes) - 1) * stored.output)
