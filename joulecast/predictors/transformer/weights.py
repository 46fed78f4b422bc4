"""The stored weights of a transformer, from which it can be rebuilt. They contain no code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ...errors import ZooError, damaged_entry
from ..formats.arrays import arrays_from_bytes, arrays_to_bytes
from ..physics.operation_numbers import FAMILIES
from .tokens import ROLES, WIDTH

STACKS = ("over_network", "over_operation", "over_kinds")
# Limits that keep damaged or hostile files from taking all memory.
_MOST_NUMBERS = 4096  # Along any axis of an array.
_MOST_WIDTH = 1024
_MOST_HEADS = 32  # Each head needs memory for the square of a network's length.
_MOST_LAYERS = 64
# Values of entries that were stored before these facts were.
_FACTS = {"heads": "2", "distance_weighting": "True", "operation_vector": "sum", "positional_encoding": "False"}


@dataclass(frozen=True)
class TransformerWeights:
    """The weights of an `OperationTransformer`, checked when they are made.

    Args:
        arrays: Name of a parameter in `OperationTransformer` -> its weights in fp32.
        distance_weighting: Whether attention scores shrink with the distance of two tokens.
        operation_vector: What stands for an operation: "sum" of its tokens, or the token of its "kind".
        positional_encoding: Whether sinusoids of its place are added to an operation's vector.

    Raises:
        ZooError: An array is missing, unknown, of another type or of a shape that does not match the others; or the
            transformer is larger than allowed.
    """

    arrays: Mapping[str, NDArray[np.float32]]
    heads: int
    distance_weighting: bool
    operation_vector: str = "sum"
    positional_encoding: bool = False

    def __post_init__(self) -> None:
        given = {name: array.shape for name, array in self.arrays.items()}
        if any(array.dtype != np.float32 for array in self.arrays.values()):
            given_types = sorted({str(array.dtype) for array in self.arrays.values()})
            raise _refused("an array is not in fp32", ", ".join(given_types), "float32")
        layers, widest = len([*self.layers()]), max((max(shape, default=1) for shape in given.values()), default=0)
        if layers > _MOST_LAYERS or widest > _MOST_NUMBERS:
            given_size = f"{layers} layers, {widest} numbers along an axis"
            raise _refused("they are too large", given_size, f"{_MOST_LAYERS} layers, {_MOST_NUMBERS} numbers")
        expected = self._expected()
        off = sorted(name for name in given.keys() | expected.keys() if given.get(name) != expected.get(name))
        if off:
            name = off[0]
            raise _refused(
                f"the array {name[:60]!r} is missing, unknown or of another shape",
                given.get(name, "no such array"),
                expected.get(name, "no array of this name"),
            )
        if not 0 < self.heads <= _MOST_HEADS or self.width % self.heads:
            raise _refused(
                "the number of attention heads is impossible",
                self.heads,
                f"a divisor of {self.width} up to {_MOST_HEADS}",
            )
        if self.positional_encoding and self.width % 2:
            raise _refused("positional encoding needs an even width", self.width, "an even number")

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        roles = self.arrays.get("roles", np.zeros((0, 0)))
        if roles.ndim != 2 or not 0 < roles.shape[1] <= _MOST_WIDTH:
            raise _refused("the width of vectors is impossible", roles.shape, f"(roles, 1 to {_MOST_WIDTH})")
        return int(roles.shape[1])

    @property
    def kinds(self) -> int:
        """Length of the vocabulary."""
        return len(self.arrays["kind.weight"])

    def layers(self, stack: str | None = None) -> Iterator[str]:
        """The prefix of each layer's array names, in order."""
        for each in STACKS if stack is None else (stack,):
            number = 0
            while f"{each}.{number}.attend.weight" in self.arrays:
                yield f"{each}.{number}."
                number += 1

    def normalized(self, layer: str) -> bool:
        """Whether a layer normalizes its residuals."""
        return f"{layer}norms.0.weight" in self.arrays

    def _expected(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of every array, given the width, the size of the vocabulary and the feed-forward widths."""
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
        """The weights in the safetensors format; the same weights give the same bytes."""
        facts = {name: str(getattr(self, name)) for name in _FACTS}
        return arrays_to_bytes(self.arrays, facts)

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        """Read what `to_bytes` wrote.

        Raises ZooError: the bytes are damaged, or are not the weights of a transformer.
        """
        arrays, facts = arrays_from_bytes(stored)
        told = {name: facts.get(name, default) for name, default in _FACTS.items()}
        heads, weighted, vector, positions = told.values()
        if (
            not (heads.isascii() and heads.isdecimal() and len(heads) < 4)
            or not {weighted, positions} <= {"True", "False"}
            or vector not in ("sum", "kind")
        ):
            raise _refused(
                "their facts cannot be read",
                str(facts)[:100],
                "heads: 1 to 999, distance_weighting, positional_encoding: True or False, operation_vector: sum, kind",
            )
        return cls(arrays, int(heads), weighted == "True", vector, positions == "True")


def _refused(reason: str, given: object, allowed: object) -> ZooError:
    return damaged_entry(f"the stored weights of a transformer are refused: {reason}", given, allowed)
