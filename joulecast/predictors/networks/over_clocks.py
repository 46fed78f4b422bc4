"""A network on a GPU at many clocks: its totals as arrays, from which predictions are built (builder.py)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ...arrays import FloatArray
from ...operations.network import Network
from ..operation_predictions import OperationPredictions
from ..physics.energy import static_power_w
from .composition import counts_of
from .knowledge import NetworkKnowledge
from .prediction import Composition
from .uncovered import Coverage


@dataclass(frozen=True)
class OverClocks:
    """Totals of a network at many clocks, one value each; NaN where nothing of the network is covered.

    Args:
        knowledge: Predicts operations and composes them, on one GPU in one mode.
        network: The network.
        operations: Predictions of its operations at the default clock, as parts of the network.
        power_limit_w: Power cap in watts.
        composition: How operations are added up: "overlap" of host and device, or "sum".
        clocks_mhz: Requested graphics clocks in MHz, shape (clocks,).
        shared_mhz: The one clock of the whole network under the power cap, shape (clocks,).
        held_clocks_mhz: Mean clock over device time, shape (clocks,). It is lower than `shared_mhz` if single
            operations were measured to hold a lower clock.
        time_s, energy_j, device_time_s: Seconds, joules and seconds of the device per iteration, shape (clocks,).
        host_time_s: Seconds that the host needs per iteration, at any clock.
        loops: For "sum", the operations in loops of their own at each clock.
    """

    knowledge: NetworkKnowledge
    network: Network
    operations: OperationPredictions
    power_limit_w: float
    composition: Composition
    clocks_mhz: FloatArray
    shared_mhz: FloatArray
    held_clocks_mhz: FloatArray
    time_s: FloatArray
    energy_j: FloatArray
    device_time_s: FloatArray
    host_time_s: float
    loops: tuple[OperationPredictions, ...] = ()

    @cached_property
    def coverage(self) -> Coverage:
        """The part of the network that the totals lack; the same at all clocks."""
        return Coverage.of(self.network, self.operations.source, self.knowledge.name)

    @property
    def missing(self) -> int:
        """Number of operations that are not covered and that the totals lack."""
        return self.operations.source.count("missing")

    @cached_property
    def counts(self) -> FloatArray:
        """Calls of each operation per iteration, shape (operations,)."""
        return self.network.derived(counts_of)

    def operations_at(self, place: int) -> OperationPredictions:
        """The operations at one of the clocks, at the clock that they share there.

        Time, power and energy of measurement loops stay those at the default clock, because networks do not use them.
        """
        if self.loops:
            return self.loops[place]
        found, work = self.operations, self.operations.work
        if work is None:
            return found
        held_mhz, boost_mhz = float(self.shared_mhz[place]), float(work.gpu.boost_clock_mhz)
        device_s, dynamic_j = work.at(held_mhz)
        source = found.source
        if self.clocks_mhz[place] != boost_mhz and "measured" in source:
            source = tuple("modelled" if each == "measured" else each for each in source)
        return replace(
            found,
            device_time_s=device_s,
            dynamic_energy_j=dynamic_j,
            held_clock_mhz=np.minimum(held_mhz, work.most_mhz) + np.zeros(len(device_s)),
            source=source,
            static_power_w=found.static_power_w
            * (static_power_w(work.gpu, held_mhz) / static_power_w(work.gpu, boost_mhz)),
        )
