"""Kind: one row of the table of operation kinds; and what is counted of an operation by the rules of its row."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple

from .attributes import ELEMENT_BYTES, PRECISIONS, QUANTIZED, Attribute, Precision, one_of
from .rules import Attributes, Product, Shape, Shapes, per_output_element, same, size

INDEX_BYTES = 8  # PyTorch's indices are int64.
MASK_BYTES = 1

Family = Literal["convolution", "matmul", "attention", "normalization", "elementwise", "softmax", "pooling", "movement"]


class Storage(NamedTuple):
    """Bytes of the tensors of an operation, each counted once, as far as it is read or written.

    Of a product of two tensors, the second one stands in the place of parameters (see `factors`).

    The workspace are further tensors that kernels write, such as the gates of a recurrent layer, or a gradient that is
    larger than the part of the input that was read.
    """

    inputs: float
    output: float
    parameters: float = 0.0
    workspace: float = 0.0


def output_bytes(precision: str) -> float:
    """Bytes of one element of an output. Quantized products accumulate in fp32 and are written as bf16."""
    return ELEMENT_BYTES["bf16" if precision in QUANTIZED else precision]


def plain(o: Counted) -> Storage:
    """Inputs and parameters in the precision of the operation, the output in the precision of `output_bytes`."""
    element = ELEMENT_BYTES[o.precision]
    return Storage(element * o.input_size, output_bytes(o.precision) * size(o.output_shape), element * o.parameters)


def factors(o: Counted) -> Storage:
    """Like `plain`, with the second factor in the place of parameters: its gradient is computed by itself."""
    element, (first, *second) = ELEMENT_BYTES[o.precision], map(size, o.input_shapes)
    return Storage(element * first, output_bytes(o.precision) * size(o.output_shape), element * sum(second))


def with_types(inputs: Mapping[int, int], output: int | None = None) -> Callable[[Counted], Storage]:
    """Like `plain`, but with so many bytes for each element of the inputs at these positions, and of the output."""

    def stored(o: Counted) -> Storage:
        element = ELEMENT_BYTES[o.precision]
        read = sum(inputs.get(position, element) * size(shape) for position, shape in enumerate(o.input_shapes))
        written = output_bytes(o.precision) if output is None else output
        return Storage(read, written * size(o.output_shape), element * o.parameters)

    return stored


def saves_its_output(o: Counted) -> float:
    """Bytes of the output, in the precision of the operation."""
    return ELEMENT_BYTES[o.precision] * size(o.output_shape)


def saves_nothing(o: Counted) -> float:
    """No bytes: the backward of an operation needs neither its input nor its output."""
    return 0.0


class Traffic(NamedTuple):
    """How often each tensor of an operation is read from memory, or written to it; see `Storage`."""

    inputs: float = 0.0
    output: float = 0.0
    parameters: float = 0.0
    workspace: float = 0.0


class Passes(NamedTuple):
    """What is read and what is written."""

    reads: Traffic
    writes: Traffic


@cache
def passes(text: str) -> Passes:
    """Read what a row says of memory, such as "x 2y w -> x": inputs (x), output (y), parameters (w), workspace (t)."""
    reads, writes = (
        {name: float(n or 1) for n, name in re.findall(r"(\d*)([xywt])", side)} for side in text.split("->")
    )
    return Passes(*(Traffic(*(side.get(name, 0.0) for name in "xywt")) for side in (reads, writes)))


class Training(NamedTuple):
    """What training does: FLOPs of the backward over those of the forward, and the passes of both together."""

    backward_flops: float
    moves: str


GRADIENTS = "gradients"
"""Attribute of operations in training: the gradients that the backward computes.

"all" is the default; "inputs" stands for frozen parameters; "parameters" for an operation before which nothing is
learned; "first" and "second" for a function of two tensors of which the other one needs no gradient, such as a buffer;
"none" for an operation that needs none, so that its forward runs alone; "recomputed" for what runs forward in the
backward alone: what a checkpoint runs again, and copies that cast a gradient.
"""


@dataclass(frozen=True)
class Kind:
    """What is known about one kind of operation.

    Args:
        family: Group of kinds whose kernels behave alike.
        output: Computes the output shape from input shapes and attributes; raises InputError if they do not fit. By
            default it is that of the first input.
        flops: Computes the FLOPs of the forward from input shapes, attributes and output shape; none by default.
        attributes: Name of each attribute -> the values that it may have, and its default.
        parameters: Computes the number of parameter elements from input shapes and attributes.
        inputs: Least and greatest number of input tensors.
        takes: Shapes of the inputs as `rules.fits` reads them; empty for any.
        has_gradient: Whether training runs a backward for it.
        backward_flops: FLOPs of the backward, if there is one, as a multiple of those of the forward.
        recomputed_flops: FLOPs of the forward that the backward computes again, as the same multiple.
        forward: How often the forward reads its tensors from memory, and writes them to it; see `passes`.
        training: The same of forward and backward together.
        partial: A value of the attribute `gradients` -> what training does then; without a row for "none", this is what
            the forward does in inference.
        broadcast_reads, broadcast_writes: Additional passes over the output in training if an input is broadcast to the
            output: the gradient of this input is a sum over the broadcast dimensions.
        tensor_cores: Whether it runs on tensor cores in TF32 if a user asks for TF32.
        tf32_by_default: Whether PyTorch uses TF32 for it by default, as it does for what cuDNN computes.
        product: Computes the equivalent matrix product; None for kinds that are not one.
        steps: Computes the number of kernels of the forward that have to run one after another.
        is_noise: Whether it does nothing in inference, or if its attribute p is zero (dropout).
        quantized: Precisions of less than 16 bits for which there are kernels.
        storage: Computes the bytes of the tensors of an operation that have to be read or written.
        measured_only: Whether it is covered only on GPUs where it was measured: data sheets say too little about it,
            and no other kind is similar enough to take its place.
        spatial: Number of spatial dimensions; None for kinds that take any number, and for those without.
        transforms: Whether libraries compute it by Winograd's or Fourier transforms where its window allows it.
        saved: Computes the bytes that training keeps for the backward pass: the output, if this operation or one that
            reads it needs it. Where autograd can do with either the input or the output, the operation before has it.
        moments: For the step of an optimizer, the values per parameter that the optimizer stores; None for other kinds.
    """

    family: Family
    output: Callable[[Shapes, Attributes], Shape] = same
    flops: Callable[[Shapes, Attributes, Shape], int] = per_output_element(0)
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    parameters: Callable[[Shapes, Attributes], int] = lambda shapes, attributes: 0
    inputs: tuple[int, int] = (1, 1)
    takes: str = ""
    has_gradient: bool = True
    backward_flops: float = 1.0
    recomputed_flops: float = 0.0
    forward: str = "x w -> y"
    training: str = "x 2y w -> x y w"
    partial: Mapping[str, Training] = field(default_factory=dict)
    broadcast_reads: float = 0.0
    broadcast_writes: float = 0.0
    tensor_cores: bool = False
    is_noise: bool = False
    quantized: tuple[str, ...] = ()
    storage: Callable[[Counted], Storage] = plain
    tf32_by_default: bool = False
    product: Callable[[Shapes, Attributes, Shape], Product] | None = None
    steps: Callable[[Shapes, Attributes], int] = lambda shapes, attributes: 1
    measured_only: bool = False
    spatial: int | None = None
    transforms: bool = False
    saved: Callable[[Counted], float] = saves_its_output
    moments: int | None = None

    def __post_init__(self) -> None:
        if self.has_gradient:
            attributes = {**self.attributes, GRADIENTS: Attribute(one_of(*self.gradients), "all", refinement=True)}
            object.__setattr__(self, "attributes", attributes)
        else:
            object.__setattr__(self, "backward_flops", 0.0)

    @property
    def gradients(self) -> tuple[str, ...]:
        """Values that the attribute `gradients` may have; none for kinds without a backward."""
        return tuple(dict.fromkeys(("all", *self.partial, "none", "recomputed"))) if self.has_gradient else ()

    def trained(self, gradients: str) -> Training:
        """What training does for a value of the attribute `gradients`."""
        if gradients == "all":
            return Training(self.backward_flops, self.training)
        return self.partial.get("none" if gradients == "recomputed" else gradients, Training(0.0, self.forward))

    @property
    def is_optimizer_step(self) -> bool:
        """Whether it is the step of an optimizer."""
        return self.moments is not None

    @cached_property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that operations of this kind can have, on GPUs that support them."""
        return tuple(p for p in PRECISIONS if p not in QUANTIZED or p in self.quantized)


class Counted:
    """What an operation computes, reads and writes.

    An `Operation` has integers as sizes. `AlikeOperations` has arrays of them, and then everything here is an array.
    The row is that of its kind in the table of kinds.
    """

    kind: str
    row: Kind
    input_shapes: Shapes
    attributes: Mapping[str, Any]
    precision: Precision
    mode: str
    output_shape: Shape
    parameters: int

    @property
    def gradients(self) -> str:
        """The gradients that training computes: the attribute of this name; see `kind.GRADIENTS`."""
        named: str = self.attributes.get(GRADIENTS, "all")
        return named

    @property
    def has_backward(self) -> bool:
        """Whether it computes any gradient."""
        return self.mode == "training" and self.gradients not in ("none", "recomputed")

    @cached_property
    def forward_flops(self) -> int:
        """FLOPs of the forward; a multiply-add is two."""
        return self.row.flops(self.input_shapes, self.attributes, self.output_shape)

    @property
    def flops(self) -> int:
        """FLOPs in this mode: forward, or forward and backward, without what the backward computes again."""
        return 0 if self.gradients == "recomputed" else self._flops(0.0)

    @property
    def executed_flops(self) -> int:
        """FLOPs that run in this mode: `flops`, and what the backward computes again."""
        return self._flops(self.row.recomputed_flops)

    def _flops(self, again: float) -> int:
        if self.is_identity:
            return 0
        if self.has_backward:
            return self._whole(self.forward_flops * (1 + self.row.trained(self.gradients).backward_flops + again))
        return self.forward_flops

    @property
    def _passes(self) -> Passes:
        return passes(self.row.trained(self.gradients).moves if self.mode == "training" else self.row.forward)

    @cached_property
    def bytes_read(self) -> int:
        """Bytes that the operation must read from memory in this mode."""
        return self._bytes(self._passes.reads, self.row.broadcast_reads)

    @cached_property
    def bytes_written(self) -> int:
        """Bytes that the operation must write to memory in this mode."""
        return self._bytes(self._passes.writes, self.row.broadcast_writes)

    def _bytes(self, traffic: Traffic, broadcast_passes: float) -> int:
        if self.is_identity:
            return 0
        stored, broadcast = self.storage, broadcast_passes * self._broadcasts if self.has_backward else 0.0
        return self._whole(
            traffic.inputs * stored.inputs
            + (traffic.output + broadcast) * stored.output
            + traffic.parameters * stored.parameters
            + traffic.workspace * stored.workspace
        )

    @property
    def product(self) -> Product | None:
        """The equivalent matrix product; None for operations that are not one."""
        return self.row.product and self.row.product(self.input_shapes, self.attributes, self.output_shape)

    @property
    def steps(self) -> int:
        """Number of kernels of the forward that have to run one after another."""
        return self.row.steps(self.input_shapes, self.attributes)

    @cached_property
    def storage(self) -> Storage:
        """Bytes of its tensors that have to be read or written, each tensor once."""
        return self.row.storage(self)

    @property
    def _differentiated(self) -> Shapes:
        """Shapes of the inputs whose gradients are computed."""
        match self.gradients:
            case "first":
                return self.input_shapes[:1]
            case "second":
                return self.input_shapes[1:]
        return self.input_shapes

    @property
    def _broadcasts(self) -> bool:
        return any(shape != self.output_shape for shape in self._differentiated)

    @cached_property
    def input_size(self) -> int:
        """Number of elements of all inputs together."""
        return sum(map(size, self.input_shapes))

    @property
    def is_identity(self) -> bool:
        """Whether it does nothing at all, like dropout in inference or with a probability of zero."""
        moves = any(map(any, passes(self.row.forward)))
        return not moves or (self.row.is_noise and (self.mode == "inference" or not self.attributes["p"]))

    def _whole(self, amount: float) -> int:
        """The nearest integer."""
        return round(amount)
