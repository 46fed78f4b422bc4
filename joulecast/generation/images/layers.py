"""Recording the operations of a network that is described by code instead of extracted from a module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...operations.entry import Entry
from ...operations.network import Network
from ...operations.operation import Operation
from ...operations.rules import size

Shape = tuple[int, ...]

TRANSPOSED, JOINED = "transposed", "joined"
_ELEMENT_CYCLES: Mapping[str, float] = {TRANSPOSED: 1.8, JOINED: 1.5}
"""Last name of a path -> cycles of a multiprocessor for each element that a kernel of PyTorch writes there."""


def strided_cycles(network: Network, sms: int) -> Mapping[Operation, float]:
    """Cycles that operations take to address elements that do not lie side by side in memory; others are missing."""
    found = {}
    for entry in network:
        cycles = _ELEMENT_CYCLES.get(entry.module_paths[0].rpartition(".")[2] if entry.module_paths else "")
        if cycles is not None:
            found[entry.operation] = cycles * size(entry.operation.output_shape) / sms
    return found


@dataclass(frozen=True)
class Layers:
    """The operations that were recorded so far."""

    precision: str
    # Operation -> path of the module of each of its calls.
    calls: dict[Operation, list[str]] = field(default_factory=dict)

    def add(self, path: str, kind: str, *shapes: Shape, blocks: int = 1, each: int = 1, **attributes: object) -> None:
        """Record an operation.

        `path`: Path of the module that calls it; {} is replaced by the number of the block.
        `blocks`: Number of blocks that have such a module.
        `each`: Number of calls in each block.
        """
        operation = Operation(kind, shapes, attributes, precision=self.precision)
        paths = [path.format(block) for block in range(blocks) for _ in range(each)]
        self.calls.setdefault(operation, []).extend(paths)

    def linear(self, path: str, shape: Shape, outputs: int, *, blocks: int = 1, bias: bool = True) -> None:
        """Record a linear layer with an input of this shape."""
        self.add(path, "linear", shape, blocks=blocks, out_features=outputs, bias=bias)

    def attention(self, path: str, queries: Shape, keys: Shape, *, blocks: int = 1) -> None:
        """Record attention of all queries to all keys; values have the shape of the keys."""
        self.add(path, "attention", queries, keys, keys, blocks=blocks)

    def projected_text(self, tokens: Shape, features: int) -> None:
        """Record the two layers that turn the text encoder's features into those of the denoiser."""
        projected = (*tokens[:-1], features)
        self.linear("text_embed.0", tokens, features)
        self.add("text_embed.act", "gelu", projected)
        self.linear("text_embed.1", projected, features)

    def modulated_norm(self, path: str, shape: Shape, *, blocks: int = 1, each: int = 1, **attributes: object) -> None:
        """Record a layer norm of tokens, whose scale and shift are computed from the condition, one for each image."""
        self.add(path, "layer_norm", shape, blocks=blocks, each=each, **attributes)
        self.modulation(path, shape, blocks=blocks, each=each)

    def modulation(self, path: str, shape: Shape, *, blocks: int = 1, each: int = 1) -> None:
        """Record a scale and a shift of tokens, which were computed from the condition, one for each image."""
        for kind in ("mul", "add"):
            self.add(path, kind, shape, (shape[0], 1, shape[2]), blocks=blocks, each=each)

    def projections(self, path: str, shape: Shape, outputs: int, *, blocks: int = 1, bias: bool = True) -> None:
        """Record the layers that compute queries, keys and values, one after the other."""
        for name in ("q", "k", "v"):
            self.linear(f"{path}.{name}", shape, outputs, blocks=blocks, bias=bias)

    def strided_linear(self, path: str, shape: Shape, outputs: int, *, blocks: int = 1) -> None:
        """Record a linear layer of a part of a tensor, which PyTorch copies first; the bias is added afterwards."""
        self.add(path, "copy", shape, blocks=blocks)
        self.linear(path, shape, outputs, blocks=blocks)
        self.add(path, "add", (*shape[:-1], outputs), (outputs,), blocks=blocks)

    def transposed(self, path: str, shape: Shape, *, blocks: int = 1, each: int = 1) -> None:
        """Record reading a residual in which the tokens of one feature lie side by side, as a convolution wrote them.

        Patches that a convolution computes have the memory layout of an image. Sums take the layout of their first
        operand, so the residual keeps it through all blocks: each norm copies it first, and each sum with a result of
        another layer, whose features lie side by side, fetches a sector of memory for every element. Both are counted
        as a copy that transposes (traced with diffusers 0.35.2).
        """
        images, tokens, features = shape
        self.add(f"{path}.{TRANSPOSED}", "copy", (images, features, tokens), blocks=blocks, each=each)

    def joined_heads(self, path: str, one: Shape, other: Shape, *, blocks: int = 1, each: int = 1) -> None:
        """Record joining the tokens of two tensors of heads, which are views of (images, tokens, heads, elements)."""
        self.add(f"{path}.{JOINED}", "cat", one, other, blocks=blocks, each=each, dim=2)

    def rms_norm(self, path: str, shape: Shape, *, blocks: int = 1, each: int = 1) -> None:
        """Record a norm as `diffusers` computes it: in fp32, one operation after the other."""
        wide, row = Layers("fp32", self.calls), (*shape[:-1], 1)
        for kind, shapes, attributes in (
            ("copy", [shape], {}),
            ("pow", [shape], {}),
            ("mean", [shape], {"dim": -1, "keepdim": True}),
            ("add", [row], {}),
            ("rsqrt", [row], {}),
            ("mul", [shape, row], {}),
        ):
            wide.add(path, kind, *shapes, blocks=blocks, each=each, **attributes)
        self.add(path, "copy", shape, blocks=blocks, each=each)
        self.add(path, "mul", shape[-1:], shape, blocks=blocks, each=each)

    def rotary(self, path: str, shape: Shape, *, blocks: int = 1, each: int = 1) -> None:
        """Record a rotary position embedding as `diffusers` computes it: swapped halves, products and a sum in fp32."""
        wide, half, angles = Layers("fp32", self.calls), (*shape[:-1], shape[-1] // 2), (1, 1, *shape[-2:])
        self.add(path, "neg", half, blocks=blocks, each=each)
        self.add(path, "cat", half, half, blocks=blocks, each=each, dim=-1)
        wide.add(path, "copy", shape, blocks=blocks, each=2 * each)
        wide.add(path, "mul", shape, angles, blocks=blocks, each=2 * each)
        wide.add(path, "add", shape, shape, blocks=blocks, each=each)
        self.add(path, "copy", shape, blocks=blocks, each=each)

    def network(self, name: str, shape: Mapping[str, Shape]) -> Network:
        """The recorded operations."""
        entries = tuple(Entry.at(operation, paths) for operation, paths in self.calls.items())
        return Network(entries, name=name, input_shape=dict(shape))


def parameters_of(network: Network) -> int:
    """Number of parameters. A module counts once, even if its inputs have several shapes."""
    weights = {(path, entry.operation.parameters) for entry in network for path in entry.by_module}
    return sum(parameters for _, parameters in weights)
