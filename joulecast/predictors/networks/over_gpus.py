"""Networks at many clocks of one GPU or of several at once.

Operations are predicted once for each GPU; the clock law is then applied to arrays of GPUs and clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...operations.network import Network
from ...progress import paced
from ..operation_predictions import OperationPredictions
from ..physics.clock import highest_mhz
from ..physics.clock_on_gpus import WorkOnGpus
from ..physics.energy import static_power_on_gpus_w
from ..physics.norms import smooth_max
from .composition import overlap
from .network_predictor import NetworkPredictor
from .over_clocks import OverClocks
from .prepared import PreparedNetwork


def predict_over_clocks(
    predictor: NetworkPredictor,
    network: Network,
    clocks_mhz: Iterable[float],
    power_limit_w: float | None = None,
) -> OverClocks:
    """Predict a network at many clocks, as `NetworkPredictor.predict` does at each.

    Args:
        predictor: The predictor of a GPU and mode.
        network: A network in that mode.
        clocks_mhz: Graphics clocks, at least one.
        power_limit_w: Power cap; None for the board's default.

    Returns:
        NaN everywhere if nothing of the network is covered.

    Raises:
        InputError: Another mode, or a clock or a cap that the GPU cannot hold.
    """
    return over_clocks(predictor.prepared(network, power_limit_w), clocks_mhz)


def over_clocks(prepared: PreparedNetwork, clocks_mhz: Iterable[float]) -> OverClocks:
    """Predict a prepared network at many clocks; see `predict_over_clocks`.

    Raises:
        InputError: See `predict_over_clocks`.
    """
    (found,) = over_gpus([(prepared, np.array(list(clocks_mhz), dtype=float))])
    return found


def over_gpus(asked: Sequence[tuple[PreparedNetwork, FloatArray]]) -> list[OverClocks]:
    """Predict prepared networks, each at clocks of its own GPU; see `predict_over_clocks`.

    Args:
        asked: Networks and clocks in MHz. A network that is asked for on several GPUs is computed for all of them
            together.

    Raises:
        InputError: See `predict_over_clocks`.
    """
    jobs = [_Job.of(*each) for each in paced(asked)]
    values: list[FloatArray] = [np.empty(0)] * len(jobs)
    together: dict[tuple[int, bool], list[int]] = {}
    for place, job in enumerate(jobs):
        work, knowledge = job.predictions.work, job.prepared.knowledge
        if job.predictions.source.count("missing") == len(job.prepared.network):
            values[place] = np.full((5, len(job.clocks_mhz)), np.nan)
        elif work is None or knowledge.composition != "overlap":
            values[place] = job.one_by_one()
        else:
            # Operations that have highest clocks of their own would cost the others an array of voltages.
            likeness = id(job.prepared.network.operations), np.ndim(work.most_mhz) > 0
            together.setdefault(likeness, []).append(place)
    for places in paced(together.values()):
        for place, found in zip(places, _composed([jobs[place] for place in places]), strict=True):
            values[place] = found
    return [job.result(found) for job, found in zip(jobs, values, strict=True)]


@dataclass(frozen=True)
class _Job:
    """A prepared network at some clocks.

    Args:
        prepared: The network on a GPU.
        clocks_mhz: Graphics clocks in MHz, shape (clocks,).
        predictions: Its operations at the default clock.
        host_s: Seconds that the host needs for an iteration, at any clock.
        gaps_s: Seconds of an iteration between the kernels of a graph.
    """

    prepared: PreparedNetwork
    clocks_mhz: FloatArray
    predictions: OperationPredictions
    host_s: float
    gaps_s: float

    @classmethod
    def of(cls, prepared: PreparedNetwork, clocks_mhz: FloatArray) -> Self:
        knowledge, counts, predictions = prepared.knowledge, prepared.counts, prepared.at_default
        for clock in (clocks_mhz.min(), clocks_mhz.max()):
            knowledge.operations.gpu.checked_clock_mhz(float(clock))
        host_s = knowledge.host.total_s(counts, predictions)
        gaps_s = knowledge.host.gaps_s(float(counts.sum()), prepared.network.mode)
        return cls(prepared, clocks_mhz, predictions, host_s, gaps_s)

    def one_by_one(self) -> FloatArray:
        """See `_composed`; for predictors without the clock law, and for plain sums."""
        each = [self.prepared.at(float(clock)) for clock in paced(self.clocks_mhz)]
        totals = [(one.held_clock_mhz, one.time_s, one.known_energy_j, one.device_time_s) for one in each]
        return np.column_stack([self.clocks_mhz, np.array(totals, dtype=float)]).T

    def result(self, values: FloatArray) -> OverClocks:
        """The totals with what intervals and notes need.

        Args:
            values: What `_composed` returns for this job, shape (5, clocks).
        """
        prepared, (shared, held, time_s, energy_j, device_s) = self.prepared, values
        return OverClocks(
            knowledge=prepared.knowledge,
            network=prepared.network,
            operations=self.predictions,
            power_limit_w=prepared.power_limit_w,
            clocks_mhz=self.clocks_mhz,
            shared_mhz=shared,
            held_clocks_mhz=held,
            time_s=time_s,
            energy_j=energy_j,
            device_time_s=device_s,
            host_time_s=self.host_s,
        )


class _OnGpus:
    """One network on several GPUs, composed for all of them at once; arrays have the shape (gpus, clocks)."""

    def __init__(self, jobs: Sequence[_Job]) -> None:
        works = [job.predictions.work for job in jobs]
        self.works = [work for work in works if work is not None]
        self.gpus = [work.gpu for work in self.works]
        self.counts = jobs[0].prepared.counts
        self.work = WorkOnGpus.of(self.works)
        facts = [(job.host_s, job.gaps_s, job.prepared.static, job.prepared.power_limit_w) for job in jobs]
        self.host_s, self.gaps_s, self.static, self.cap_w = np.array(facts).T[:, :, None]

    def within(self, clock_mhz: FloatArray) -> NDArray[np.bool_]:
        """Whether the network is within its power cap."""
        device_s, dynamic_j = self.work.sums_at(clock_mhz, self.counts)
        allowed_w = np.maximum(self.cap_w - self.static_w(clock_mhz), 1.0)
        return np.asarray(dynamic_j <= allowed_w * smooth_max(device_s, self.host_s))

    def static_w(self, clock_mhz: FloatArray) -> FloatArray:
        """Board power while the GPU waits."""
        static_w: FloatArray = self.static * static_power_on_gpus_w(self.gpus, clock_mhz)
        return static_w


def _composed(jobs: Sequence[_Job]) -> list[FloatArray]:
    """Totals of one network on several GPUs.

    Returns:
        For each job an array of shape (5, clocks): the clock that all operations share under the power cap, the mean
        clock over device time, seconds, joules, and device seconds; see `OperationPredictions.together`.
    """
    asked = np.empty((len(jobs), max(len(job.clocks_mhz) for job in jobs)))
    for row, job in zip(asked, jobs, strict=True):
        row[: len(job.clocks_mhz)], row[len(job.clocks_mhz) :] = job.clocks_mhz, job.clocks_mhz[-1]
    on_gpus = _OnGpus(jobs)
    shared = _shared_mhz(jobs, on_gpus, asked)
    busy_s, dynamic_j = on_gpus.work.sums_at(shared, on_gpus.counts)
    device_s = busy_s + on_gpus.gaps_s
    time_s, energy_j = overlap(device_s, on_gpus.host_s, dynamic_j, on_gpus.static_w(shared), on_gpus.cap_w)
    held = np.where(busy_s > 0, on_gpus.work.mean_mhz(shared, busy_s, on_gpus.counts), asked)
    values = np.array([shared, held, time_s, energy_j, device_s])
    return [values[:, place, : len(job.clocks_mhz)] for place, job in enumerate(jobs)]


def _shared_mhz(jobs: Sequence[_Job], on_gpus: _OnGpus, asked: FloatArray) -> FloatArray:
    """The clock that all operations of the network share; `Work.held_together_mhz` on each GPU."""
    unlimited = on_gpus.cap_w[:, 0] >= [work.cap_w for work in on_gpus.works]
    fits = unlimited | on_gpus.within(asked.max(axis=1)[:, None])[:, 0]
    if fits.all():
        return asked
    shared = asked.copy()
    limited = _OnGpus([*compress(jobs, ~fits)])
    shared[~fits] = np.minimum(asked[~fits], highest_mhz(limited.within, limited.gpus)[:, None])
    return shared
