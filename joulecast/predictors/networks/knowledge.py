"""What was learned or is assumed about networks on one GPU in one mode, and the totals that follow at many clocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress

import numpy as np

from ...arrays import FloatArray
from ...operations.attributes import ELEMENT_BYTES
from ...operations.network import Network
from ..intervals.network_calibration import NetworkCalibration, shares_of
from ..operation_predictions import OperationPredictions
from ..physics.energy import static_power_w
from ..predictor import OperationPredictor
from .composition import HostModel, counts_of
from .prediction import Composition
from .uncovered import Coverage

_MAJORITY = 0.5  # Share of the device time in 16 bits and less from which a network counts as one in half precision.


@dataclass(frozen=True, eq=False)
class NetworkKnowledge:
    """A predictor of single operations, and everything else that is needed to compose networks from them.

    Args:
        name: Name of the zoo entry that it comes from, such as "a30/forest-inference".
        operations: Predicts single operations.
        host: Model of the host seconds of a call inside a network.
        composition: The composition that was better on networks that were left out; the default.
        network_errors: Errors on networks that were left out; None where no network was measured.
        half_errors: Errors on left-out networks that spend most of their time in half precision; None if
            `network_errors` holds for these as well.
        any_gpu: Whether the predictor is for GPUs and clocks that were not measured. Its errors come from such GPUs, so
            they do not grow at other clocks than the default.
        find_shared: Gives the knowledge of a GPU of which nothing was measured, for networks with operations that were
            not measured on its chip. It is loaded when this is called first.
    """

    name: str
    operations: OperationPredictor
    host: HostModel
    composition: Composition = "overlap"
    network_errors: NetworkCalibration | None = None
    half_errors: NetworkCalibration | None = None
    any_gpu: bool = False
    find_shared: Callable[[], NetworkKnowledge | None] = lambda: None

    def holds_measured_settings(self, clock_mhz: float, power_limit_w: float) -> bool:
        """Whether a GPU's own measurements were made at this clock and under this power cap."""
        gpu = self.operations.gpu
        return clock_mhz == gpu.boost_clock_mhz and power_limit_w == gpu.power_limit_w

    def errors_on(self, counts: FloatArray, predictions: OperationPredictions) -> NetworkCalibration | None:
        """Errors on networks like this one; None where nothing is known."""
        if self.operations.not_of_chip(predictions.operations):
            # A GPU's own errors come from networks whose operations were all measured there.
            shared = self.find_shared()
            return None if shared is None else shared.errors_on(counts, predictions)
        if self.half_errors is None:
            return self.network_errors
        shares, known = shares_of(counts, predictions)
        half = [ELEMENT_BYTES[operation.precision] <= 2 for operation in compress(predictions.operations, known)]
        return self.half_errors if float(shares[half].sum()) > _MAJORITY else self.network_errors


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
