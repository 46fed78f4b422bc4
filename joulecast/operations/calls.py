"""Calls: the operations of many networks as arrays, each different operation once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, totals_by
from .network import Network
from .operation_list import OperationList


@dataclass(frozen=True, eq=False)
class Calls:
    """The operations of many networks. A row is one operation of one network.

    Args:
        names: Name of each network.
        operations: The different operations of all networks together.
        places: Index of each row's operation in `operations`, shape (rows,).
        owners: Index of each row's network in `names`, ascending, shape (rows,).
        counts: Calls of each row in one iteration of its network, shape (rows,).
        listed: The networks themselves, where they are given as such; empty where they come from a table.
    """

    names: tuple[str, ...]
    operations: OperationList
    places: NDArray[np.intp]
    owners: NDArray[np.intp]
    counts: FloatArray
    listed: tuple[Network, ...] = ()

    @classmethod
    def of(cls, networks: Sequence[Network]) -> Self:
        """The calls of these networks."""
        place_of: dict[object, int] = {}
        places = [place_of.setdefault(op, len(place_of)) for network in networks for op in network.operations]
        return cls(
            names=tuple(network.name for network in networks),
            operations=OperationList(place_of),  # type: ignore[arg-type]  # (its keys are operations)
            places=np.array(places, dtype=np.intp),
            owners=np.repeat(np.arange(len(networks)), [len(network) for network in networks]),
            counts=np.array([entry.count for network in networks for entry in network], dtype=float),
            listed=tuple(networks),
        )

    def sums(self, values: FloatArray) -> FloatArray:
        """The sum over all calls of each network, shape (networks,).

        Args:
            values: Value of one call of each row, shape (rows,); NaN counts as zero.
        """
        return totals_by(self.owners, self.counts * values, len(self.names))

    def as_table(self, values: NDArray[np.intp]) -> tuple[NDArray[np.intp], FloatArray]:
        """A value of each row and its calls, shape (networks, operations of the longest network); 0 fills them up.

        Args:
            values: One for each row, shape (rows,).
        """
        lengths = np.bincount(self.owners, minlength=len(self.names))
        column = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        found, counts = np.zeros((len(self.names), max(lengths)), dtype=np.intp), np.zeros((len(lengths), max(lengths)))
        found[self.owners, column], counts[self.owners, column] = values, self.counts
        return found, counts

    def network(self, index: int) -> Network:
        """One of the networks."""
        if self.listed:
            return self.listed[index]
        rows = self._rows(index)
        pairs = zip(self.places[rows].tolist(), self.counts[rows].tolist(), strict=True)
        return Network.of(((self.operations[place], int(count)) for place, count in pairs), name=self.names[index])

    def places_of(self, index: int) -> NDArray[np.intp]:
        """Indices into `operations` of the operations of one network, each different one once."""
        # In the order of `Network.of`, which puts equal operations together.
        return np.array([*dict.fromkeys(self.places[self._rows(index)].tolist())], dtype=np.intp)

    def _rows(self, index: int) -> slice:
        start, stop = np.searchsorted(self.owners, [index, index + 1]).tolist()
        return slice(start, stop)
