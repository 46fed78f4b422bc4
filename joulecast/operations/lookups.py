"""Kinds with indices, masks or frequencies: look-ups, scattering, masking, sorting, and Fourier transforms.

A rule takes the input shapes `x` and the attributes `a`, and the output shape if it is given one. A complex tensor has
the shape of its real view, with a last dimension of 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ..errors import InputError
from .attributes import COUNT, DIMENSION, ELEMENT_BYTES, FLAG, SOME_DIMENSIONS, Attribute, one_of
from .kind import INDEX_BYTES, MASK_BYTES, Counted, Kind, Storage, plain, with_types
from .rules import (
    Attributes,
    Shape,
    Shapes,
    broadcast,
    broadcast_inputs,
    dimension_of,
    per_input_element,
    per_output_element,
    require_at_most,
    require_multiple,
    same_along_dimension,
    size,
)


def _masked_fill_output(x: Shapes, a: Attributes) -> Shape:
    """Shape of the input, which is changed in place; the mask has to broadcast to it."""
    if broadcast(*x) != x[0]:
        raise InputError(
            "a mask does not broadcast to the input",
            given=f"mask {x[1]}, input {x[0]}",
            allowed=f"a shape that broadcasts to {x[0]}",
        )
    return x[0]


def _table_elements(x: Shapes, a: Attributes) -> int:
    """Elements of the table in which rows are looked up."""
    return int(a["num_embeddings"] * a["embedding_dim"])


def _bags_storage(o: Counted) -> Storage:
    """Indices, offsets and the rows that are looked up are read, and one vector per bag is written."""
    element, (indices, offsets) = ELEMENT_BYTES[o.precision], o.input_shapes
    rows = element * size(indices) * o.output_shape[-1]
    read = INDEX_BYTES * (size(indices) + size(offsets)) + rows
    return Storage(read, element * size(o.output_shape), element * o.parameters, rows)


def _gather_output(x: Shapes, a: Attributes) -> Shape:
    """One element of the input for each element of the index, along `dim` (torch.gather)."""
    source, index = x
    dim = dimension_of(source, a["dim"])
    if len(index) != len(source) or any(n > m for i, (n, m) in enumerate(zip(index, source, strict=True)) if i != dim):
        raise InputError(
            "this index does not fit the input of a gather",
            given=f"index {index}, input {source}",
            allowed="as many dimensions, none longer than the input's but along dim",
        )
    return index


def _selected_output(x: Shapes, a: Attributes) -> Shape:
    """One slice of the input for each element of the index; the dimensions of the index replace dimension `dim`."""
    source, index = x
    dim = dimension_of(source, a["dim"])
    return (*source[:dim], *index, *source[dim + 1 :])


def _looking_up(output: Callable[[Shapes, Attributes], Shape]) -> Kind:
    """A look-up of elements or slices of an input at positions given by an index.

    The index and the elements that it selects are read. The backward writes a gradient of zeros for the whole input,
    and adds to it at these positions.
    """

    def storage(o: Counted) -> Storage:
        element = ELEMENT_BYTES[o.precision]
        read = INDEX_BYTES * size(o.input_shapes[1]) + element * size(o.output_shape)
        return Storage(read, element * size(o.output_shape), 0.0, element * size(o.input_shapes[0]))

    return Kind(
        family="movement",
        inputs=(2, 2),
        attributes={"dim": Attribute(DIMENSION, 0)},
        output=output,
        forward="x -> y",
        training="2x y -> 2y t",
        storage=storage,
    )


def _scatter_output(x: Shapes, a: Attributes) -> Shape:
    """Shape of the input, which is changed in place; each element of the index says where a part of the source goes."""
    require_multiple("the elements of a scatter's source and index", size(x[1]), size(x[2]))
    return x[0]


def _scatter_storage(o: Counted) -> Storage:
    """Source and index are read, and as much of the output is written as the source has elements.

    If the source is added to elements of the input, these are read as well. If it replaces them, the backward copies
    the whole gradient and sets the gradients of the replaced elements to zero.
    """
    x, source, index = map(size, o.input_shapes)
    element, accumulates = ELEMENT_BYTES[o.precision], o.attributes["accumulate"]
    read = INDEX_BYTES * index + element * source * (2 if accumulates else 1)
    return Storage(read, element * source, 0.0, 0.0 if accumulates else element * x)


# A block of threads sorts a row of up to this length in one pass (aten/src/ATen/native/cuda/Sort.cpp). Longer rows take
# a radix sort, which looks at eight bits of each value per pass.
_SORTED_AT_ONCE = 4096
_BITS_PER_PASS = 8


def _row_length(x: Shapes, a: Attributes) -> int:
    return x[0][dimension_of(x[0], a["dim"])]


def _sort_storage(o: Counted) -> Storage:
    """Sorted values with their indices; a radix sort of long rows reads and writes both in each pass."""
    element, elements = ELEMENT_BYTES[o.precision], size(o.input_shapes[0])
    long = _row_length(o.input_shapes, o.attributes) > _SORTED_AT_ONCE
    passes = int(8 * element) // _BITS_PER_PASS if long else 1
    each = element + INDEX_BYTES
    return Storage(element * elements, each * size(o.output_shape), 0.0, (passes - 1) * each * elements)


def _topk_output(x: Shapes, a: Attributes) -> Shape:
    """The input with its dimension `dim` reduced to the k largest elements."""
    dim = dimension_of(x[0], a["dim"])
    require_at_most("the k of a topk", a["k"], x[0][dim])
    return (*x[0][:dim], a["k"], *x[0][dim + 1 :])


def _topk_storage(o: Counted) -> Storage:
    """All values are read; the largest are written with their indices."""
    element = ELEMENT_BYTES[o.precision]
    return Storage(element * size(o.input_shapes[0]), (element + INDEX_BYTES) * size(o.output_shape))


INDEX_KINDS: Mapping[str, Kind] = {
    "embedding": Kind(
        family="movement",
        attributes={"num_embeddings": Attribute(COUNT), "embedding_dim": Attribute(COUNT)},
        output=lambda x, a: (*x[0], a["embedding_dim"]),
        parameters=_table_elements,
        storage=with_types({0: INDEX_BYTES}),
        # The forward reads only the rows that are looked up. The gradient is as large as the whole table.
        forward="x y -> y",
        training="2x 3y -> 2y w",
    ),
    # A mask and two values for each element. Backward: the gradient of each value is that of the output, or zero.
    "where": Kind(
        family="elementwise",
        inputs=(1, 3),
        output=broadcast_inputs,
        flops=per_output_element(1),
        training="x 2y -> 3y",
        storage=with_types({0: MASK_BYTES}),
    ),
    # Works in place; operators that do not are extracted with a copy before. The backward fills a copy of the gradient.
    "masked_fill": Kind(
        family="elementwise",
        inputs=(2, 2),
        output=_masked_fill_output,
        flops=per_output_element(1),
        training="2x y -> 3y",
        storage=with_types({1: MASK_BYTES}),
    ),
    # The inputs are the indices of all bags, and the position at which each bag begins.
    "embedding_bag": Kind(
        family="movement",
        inputs=(2, 2),
        takes="[indices], [bags]",
        attributes={"num_embeddings": Attribute(COUNT), "embedding_dim": Attribute(COUNT)},
        output=lambda x, a: (*x[1], a["embedding_dim"]),
        flops=lambda x, a, out: size(x[0]) * out[-1],  # one addition for each element that is looked up
        parameters=_table_elements,
        storage=_bags_storage,
        forward="x -> y",
        # The backward writes a gradient of zeros for the whole table, and adds to the rows that were looked up.
        training="2x y -> y w t",
    ),
    "gather": _looking_up(_gather_output),
    "index_select": _looking_up(_selected_output),
    # Works in place, like masked_fill. In the backward, the gradient of the source is looked up.
    "scatter": Kind(
        family="movement",
        inputs=(3, 3),
        attributes={"accumulate": Attribute(FLAG, False)},
        output=_scatter_output,
        flops=lambda x, a, out: size(x[1]) if a["accumulate"] else 0,
        backward_flops=0.0,
        forward="x -> y",
        training="2x t -> 2y t",
        storage=_scatter_storage,
    ),
    # Writes zeros, then a one for each class index.
    "one_hot": Kind(
        family="movement",
        attributes={"num_classes": Attribute(COUNT)},
        output=lambda x, a: (*x[0], a["num_classes"]),
        has_gradient=False,
        forward="x w -> x y",
        training="x -> x y",
        storage=with_types({0: INDEX_BYTES}, output=INDEX_BYTES),
    ),
    # The backward writes zeros, and then each gradient to the original position of its value.
    "sort": Kind(
        family="movement",
        attributes={"dim": Attribute(DIMENSION, -1)},
        output=same_along_dimension,
        # About the least number of comparisons: log2 n for each element of a row of n.
        flops=lambda x, a, out: size(x[0]) * math.ceil(math.log2(max(_row_length(x, a), 2))),
        backward_flops=0.0,
        forward="x t -> y t",
        training="x y t -> 2x y t",
        storage=_sort_storage,
    ),
    "topk": Kind(
        family="movement",
        attributes={"k": Attribute(COUNT), "dim": Attribute(DIMENSION, -1)},
        output=_topk_output,
        flops=per_input_element(1),
        backward_flops=0.0,
        # A radix select finds the k-th largest value, eight bits per pass; one more pass gathers all values that are
        # larger (TensorTopK.cu of PyTorch).
        forward="5x -> y",
        training="5x y -> x 2y",
        storage=_topk_storage,
    ),
}


def logical(shape: Shape) -> Shape:
    """The shape of a complex tensor as torch has it, where its elements do not take a dimension of 2."""
    if not shape or shape[-1] != 2:
        raise InputError("a complex tensor has a last dimension of 2 here", given=shape, allowed="[..., 2]")
    return shape[:-1]


def _transformed(x: Shapes, a: Attributes) -> tuple[Shape, tuple[int, ...]]:
    """Shape (as in torch) of the side with all frequencies, and the dimensions that are transformed."""
    shape = x[0] if a["form"] == "r2c" else logical(x[0])
    dims = tuple(dimension_of(shape, dim) for dim in ((a["dim"],) if isinstance(a["dim"], int) else a["dim"]))
    if a["form"] == "c2r":
        shape = tuple(a["last_size"] or 2 * (n - 1) if i == dims[-1] else n for i, n in enumerate(shape))
    return shape, dims


def _fft_output(x: Shapes, a: Attributes) -> Shape:
    """A real signal needs half of the frequencies only: the others are their conjugates."""
    full, dims = _transformed(x, a)
    if a["form"] == "c2r":
        return full
    if a["form"] == "r2c":
        full = tuple(n // 2 + 1 if i == dims[-1] else n for i, n in enumerate(full))
    return (*full, 2)


def _fft_flops(x: Shapes, a: Attributes, out: Shape) -> int:
    """5 N log2 N for each complex transform of N points, half of that if one side is real (Cooley and Tukey)."""
    full, dims = _transformed(x, a)
    points = math.prod(full[dim] for dim in dims)
    flops = 5 * size(full) * math.log2(max(points, 2))
    return round(flops if a["form"] == "c2c" else flops / 2)


def _fft_storage(o: Counted) -> Storage:
    """Like `plain`, with one more pass over the data for each further dimension that is transformed."""
    _, dims = _transformed(o.input_shapes, o.attributes)
    stored = plain(o)
    return stored._replace(workspace=(len(dims) - 1) * stored.output)


# form: complex to complex (c2c), real to complex (r2c) or complex to real (c2r). last_size: size of the last
# transformed dimension of the real output; None for 2 (n - 1), where n is its size in the input.
FFT = Kind(
    family="movement",
    attributes={
        "dim": Attribute(SOME_DIMENSIONS, -1),
        "form": Attribute(one_of("c2c", "r2c", "c2r"), "c2c"),
        "last_size": Attribute(COUNT.or_none(), None),
    },
    output=_fft_output,
    flops=_fft_flops,
    forward="x t -> y t",
    training="x y 2t -> x y 2t",
    storage=_fft_storage,
)
