"""Recording the operations of a network that is described by code instead of extracted from a module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
    """The operations that were recorded so far, in a module that some blocks of the network have."""

    precision: str
    # Operation -> path of the module of each of its calls.
    calls: dict[Operation, list[str]] = field(default_factory=dict)
    path: str = ""  # Of the module; {} is replaced by the number of the block
    blocks: int = 1  # Number of blocks that have such a module
    times: int = 1  # Number of its calls in each block

    def within(self, path: str, blocks: int = 1, times: int = 1) -> Layers:
        """The same operations, to record more of a module."""
        return replace(self, path=self._path(path), blocks=self.blocks * blocks, times=self.times * times)

    @property
    def wide(self) -> Layers:
        """The same operations, to record more in fp32."""
        return replace(self, precision="fp32")

    def _path(self, path: str) -> str:
        return ".".join(part for part in (self.path, path) if part)

    def add(self, path: str, kind: str, *shapes: Shape, each: int = 1, **attributes: object) -> None:
        """Record an operation.

        `path`: Path of the module that calls it, inside of this one.
        `each`: Number of calls in each call of this module.
        """
        operation, whole = Operation(kind, shapes, attributes, precision=self.precision), self._path(path)
        paths = [whole.format(block) for block in range(self.blocks) for _ in range(self.times * each)]
        self.calls.setdefault(operation, []).extend(paths)

    def linear(self, path: str, shape: Shape, outputs: int, *, bias: bool = True) -> None:
        """Record a linear layer with an input of this shape."""
        self.add(path, "linear", shape, out_features=outputs, bias=bias)

    def attention(self, path: str, queries: Shape, keys: Shape) -> None:
        """Record attention of all queries to all keys; values have the shape of the keys."""
        self.add(path, "attention", queries, keys, keys)

    def two_linear(self, path: str, shape: Shape, inner: int, outputs: int, activation: str = "gelu") -> None:
        """Record two linear layers with an activation between them."""
        self.linear(f"{path}.0", shape, inner)
        self.add(f"{path}.act", activation, (*shape[:-1], inner))
        self.linear(f"{path}.1", (*shape[:-1], inner), outputs)

    def gated_residual(self, path: str, shape: Shape) -> None:
        """Record a sum with the output of a block, which is multiplied with a gate from the condition."""
        self.add(path, "mul", shape, (shape[0], 1, shape[2]))
        self.add(path, "add", shape, shape)

    def modulated_norm(self, path: str, shape: Shape, *, each: int = 1, **attributes: object) -> None:
        """Record a layer norm of tokens, whose scale and shift are computed from the condition, one for each image."""
        self.add(path, "layer_norm", shape, each=each, **attributes)
        self.modulation(path, shape, each=each)

    def modulation(self, path: str, shape: Shape, *, each: int = 1) -> None:
        """Record a scale and a shift of tokens, which were computed from the condition, one for each image."""
        for kind in ("mul", "add"):
            self.add(path, kind, shape, (shape[0], 1, shape[2]), each=each)

    def projections(self, path: str, shape: Shape, outputs: int, *, bias: bool = True) -> None:
        """Record the layers that compute queries, keys and values, one after the other."""
        for name in ("q", "k", "v"):
            self.linear(f"{path}.{name}" if path else name, shape, outputs, bias=bias)

    def strided_linear(self, path: str, shape: Shape, outputs: int) -> None:
        """Record a linear layer of a part of a tensor, which PyTorch copies first; the bias is added afterwards."""
        self.add(path, "copy", shape)
        self.linear(path, shape, outputs)
        self.add(path, "add", (*shape[:-1], outputs), (outputs,))

    def transposed(self, path: str, shape: Shape, *, each: int = 1) -> None:
        """Record reading a residual in which the tokens of one feature lie side by side, as a convolution wrote them.

        Patches that a convolution computes have the memory layout of an image. Sums take the layout of their first
        operand, so the residual keeps it through all blocks: each norm copies it first, and each sum with a result of
        another layer, whose features lie side by side, fetches a sector of memory for every element. Both are counted
        as a copy that transposes (traced with diffusers 0.35.2).
        """
        images, tokens, features = shape
        self.within(path).add(TRANSPOSED, "copy", (images, features, tokens), each=each)

    def rms_norm(self, path: str, shape: Shape, *, each: int = 1) -> None:
        """Record a norm as `diffusers` computes it: in fp32, one operation after the other."""
        row = (*shape[:-1], 1)
        for kind, shapes, attributes in (
            ("copy", [shape], {}),
            ("pow", [shape], {}),
            ("mean", [shape], {"dim": -1, "keepdim": True}),
            ("add", [row], {}),
            ("rsqrt", [row], {}),
            ("mul", [shape, row], {}),
        ):
            self.wide.add(path, kind, *shapes, each=each, **attributes)
        self.add(path, "copy", shape, each=each)
        self.add(path, "mul", shape[-1:], shape, each=each)

    def conv(
        self, path: str, shape: Shape, outputs: int, side: int = 3, stride: int = 1, groups: int = 1, bias: bool = True
    ) -> Shape:
        """Record a convolution over two or three dimensions, padded so that it keeps their sides."""
        kind = "conv2d" if len(shape) == 4 else "conv3d"
        sizes = {"out_channels": outputs, "kernel_size": side, "padding": side // 2, "stride": stride}
        self.add(path, kind, shape, **sizes, groups=groups, bias=bias)
        return (shape[0], outputs, *(each // stride for each in shape[2:]))

    def normed(self, path: str, shape: Shape, groups: int = 32) -> None:
        """Record a norm of groups of channels and an activation."""
        self.add(path, "group_norm", shape, num_groups=groups)
        self.add(path, "silu", shape)

    def unit_length(self, path: str, shape: Shape) -> None:
        """Record normalizing the channels of a pixel to length one, one operation after the other."""
        self.add(path, "norm", shape, dim=1, keepdim=True)
        self.add(path, "div", shape, (shape[0], 1, *shape[2:]))
        self.add(path, "mul", shape)
        self.add(path, "mul", shape, (shape[1], *(1 for _ in shape[2:])))
        self.add(path, "add", shape)

    def linear_attention(self, shape: Shape) -> None:
        """Record attention without a softmax: keys times values come first, so that the cost is linear in the tokens.

        `diffusers` computes it in fp32. A row of ones below the values gives the sums that results are divided by.

        `shape`: Shape of queries, keys and values: images, heads, features of a head, tokens.
        """
        images, heads, features, tokens = shape
        wide, row = self.wide, (images, heads, 1, tokens)
        context = (images, heads, features + 1, features)
        wide.add("", "copy", shape, each=3)
        wide.add("", "cat", shape, row, dim=2)
        wide.add("", "matmul", (*context[:-1], tokens), (images, heads, tokens, features))
        wide.add("", "matmul", context, shape)
        wide.add("", "add", row)
        wide.add("", "div", shape, row)
        self.add("", "copy", shape)

    def convolutional_feed_forward(self, shape: Shape, inner: int) -> None:
        """Record a feed-forward block with a depthwise convolution over neighbouring tokens.

        `shape`: Shape of its input and output: images, channels, height, width.
        """
        half = (shape[0], inner, *shape[2:])
        both = self.conv("inverted", shape, 2 * inner, 1)
        self.add("inverted", "silu", both)
        self.conv("depth", both, 2 * inner, groups=2 * inner)
        self.add("gate", "silu", half)
        self.add("gate", "mul", half, half)
        self.conv("point", half, shape[1], 1, bias=False)

    def rotary(self, path: str, shape: Shape, *, each: int = 1) -> None:
        """Record a rotary position embedding as `diffusers` computes it: swapped halves, products and a sum in fp32."""
        half, angles = (*shape[:-1], shape[-1] // 2), (1, 1, *shape[-2:])
        self.add(path, "neg", half, each=each)
        self.add(path, "cat", half, half, each=each, dim=-1)
        self.wide.add(path, "copy", shape, each=2 * each)
        self.wide.add(path, "mul", shape, angles, each=2 * each)
        self.wide.add(path, "add", shape, shape, each=each)
        self.add(path, "copy", shape, each=each)

    def network(self, name: str, shape: Mapping[str, Shape]) -> Network:
        """The recorded operations."""
        entries = tuple(Entry.at(operation, paths) for operation, paths in self.calls.items())
        return Network(entries, name=name, input_shape=dict(shape))


def parameters_of(network: Network) -> int:
    """Number of parameters. A module counts once, even if its inputs have several shapes."""
    weights = {(path, entry.operation.parameters) for entry in network for path in entry.by_module}
    return sum(parameters for _, parameters in weights)
