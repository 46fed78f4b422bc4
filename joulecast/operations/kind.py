"""Kind: what a row of the table of operation kinds says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from . import storage
from .attributes import Attribute
from .precisions import PRECISIONS, QUANTIZED
from .rules import Attributes, Product, Shape, Shapes
from .storage import Storage

Family = Literal["convolution", "matmul", "attention", "normalization", "elementwise", "softmax", "pooling", "movement"]


class Traffic(NamedTuple):
    """How often what an operation stores (storage.py) passes the memory interface."""

    inputs: float = 0.0
    output: float = 0.0
    parameters: float = 0.0
    workspace: float = 0.0


_READ_ONCE = Traffic(inputs=1, parameters=1)
_WRITE_ONCE = Traffic(output=1)


@dataclass(frozen=True)
class Kind:
    """What is known about one kind of operation.

    Args:
        family: Kinds of one family run in kernels of the same nature.
        output: Output shape from input shapes and attributes; raises InputError where they do not fit.
        flops: Forward FLOPs from input shapes, attributes and output shape.
        attributes: Name of each attribute -> the values that it may have, and its default.
        parameters: Number of parameter elements.
        inputs: Least and most number of input tensors.
        has_gradient: Training has a backward of its own for it.
        backward_flops: FLOPs of the backward over those of the forward.
        reads, writes: Traffic of the forward.
        training_reads, training_writes: Traffic of forward and backward together.
        broadcast_reads, broadcast_writes: Further passes over the output in training where an input is broadcast to
            it, and its gradient is a sum.
        tensor_cores: Whether TF32, where asked for, applies to this kind.
        tf32_by_default: PyTorch allows TF32 for this kind unless told otherwise: cuDNN computes it.
        product: The matrix product that it is, where it is one.
        steps: Kernels of the forward that wait for one another.
        is_noise: The operation does nothing in inference, nor where its attribute p is zero (dropout).
        quantized: Precisions of less than 16 bits that there are kernels for.
        storage: Bytes of inputs, output and parameters in memory, as far as they are needed.
        measured_only: A data sheet says too little of it, and no other kind may stand in for it: it is covered only
            where it was measured.
    """

    family: Family
    output: Callable[[Shapes, Attributes], Shape]
    flops: Callable[[Shapes, Attributes, Shape], int]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    parameters: Callable[[Shapes, Attributes], int] = lambda shapes, attributes: 0
    inputs: tuple[int, int] = (1, 1)
    has_gradient: bool = True
    backward_flops: float = 1.0
    reads: Traffic = _READ_ONCE
    writes: Traffic = _WRITE_ONCE
    training_reads: Traffic = Traffic(inputs=1, output=2, parameters=1)
    training_writes: Traffic = Traffic(inputs=1, output=1, parameters=1)
    broadcast_reads: float = 0.0
    broadcast_writes: float = 0.0
    tensor_cores: bool = False
    is_noise: bool = False
    quantized: tuple[str, ...] = ()
    storage: Callable[[Shapes, Attributes, Shape, int, str], Storage] = storage.plain
    tf32_by_default: bool = False
    product: Callable[[Shapes, Attributes, Shape], Product] | None = None
    steps: Callable[[Shapes, Attributes], int] = lambda shapes, attributes: 1
    measured_only: bool = False

    @cached_property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that the kind runs in, on GPUs that have them."""
        return tuple(p for p in PRECISIONS if p not in QUANTIZED or p in self.quantized)
