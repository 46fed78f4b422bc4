"""The stored weights of a transformer, from which it can be rebuilt. They contain no code.

ONNX Runtime gets a graph that is written from them (onnx.py), never one that came with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ...errors import ZooError
from ..formats.arrays import arrays_from_bytes, arrays_to_bytes
from ..physics.operation_numbers import FAMILIES
from ..recipes.transformer import OPERATION_VECTORS
from .tokens import ROLES, WIDTH

STACKS = ("over_network", "over_operation", "over_kinds")
_MOST_NUMBERS = 4096  # Along any side of an array.
_MOST_WIDTH = 1024
_MOST_HEADS = 32  # Scores are as many times the length of a network, squared.
_MOST_LAYERS = 64
# Entries that do not say otherwise were made with these.
_FACTS = {"heads": "2", "distance_weighting": "True", "operation_vector": "sum", "positional_encoding": "False"}


@dataclass(frozen=True)
class TransformerWeights:
    """What `OperationTransformer` consists of.

    Args:
        arrays: Weights by the names that `OperationTransformer` gives them, in fp32.
        heads: Attention heads of a layer.
        distance_weighting: Whether attention scores shrink with the distance of two tokens.
        operation_vector: What stands for an operation: "sum" of its tokens, or the token of its "kind".
        positional_encoding: Whether sinusoids of its place are added to an operation's vector.

    Raises:
        ZooError: An array is missing, too many or of another shape than the others ask for, or the whole is larger than
            any can be.
    """

    arrays: Mapping[str, NDArray[np.float32]]
    heads: int
    distance_weighting: bool
    operation_vector: str = "sum"
    positional_encoding: bool = False

    def __post_init__(self) -> None:
        given = {name: array.shape for name, array in self.arrays.items()}
        if any(array.dtype != np.float32 for array in self.arrays.values()):
            raise _no_transformer("numbers that are not fp32", None, "fp32")
        layers, widest = len([*self.layers()]), max((max(shape, default=1) for shape in given.values()), default=0)
        if layers > _MOST_LAYERS or widest > _MOST_NUMBERS:
            raise _no_transformer("larger than allowed", (layers, widest), (_MOST_LAYERS, _MOST_NUMBERS))
        expected = self._expected()
        off = sorted(name for name in given.keys() | expected.keys() if given.get(name) != expected.get(name))
        if off:
            raise _no_transformer(f"another shape at {off[0][:60]!r}", given.get(off[0]), expected.get(off[0]))
        if not 0 < self.heads <= _MOST_HEADS or self.width % self.heads:
            raise _no_transformer("an impossible number of heads", self.heads, f"a divisor of {self.width}")
        if self.positional_encoding and self.width % 2:
            raise _no_transformer("an odd width with positional encoding", self.width, "an even one")

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        roles = self.arrays.get("roles", np.zeros((0, 0)))
        if roles.ndim != 2 or not 0 < roles.shape[1] <= _MOST_WIDTH:
            raise _no_transformer("vectors of an impossible width", roles.shape, f"1 to {_MOST_WIDTH}")
        return int(roles.shape[1])

    @property
    def kinds(self) -> int:
        """Length of the vocabulary."""
        return len(self.arrays["kind.weight"])

    def layers(self, stack: str | None = None) -> Iterator[str]:
        """What the names of the arrays of each layer begin with, in order; of one stack, or of all."""
        for each in STACKS if stack is None else (stack,):
            number = 0
            while f"{each}.{number}.attend.weight" in self.arrays:
                yield f"{each}.{number}."
                number += 1

    def normalized(self, layer: str) -> bool:
        """Whether a layer normalizes its residuals."""
        return f"{layer}norms.0.weight" in self.arrays

    def _expected(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape, as far as the width, the vocabulary and the feed-forward parts leave no choice."""
        width = self.width
        expected: dict[str, tuple[int, ...]] = {
            "read": (len(ROLES), WIDTH, width),
            "roles": (len(ROLES), width),
            "lowest": (len(ROLES), WIDTH),
            "highest": (len(ROLES), WIDTH),
            "family.weight": (len(FAMILIES), width),
            "kind.weight": (self._rows("kind.weight"), width),
            "operation_head.weight": (2, width),
            "operation_head.bias": (2,),
        }
        for layer in self.layers():
            wide = self._rows(f"{layer}widen.bias")
            for name, rows, columns in (
                ("attend", 3 * width, width),
                ("gather", width, width),
                ("widen", wide, width),
                ("narrow", width, wide),
            ):
                expected |= {f"{layer}{name}.weight": (rows, columns), f"{layer}{name}.bias": (rows,)}
            if self.normalized(layer):
                names = (f"{layer}norms.{number}.{part}" for number in range(2) for part in ("weight", "bias"))
                expected |= dict.fromkeys(names, (width,))
        return expected

    def _rows(self, name: str) -> int:
        array = self.arrays.get(name)
        return max(1, len(array)) if array is not None and array.ndim else 1

    def to_bytes(self) -> bytes:
        """As safetensors; the same weights give the same bytes."""
        facts = {name: str(getattr(self, name)) for name in _FACTS}
        return arrays_to_bytes(self.arrays, facts)

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        """Read what `to_bytes` wrote.

        Raises:
            ZooError: The bytes are no weights, or not those of a transformer.
        """
        arrays, facts = arrays_from_bytes(stored)
        told = {name: facts.get(name, default) for name, default in _FACTS.items()}
        heads, weighted, vector, positions = told.values()
        if (
            not (heads.isascii() and heads.isdecimal() and len(heads) < 4)
            or not {weighted, positions} <= {"True", "False"}
            or vector not in OPERATION_VECTORS
        ):
            raise _no_transformer("facts that are none", str(facts)[:100], ", ".join(_FACTS))
        return cls(arrays, int(heads), weighted == "True", vector, positions == "True")


def _no_transformer(what: str, given: object, allowed: object) -> ZooError:
    return ZooError(
        f"these are not the weights of a transformer: {what}",
        given=given,
        allowed=str(allowed),
        hint="pull the entry again, or train it again",
    )
