"""FLOPs, bytes and sizes of operations, which the rules of their kind compute from shapes and attributes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from .attributes import Precision
from .kind import GRADIENTS, Kind, Storage, Traffic
from .kinds import KINDS
from .rules import Product, Shape, Shapes, size


class Counted:
    """What an operation computes, reads and writes.

    An `Operation` has integers as sizes. `AlikeOperations` has arrays of them, and then everything here is an array.
    """

    kind: str
    input_shapes: Shapes
    attributes: Mapping[str, Any]
    precision: Precision
    mode: str
    output_shape: Shape
    parameters: int

    @property
    def row(self) -> Kind:
        """The row of its kind in the table of kinds."""
        return KINDS[self.kind]

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
            return self._whole(self.forward_flops * (1 + self.row.training(self.gradients).backward_flops + again))
        return self.forward_flops

    @cached_property
    def bytes_read(self) -> int:
        """Bytes that the operation must read from memory in this mode."""
        if self.mode == "training":
            broadcast = self.row.broadcast_reads if self.has_backward else 0.0
            return self._bytes(self.row.training(self.gradients).reads, broadcast)
        return self._bytes(self.row.reads)

    @cached_property
    def bytes_written(self) -> int:
        """Bytes that the operation must write to memory in this mode."""
        if self.mode == "training":
            broadcast = self.row.broadcast_writes if self.has_backward else 0.0
            return self._bytes(self.row.training(self.gradients).writes, broadcast)
        return self._bytes(self.row.writes)

    def _bytes(self, traffic: Traffic, broadcast_passes: float = 0.0) -> int:
        if self.is_identity:
            return 0
        stored = self.storage
        return self._whole(
            traffic.inputs * stored.inputs
            + (traffic.output + broadcast_passes * self._broadcasts) * stored.output
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
    def _broadcasts(self) -> bool:
        return any(shape != self.output_shape for shape in self.input_shapes)

    @cached_property
    def input_size(self) -> int:
        """Number of elements of all inputs together."""
        return sum(map(size, self.input_shapes))

    @property
    def is_identity(self) -> bool:
        """Whether it does nothing at all, like dropout in inference or with a probability of zero."""
        moves = any((*self.row.reads, *self.row.writes))
        return not moves or (self.row.is_noise and (self.mode == "inference" or not self.attributes["p"]))

    def _whole(self, amount: float) -> int:
        """The nearest integer."""
        return round(amount)
