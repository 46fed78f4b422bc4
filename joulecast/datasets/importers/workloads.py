"""From the operation lists of EnergAIzer (`workloads/*.json`) to Networks.

A list has sizes but no shapes: element-wise operations are so many elements, a product is M x N x K. Batch and
sequence of the network tell which of them are rows, which also lets one list stand for other batches and sequences
of the same network. How the source's tracer names things (its `parse_trace.py`):

- a linear layer is M = outputs, N = rows; GPT-2's layers, which are `addmm`, are M = rows, N = outputs;
- an operand that is a parameter or a constant is no tensor to it: ViT's position embedding is a "scalar";
- "unspecified" is what has no name of its own: a division where attention scores are scaled, elsewhere the power
  inside GPT-2's GELU; the addition inside it is listed as a multiplication, which costs the same;
- a softmax in another precision is listed with its two casts behind it; each is a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InputError
from ...operations.dropped import Dropped
from ...operations.network import Entry, Network
from ...operations.operation import Operation, real_precision

_ELEMENTWISE: Mapping[str, tuple[str, int]] = {
    "pointwise_add": ("add", 2),
    "pointwise_mul": ("mul", 2),
    "scalar_add": ("add", 1),
    "scalar_mul": ("mul", 1),
    "relu": ("relu", 1),
    "gelu": ("gelu", 1),
    "tanh": ("tanh", 1),
    "typecast_to_fp32": ("copy", 1),
    "typecast_to_bf16": ("copy", 1),
    "unspecified_scalar": ("pow", 1),
}
_IN_ATTENTION: Mapping[str, tuple[str, int]] = {"unspecified_scalar": ("div", 1), "unspecified_tensor": ("div", 1)}

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Tokens:
    """Batch and sequence of a network: its rows."""

    batch: int
    sequence: int

    @property
    def rows(self) -> int:
        """Rows of the linear layers."""
        return self.batch * self.sequence


class _Reader:
    """Reads a list that was made at `listed` as the network would be at `wanted`."""

    def __init__(self, listed: Tokens, wanted: Tokens, precision: str) -> None:
        self._listed, self._wanted, self._precision = listed, wanted, precision
        self._heads: int | None = None  # Of the attention that is being read; None outside.
        self._latest_rows = listed.rows  # Of what an element-wise operation follows.

    def operation(self, query: Mapping[str, Any], what: str) -> Operation | None:
        """The operation that one entry of the list is; None where it does not exist in this precision.

        Raises:
            InputError: It is none that joulecast has.
        """
        match what:
            case "gemm":
                return self._product(query)
            case "conv2d":
                return self._conv2d(query)
            case "elementwise":
                return self._elementwise(query["op"], query["dim"], query["prec"])
            case "layernorm":
                self._latest_rows = query["batch"]
                return self._made("layer_norm", [(*self._rows(query["batch"]), query["dim"])], query["prec"])
            case "softmax":
                return self._softmax(query)
            case _:
                raise InputError("joulecast has no such operation", given=what)

    def _made(
        self, kind: str, shapes: Iterable[Shape], listed_precision: str, attributes: Mapping[str, Any] | None = None
    ) -> Operation:
        # fp32 networks run as PyTorch runs them by default; the lists are of bf16.
        precision = real_precision(kind, "default") if self._precision == "fp32" else listed_precision
        return Operation(kind, shapes, attributes, precision=precision)

    def _rows(self, n: int) -> Shape:
        """So many rows, as batch and sequence.

        Raises:
            InputError: They are neither tokens nor the batch.
        """
        if n == self._listed.rows:
            return (self._wanted.batch, self._wanted.sequence)
        if n == self._listed.batch:
            return (self._wanted.batch,)
        raise InputError("these rows are neither the network's tokens nor its batch", given=n)

    def _length(self, n: int) -> int:
        return self._wanted.sequence if n == self._listed.sequence else n

    def _product(self, query: Mapping[str, Any]) -> Operation:
        m, n, k, precision = query["dimM"], query["dimN"], query["dimK"], query["precM"]
        if query["batch"] == 1:
            rows, outputs = (n, m) if n in (self._listed.rows, self._listed.batch) else (m, n)
            self._heads, self._latest_rows = None, rows
            return self._made("linear", [(*self._rows(rows), k)], precision, {"out_features": outputs, "bias": True})
        heads, rest = divmod(query["batch"], self._listed.batch)
        if rest:
            raise InputError("a batched product is not one per head", given=query["batch"])
        self._heads = heads
        leading = (self._wanted.batch, heads)
        m, n, k = map(self._length, (m, n, k))
        return self._made("matmul", [(*leading, m, k), (*leading, k, n)], precision)

    def _conv2d(self, query: Mapping[str, Any]) -> Operation:
        size = query["hw"]
        attributes = {"out_channels": query["m"], "kernel_size": query["rs"]}
        attributes |= {name: query[name] for name in ("stride", "padding")}
        return self._made("conv2d", [(self._wanted.batch, query["c"], size, size)], query["precM"], attributes)

    def _softmax(self, query: Mapping[str, Any]) -> Operation:
        if self._heads is None:
            raise InputError("a softmax outside of attention", given=dict(query))
        return self._made("softmax", [self._scores(self._heads)], query["prec"])

    def _scores(self, heads: int) -> Shape:
        return (self._wanted.batch, heads, self._wanted.sequence, self._wanted.sequence)

    def _elementwise(self, op: str, elements: int, precision: str) -> Operation | None:
        if op.startswith("typecast") and self._precision == "fp32":
            return None
        scores = self._heads is not None and elements == self._listed.rows * self._listed.sequence * self._heads
        kinds = {**_ELEMENTWISE, **(_IN_ATTENTION if scores else {})}
        if op not in kinds:
            raise InputError("joulecast has no such operation", given=op)
        kind, inputs = kinds[op]
        shape = self._scores(self._heads or 0) if scores else self._features(elements)
        shapes = [shape] * inputs
        if scores and op == "pointwise_add":
            # The mask is the same for all heads and queries.
            shapes = [shape, (shape[0], 1, 1, shape[-1])]
        elif op == "scalar_add" and len(shape) == 3:
            # The position embedding is the same for the whole batch.
            shapes = [shape, (1, *shape[1:])]
        return self._made(kind, shapes, precision)

    def _features(self, elements: int) -> Shape:
        for rows in (self._latest_rows, self._listed.batch):
            if elements % rows == 0:
                return (*self._rows(rows), elements // rows)
        raise InputError("these elements are neither of the network's tokens nor of its batch", given=elements)


def network_of_workload(
    queries: Sequence[Any],
    *,
    name: str,
    input_shape: Shape,
    listed: Tokens,
    wanted: Tokens,
    precision: str,
    not_listed: tuple[Dropped, ...] = (),
) -> Network:
    """Read a list of the source as a Network.

    Args:
        queries: What the JSON file holds.
        name: Name of the network.
        input_shape: Of the network at `wanted`.
        listed: Batch and sequence that the list was made at.
        wanted: Those of the network; the list is scaled.
        precision: "fp32" for what PyTorch does by default, else that of the list.
        not_listed: What the network is known to do and the source's tracer does not list.

    Raises:
        InputError: Nothing of the list could be read.
    """
    reader = _Reader(listed, wanted, precision)
    counts: dict[Operation, int] = {}
    dropped: dict[tuple[str, str], int] = {}
    for query, (what, *_) in queries:
        try:
            operation = reader.operation(query, what)
        except InputError as error:
            key = (str(query.get("op", what)), f"{error.what} ({error.given})")
            dropped[key] = dropped.get(key, 0) + 1
            continue
        if operation is not None:
            counts[operation] = counts.get(operation, 0) + 1
    return Network(
        tuple(Entry(operation, count) for operation, count in counts.items()),
        name=name,
        input_shape=input_shape,
        dropped=(*(Dropped(what, count, (), why) for (what, why), count in dropped.items()), *not_listed),
    )
