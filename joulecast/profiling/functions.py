"""Runners of operations that are functions of tensors in PyTorch, and the tensors that they are run on.

The functions are look-ups, sorting, transforms and grouped products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 (everybody calls it so)

from ..extraction.models.torchvision_models import import_torchvision
from ..operations.kind import GRADIENTS
from ..operations.operation import Operation

Run = Callable[..., torch.Tensor]

_RESIZING = {("linear", 1): "linear", ("linear", 2): "bilinear", ("linear", 3): "trilinear", ("cubic", 2): "bicubic"}


def changeable(x: torch.Tensor) -> torch.Tensor:
    """The input for an in-place operator: in training a copy, because autograd allows no change of a leaf."""
    return x.clone() if x.requires_grad else x


def scatter(operation: Operation) -> Run:
    """Write rows of the source to rows of the input, or add them."""
    write = torch.Tensor.index_add_ if operation.attributes["accumulate"] else torch.Tensor.index_copy_
    row = _scattered_row(operation)

    def run(x: torch.Tensor, source: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        x = changeable(x)
        write(x.view(-1, row), 0, index.flatten(), source.reshape(-1, row))
        return x

    return run


def _scattered_row(operation: Operation) -> int:
    """Number of elements that an index of a scatter refers to."""
    _, source, index = operation.input_shapes
    return math.prod(source) // math.prod(index)


class _Called(nn.Module):
    """A layer that is called by a function of the layer and the tensors."""

    def __init__(self, layer: nn.Module, call: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.layer, self._call = layer, call

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self._call(self.layer, *tensors)


def embedding_bag(operation: Operation) -> Run:
    """An embedding bag whose bags all have the same length."""
    layer = nn.EmbeddingBag(operation.attributes["num_embeddings"], operation.attributes["embedding_dim"])
    (indices,), (bags,) = operation.input_shapes
    return _Called(
        layer, lambda layer, values, offsets: layer(values, torch.arange(bags, device=values.device) * indices // bags)
    )


def recurrent(layer: Callable[..., nn.RNNBase]) -> Callable[[Operation], Run]:
    """A recurrent layer. Its output is the hidden states of all steps."""

    def runner(operation: Operation) -> Run:
        attributes = {name: value for name, value in operation.attributes.items() if name != GRADIENTS}
        return _Called(layer(operation.input_shapes[0][-1], **attributes), lambda made, x: made(x)[0])

    return runner


def reduced(function: Callable[..., Any]) -> Callable[[Operation], Run]:
    """A reduction over some dimensions, or over all."""

    def runner(operation: Operation) -> Run:
        dim, keepdim = operation.attributes["dim"], operation.attributes["keepdim"]
        dim = tuple(range(len(operation.input_shapes[0]))) if dim is None else dim
        return partial(function, dim=dim, keepdim=keepdim)

    return runner


def one_dimension_at_a_time(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A reduction over one dimension only, such as torch.prod; several dimensions are flattened into one first."""

    def run(x: torch.Tensor, dim: Any, keepdim: bool) -> torch.Tensor:
        if isinstance(dim, int):
            return function(x, dim, keepdim)
        order = [i for i in range(x.ndim) if i not in {d % x.ndim for d in dim}]
        sizes = [x.shape[i] for i in order]
        shape = [1 if i not in order else n for i, n in enumerate(x.shape)] if keepdim else sizes
        return function(x.permute(*order, *dim).reshape(*sizes, -1), -1, False).reshape(shape)

    return run


def interpolate(operation: Operation) -> Run:
    """Resizing to the output's size."""
    size = operation.output_shape[2:]
    mode = _RESIZING.get((operation.attributes["mode"], len(size)), "nearest")
    return partial(F.interpolate, size=size, mode=mode)


def roi_align(operation: Operation) -> Run:
    """Cut boxes of a quarter of the image's sides out of all images in turn, at places that are evenly spread."""
    (images, _, height, width), boxes = operation.input_shapes[0], operation.attributes["boxes"]
    place = torch.arange(boxes) / max(boxes, 1)
    left, top = 0.75 * width * place, 0.75 * height * place.flip(0)
    box = [torch.arange(boxes) % images, left, top, left + width / 4, top + height / 4]
    rois, cut = torch.stack([each.float() for each in box], dim=1), import_torchvision().ops.roi_align
    ratio = operation.attributes["sampling_ratio"]
    on_device = cache(lambda device, dtype: rois.to(device, dtype))
    return lambda x: cut(x, on_device(x.device, x.dtype), operation.output_shape[2:], 1.0, ratio)


def fourier(operation: Operation) -> Run:
    """A Fourier transform of complex numbers, stored as pairs, or of real numbers."""
    given, form = operation.attributes["dim"], operation.attributes["form"]
    dims = (given,) if isinstance(given, int) else given
    if form == "r2c":
        return lambda x: torch.view_as_real(torch.fft.rfftn(x, dim=dims))
    if form == "c2c":
        return lambda x: torch.view_as_real(torch.fft.fftn(torch.view_as_complex(x), dim=dims))
    sizes = [operation.output_shape[dim] for dim in dims]
    return lambda x: torch.fft.irfftn(torch.view_as_complex(x), s=sizes, dim=dims)


class GroupedLinear(nn.Module):
    """A grouped product with rows divided evenly over the experts; in bf16 only, like PyTorch's kernel."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        attributes, self._features = operation.attributes, operation.input_shapes[0][-1]
        experts, outputs = attributes["num_experts"], attributes["out_features"]
        self.weights = nn.Parameter(torch.randn(experts, self._features, outputs))
        self.bias = nn.Parameter(torch.zeros(experts, outputs)) if attributes["bias"] else None
        self._experts, self._output_shape = experts, operation.output_shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The products of all experts, in the order of the rows."""
        rows = x.reshape(-1, self._features)
        ends = torch.arange(1, self._experts + 1, device=x.device) * rows.shape[0] // self._experts
        product: torch.Tensor = torch._grouped_mm(rows, self.weights, offs=ends.to(torch.int32))
        if self.bias is not None:
            counts = torch.diff(ends, prepend=ends.new_zeros(1))
            product = product + self.bias.repeat_interleave(counts, 0, output_size=rows.shape[0])
        return product.reshape(self._output_shape)


POSITIVE_INPUTS = frozenset({"log", "sqrt", "rsqrt", "pow"})
"""Kinds that turn negative numbers into NaN, which would change their power."""

MASKS: Mapping[str, int] = {"where": 0, "masked_fill": 1}
"""Kind -> index of its input that is a mask."""

INDICES: Mapping[str, tuple[int, Callable[[Operation], int]]] = {
    **dict.fromkeys(("embedding", "embedding_bag"), (0, lambda operation: operation.attributes["num_embeddings"])),
    **dict.fromkeys(
        ("gather", "index_select"), (1, lambda operation: operation.input_shapes[0][operation.attributes["dim"]])
    ),
    "scatter": (2, lambda operation: math.prod(operation.input_shapes[0]) // _scattered_row(operation)),
    "one_hot": (0, lambda operation: int(operation.attributes["num_classes"])),
}
"""Kind -> number of its input that holds indices, and a function that gives how many values these may have."""


def draw_inputs(
    operation: Operation, device: torch.device, dtype: torch.dtype, generator: torch.Generator
) -> list[torch.Tensor]:
    """Draw random inputs, because regular data would draw less power; in training, numbers require gradients."""
    how: dict[str, Any] = {"generator": generator, "device": device}
    position, values_of = INDICES.get(operation.kind, (None, None))
    drawn = []
    for i, shape in enumerate(operation.input_shapes):
        if i == MASKS.get(operation.kind):
            tensor = torch.rand(shape, **how) < 0.5
        elif values_of is not None and i == position:
            number, values = math.prod(shape), values_of(operation)
            # Duplicate indices would be written by several threads at once, which is a race.
            if operation.kind == "scatter" and number <= values:
                tensor = torch.randperm(values, **how)[:number].reshape(shape)
            else:
                tensor = torch.randint(0, values, shape, **how)
        else:
            tensor = torch.randn(shape, dtype=dtype, **how)
            if operation.kind in POSITIVE_INPUTS:
                tensor = tensor.abs()
            tensor.requires_grad_(operation.mode == "training" and operation.row.has_gradient)
        drawn.append(tensor)
    return drawn
