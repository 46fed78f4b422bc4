"""Predicting one job on one GPU over several clocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..arrays import FloatArray
from ..hardware import GPU
from ..operations.network import Network
from ..operations.operation_list import OperationList
from ..predictors.contract import SharedModel
from ..predictors.model.predictor import lists_asked_for
from ..predictors.networks.memory import MemoryNeed
from ..predictors.networks.network_predictor import NetworkPredictor
from ..predictors.networks.over_clocks import OverClocks
from ..predictors.networks.prepared import over_gpus
from ..predictors.physics.precisions import fp64_in_fp32
from .question import Variant


@dataclass(frozen=True)
class Curve:
    """The predictions of one job on one GPU, over ascending clocks.

    Args:
        gpu: The GPU that the job runs on.
        variant: The job in one precision and batch size.
        memory: Device memory that the job needs.
        over: The predictions, as arrays with one value per clock.
    """

    gpu: GPU
    variant: Variant
    memory: MemoryNeed
    over: OverClocks

    @property
    def name(self) -> str:
        """Short name of the GPU, with precision and batch size."""
        batch = "" if self.variant.batch_size is None else f", batch {self.variant.batch_size}"
        return f"{self.gpu.aliases[0]} ({self.variant.precision}{batch})"

    @property
    def clocks_mhz(self) -> FloatArray:
        """The graphics clocks that are set, shape (clocks,)."""
        return self.over.clocks_mhz

    @property
    def time_s(self) -> FloatArray:
        """Seconds per iteration, shape (clocks,)."""
        return self.over.time_s

    @property
    def energy_j(self) -> FloatArray:
        """Joules per iteration, shape (clocks,)."""
        return self.over.energy_j

    @property
    def power_w(self) -> FloatArray:
        """Mean board power over an iteration."""
        return self.energy_j / self.time_s


def prefetch(predictors: Iterable[NetworkPredictor], network: Network) -> None:
    """Predict a network on all GPUs of the predictors for any GPU in one batch, before it is needed on each."""
    asked: dict[tuple[int, int], tuple[SharedModel, OperationList, list[GPU]]] = {}
    for predictor in predictors:
        gpu = predictor.operations.gpu
        for shared in predictor.operations.shared_models:
            for operations in lists_asked_for(network.operations, gpu):
                listed = operations.derived(fp64_in_fp32)
                asked.setdefault((id(shared), id(listed)), (shared, listed, []))[2].append(gpu)
    for shared, listed, gpus in asked.values():
        shared.prefetch(listed, gpus)


class ClockJob(NamedTuple):
    """A job on the GPU of a predictor, at each of some clocks in MHz."""

    predictor: NetworkPredictor
    variant: Variant
    memory: MemoryNeed
    clocks_mhz: FloatArray


def curves(jobs: Sequence[ClockJob], power_limit_w: float | None) -> list[Curve]:
    """Predict jobs on their GPUs.

    Raises:
        InputError: A GPU cannot hold a clock or the cap.
    """
    prepared = [one.predictor.prepared(one.variant.network, power_limit_w) for one in jobs]
    predicted = over_gpus([(network, one.clocks_mhz) for network, one in zip(prepared, jobs, strict=True)])
    return [
        Curve(one.predictor.operations.gpu, one.variant, one.memory, over)
        for one, over in zip(jobs, predicted, strict=True)
    ]
