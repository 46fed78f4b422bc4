"""From operations to a network.

Single operations were timed in loops that may wait for the host. In a network the host runs ahead of the device, so
the times of loops do not add up. Device times and dynamic energies do:

    T = max(sum of device times, sum of host times),    E = sum of dynamic energies + static power x T

The maximum is smooth, as for a single operation: where device and host take about the same time, each waits for the
other now and then.

A call costs the host another time inside a network than in a loop: in inference a little more (modules call
modules), in training about 0.13 ms less, because a loop starts the autograd engine for every single operation. That
difference is one number per GPU and mode, learned from measured networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ...arrays import FloatArray
from ...operations.network import Network
from ..formats.numbers import number
from ..operation_predictions import OperationPredictions
from ..physics.norms import smooth_max
from .execution import COMPILED_CALL_S, EAGER, GAP_S, GRAPH_LAUNCH_S, KERNELS_IN_TRAINING, Execution

LEAST_HOST_S = 5e-6
"""About what a kernel launch alone takes. No call inside a network costs the host less."""

# A30, inference and training; also the prior where a GPU has no measured networks.
_PRIOR_OFFSET_S = {"inference": 5e-6, "training": -125e-6}
_OFFSETS_S = np.arange(-200e-6, 60.1e-6, 1e-6)


@dataclass(frozen=True)
class HostModel:
    """What the host needs per call inside a network, beyond what it needs in a measurement loop.

    Args:
        offset_s: Seconds per call, negative where a network is cheaper.
        learned: Whether it comes from measured networks; otherwise it is a prior.
        execution: How networks are run, and on which host; everything was learned from eager runs on the reference.
    """

    offset_s: float
    learned: bool = False
    execution: Execution = EAGER

    @classmethod
    def prior(cls, mode: str) -> Self:
        """The offset to assume where no network was measured."""
        return cls(_PRIOR_OFFSET_S[mode])

    @classmethod
    def fit(cls, networks: Sequence[tuple[FloatArray, OperationPredictions, float]], mode: str) -> Self:
        """Learn the offset from measured networks.

        Args:
            networks: Counts, predictions and measured seconds of each.
            mode: Inference or training. Its prior is used where every network is bound by the device.
        """
        errors = np.zeros(len(_OFFSETS_S))
        for counts, predictions, measured_s in networks:
            device_s = np.nansum(counts * predictions.device_time_s)
            calls_s = np.maximum(predictions.host_time_s + _OFFSETS_S[:, None], LEAST_HOST_S)
            errors += abs(np.log(smooth_max(device_s, np.nansum(counts * calls_s, axis=1)) / measured_s))
        if not len(networks) or np.ptp(errors) < 1e-9:
            return cls.prior(mode)
        # The error is flat where the host decides nothing; the middle of the flat part is the most cautious choice.
        best = np.flatnonzero(errors <= errors.min() + 1e-9)
        return cls(float(_OFFSETS_S[best].mean()), learned=True)

    def calls_s(self, predictions: OperationPredictions) -> FloatArray:
        """Seconds that the host needs for a call of each operation inside a network, shape (operations,)."""
        match self.execution.name:
            case "graph":
                return np.zeros(len(predictions.operations))
            case "compiled":
                return predictions.host_time_s * self.execution.host.factor  # (see compiled.py)
        calls_s: FloatArray = np.maximum(predictions.host_time_s + self.offset_s, LEAST_HOST_S)
        return calls_s * self.execution.host.factor

    def total_s(self, counts: FloatArray, predictions: OperationPredictions) -> float:
        """Seconds that the host needs for an iteration of a network; what is missing is left out."""
        if self.execution.name == "graph":
            return GRAPH_LAUNCH_S * self.execution.host.factor
        call_s = COMPILED_CALL_S * self.execution.host.factor if self.execution.name == "compiled" else 0.0
        return call_s + float(np.nansum(counts * self.calls_s(predictions)))

    def gaps_s(self, counts: FloatArray, mode: str) -> float:
        """Seconds of an iteration in which the device waits between the kernels of a graph.

        Eager loops hold such gaps already: device times were measured in them.
        """
        if self.execution.name != "graph":
            return 0.0
        return GAP_S * float(counts.sum()) * (KERNELS_IN_TRAINING if mode == "training" else 1)

    def device_s(self, counts: FloatArray, predictions: OperationPredictions) -> float:
        """Seconds that the device needs for an iteration of a network; what is missing is left out."""
        mode = predictions.operations[0].mode if len(predictions.operations) else "inference"
        return float(np.nansum(counts * predictions.device_time_s)) + self.gaps_s(counts, mode)

    def to_json(self) -> dict[str, Any]:
        """The model as a dictionary."""
        return {"offset_s": self.offset_s, "learned": self.learned}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(number(value["offset_s"]), bool(value["learned"]))


@dataclass(frozen=True)
class Totals:
    """A network as the sum of its operations: seconds and joules per iteration.

    Args:
        time_s: Seconds per iteration.
        energy_j: Joules per iteration.
        device_time_s, host_time_s: Seconds that device and host need; in an overlap the larger decides.
    """

    time_s: float
    energy_j: float
    device_time_s: float
    host_time_s: float


def counts_of(network: Network) -> FloatArray:
    """How often each operation of a network runs."""
    return np.array([entry.count for entry in network], dtype=float)


def overlap(device_s: Any, host_s: Any, dynamic_j: Any, static_w: Any, power_limit_w: float) -> tuple[Any, Any]:
    """Seconds and joules of a network whose host and device work at the same time; numbers, or arrays over clocks.

    Args:
        device_s: Sum of the device times of its operations.
        host_s: Sum of what the host needs for their calls.
        dynamic_j: Sum of their dynamic energies.
        static_w: Board power while the GPU waits.
        power_limit_w: The cap, which holds for the mean power.
    """
    time_s = smooth_max(device_s, host_s)
    return time_s, np.minimum(dynamic_j + static_w * time_s, power_limit_w * time_s)


def compose(counts: FloatArray, predictions: OperationPredictions, host: HostModel, power_limit_w: float) -> Totals:
    """Overlap host and device; add dynamic energies and static power. The default.

    Missing operations are left out; the caller lists them.
    """
    device_s, host_s = host.device_s(counts, predictions), host.total_s(counts, predictions)
    dynamic_j = float(np.nansum(counts * predictions.dynamic_energy_j))
    time_s, energy_j = overlap(device_s, host_s, dynamic_j, predictions.static_power_w, power_limit_w)
    return Totals(float(time_s), float(energy_j), device_s, host_s)


def plain_sum(counts: FloatArray, predictions: OperationPredictions) -> Totals:
    """Add loop times and loop energies as they are, as the literature does."""
    time_s = float(np.nansum(counts * predictions.time_s))
    energy_j = float(np.nansum(counts * predictions.energy_j))
    device_s, host_s = (
        float(np.nansum(counts * seconds)) for seconds in (predictions.device_time_s, predictions.host_time_s)
    )
    return Totals(time_s, energy_j, device_s, host_s)
