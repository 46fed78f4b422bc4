"""From operations to a network.

Single operations were timed in loops that wait for the host; in a network the host runs ahead of the device, so
their times do not add up. What adds up is device time and dynamic energy:

    T = max(sum of device times, sum of host times),    E = sum of dynamic energies + static power x T

The maximum is a smooth one, as for a single operation: where device and host take about the same time, each waits
for the other now and then.

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

LEAST_HOST_S = 5e-6
"""What a kernel launch alone takes, about; no call inside a network costs the host less."""

# A30, inference and training; also the prior where a GPU has no measured networks.
_PRIOR_OFFSET_S = {"inference": 5e-6, "training": -125e-6}
_OFFSETS_S = np.arange(-200e-6, 60.1e-6, 1e-6)


@dataclass(frozen=True)
class HostModel:
    """What the host needs per call inside a network, beyond what it needs in a measurement loop.

    Args:
        offset_s: Seconds per call, negative where a network is cheaper.
        learned: Whether it comes from measured networks; otherwise it is a prior.
    """

    offset_s: float
    learned: bool = False

    @classmethod
    def prior(cls, mode: str) -> Self:
        """The offset to assume where no network was measured."""
        return cls(_PRIOR_OFFSET_S[mode])

    @classmethod
    def fit(cls, networks: Sequence[tuple[FloatArray, OperationPredictions, float]], mode: str) -> Self:
        """Learn the offset from measured networks.

        Args:
            networks: Counts, predictions and measured seconds of each.
            mode: For the prior, which stays where every network is bound by the device.
        """
        errors = np.zeros(len(_OFFSETS_S))
        for counts, predictions, measured_s in networks:
            device_s = np.nansum(counts * predictions.device_time_s)
            calls_s = np.maximum(predictions.host_time_s + _OFFSETS_S[:, None], LEAST_HOST_S)
            errors += abs(np.log(smooth_max(device_s, np.nansum(counts * calls_s, axis=1)) / measured_s))
        if not len(networks) or np.ptp(errors) < 1e-9:
            return cls.prior(mode)
        # The error is flat where the host decides nothing; the middle of the flat part is the least daring choice.
        best = np.flatnonzero(errors <= errors.min() + 1e-9)
        return cls(float(_OFFSETS_S[best].mean()), learned=True)

    def calls_s(self, predictions: OperationPredictions) -> FloatArray:
        """Seconds that the host needs for a call of each inside a network."""
        calls_s: FloatArray = np.maximum(predictions.host_time_s + self.offset_s, LEAST_HOST_S)
        return calls_s

    def network_s(self, counts: FloatArray, predictions: OperationPredictions) -> tuple[float, float, float]:
        """Seconds of a network, of its device part and of its host part; what is missing is left out."""
        device = float(np.nansum(counts * predictions.device_time_s))
        host = float(np.nansum(counts * self.calls_s(predictions)))
        return float(smooth_max(device, host)), device, host

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
        time_s: Per iteration.
        energy_j: Per iteration.
        device_time_s, host_time_s: What the device and the host need; in an overlap the larger one decides.
    """

    time_s: float
    energy_j: float
    device_time_s: float
    host_time_s: float


def counts_of(network: Network) -> FloatArray:
    """How often each operation of a network runs."""
    return np.array([entry.count for entry in network], dtype=float)


def compose(counts: FloatArray, predictions: OperationPredictions, host: HostModel, power_limit_w: float) -> Totals:
    """Overlap host and device; add dynamic energies and static power. The default.

    Missing operations are left out; the caller lists them.
    """
    time_s, device_s, host_s = host.network_s(counts, predictions)
    energy_j = float(np.nansum(counts * predictions.dynamic_energy_j)) + predictions.static_power_w * time_s
    return Totals(time_s, min(energy_j, power_limit_w * time_s), device_s, host_s)


def plain_sum(counts: FloatArray, predictions: OperationPredictions) -> Totals:
    """Add loop times and loop energies as they are, as the literature does."""
    time_s = float(np.nansum(counts * predictions.time_s))
    energy_j = float(np.nansum(counts * predictions.energy_j))
    device_s, host_s = (
        float(np.nansum(counts * seconds)) for seconds in (predictions.device_time_s, predictions.host_time_s)
    )
    return Totals(time_s, energy_j, device_s, host_s)
