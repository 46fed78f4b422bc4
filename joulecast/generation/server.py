"""A language model on a GPU as an engine serves it, asked for one step after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..extraction import network_of
from ..hardware import GPU
from ..operations.network import Network
from ..predictors.networks.execution import EAGER, Execution
from ..predictors.networks.network_predictor import NetworkPredictor
from ..predictors.networks.prediction import Prediction
from ..predictors.networks.prepared import PreparedNetwork
from ..predictors.operation_predictions import OperationPredictions
from ..predictors.physics.clock import Work
from ..predictors.physics.energy import static_power_w
from ..predictors.physics.least_times import LeastTimes
from ..single_operations import refuse_precisions
from ..zoo import find_predictor
from ..zoo.catalogue import find_kernels
from .collectives import KINDS, collective_costs
from .decoder import Decoder
from .engines import Engine
from .intervals import step_sigmas
from .parallel import Parallel
from .same_die import energy_factors
from .steps import Precisions, StepTokens, step_network


@dataclass(frozen=True)
class Cost:
    """What steps take.

    Args:
        time_s: Seconds.
        energy_j: Joules.
    """

    time_s: float
    energy_j: float

    def times(self, count: float) -> Cost:
        """As much so many times."""
        return Cost(count * self.time_s, count * self.energy_j)

    def plus(self, other: Cost) -> Cost:
        """Both, one after the other."""
        return Cost(self.time_s + other.time_s, self.energy_j + other.energy_j)


NOTHING = Cost(0.0, 0.0)


class ServedStep(PreparedNetwork):
    """A step on a GPU: kernels as they were measured, in CUDA graphs, and not as networks in eager PyTorch run them."""

    @cached_property
    def at_default(self) -> OperationPredictions:
        """The operations as parts of this step, at the default clock."""
        predictor, operations = self.knowledge.operations, self.network.operations
        found = predictor.predict_for_network(operations, self.power_limit_w)
        if self.knowledge.host.execution == EAGER:
            return predictor.in_network(found, self.counts)
        found = found.times(1.0, energy_factors(operations, predictor.gpu, find_kernels()))
        return with_collectives(found, predictor.gpu)


def with_collectives(predictions: OperationPredictions, gpu: GPU) -> OperationPredictions:
    """Predictions of a step, with those of its collectives, which no predictor of kernels covers."""
    places = np.array([operation.kind in KINDS for operation in predictions.operations], dtype=bool)
    if not places.any() or predictions.work is None:
        return predictions
    seconds, joules = collective_costs(predictions.operations, gpu)
    still, clock = np.zeros(len(places)), float(gpu.boost_clock_mhz)
    # (what waits for a link does not wait longer at another clock)
    parts = LeastTimes(still, np.nan_to_num(seconds), still)
    work = Work(gpu, np.full(len(places), clock), parts, still, still, np.nan_to_num(joules))

    def known(theirs: FloatArray, mine: FloatArray | float) -> FloatArray:
        return np.where(places, mine, theirs)

    power_w = predictions.static_power_w + joules / seconds
    return replace(
        predictions,
        time_s=known(predictions.time_s, seconds),
        power_w=known(predictions.power_w, power_w),
        energy_j=known(predictions.energy_j, power_w * seconds),
        device_time_s=known(predictions.device_time_s, seconds),
        dynamic_energy_j=known(predictions.dynamic_energy_j, joules),
        host_time_s=known(predictions.host_time_s, 0.0),
        held_clock_mhz=known(predictions.held_clock_mhz, clock),
        source=tuple("modelled" if here else each for here, each in zip(places, predictions.source, strict=True)),
        work=predictions.work.with_others(work, places),
    )


@dataclass(frozen=True)
class Server:
    """A model on a GPU.

    Args:
        model: The model as it was given.
        decoder: Its parts, or those that are on one GPU.
        predictor: Predicts steps on the GPU.
        engine: What serves it.
        precisions: What it is served in.
        parallel: How it is divided over GPUs, all of which do the same at the same time.
        clock: Graphics clock in MHz; None for the GPU's default.
        power_limit_w: Power cap of a board; None for its default.
    """

    model: Any
    decoder: Decoder
    predictor: NetworkPredictor
    engine: Engine
    precisions: Precisions
    parallel: Parallel
    clock: float | None = None
    power_limit_w: float | None = None
    _known: dict[StepTokens, tuple[ServedStep, Prediction]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        model: Any,
        decoder: Decoder,
        gpu: GPU,
        engine: Engine,
        precisions: Precisions,
        parallel: Parallel,
        clock: float | None,
        power_limit_w: float | None,
        predictor: str | Path | None,
    ) -> Server:
        """A server with the predictor of its GPU.

        Raises:
            UnknownNameError, ZooError: There is no such predictor.
        """
        execution = Execution("graph") if engine.fused else EAGER
        found = find_predictor(gpu, "inference", predictor).under(execution)
        return cls(model, decoder, found, engine, precisions, parallel, clock, power_limit_w)

    @property
    def gpu(self) -> GPU:
        """The GPU that it runs on."""
        return self.predictor.operations.gpu

    def predict(self, tokens: StepTokens) -> Prediction:
        """One step, without what it waits for the engine; see `_step` for errors."""
        return self._step(tokens)[1]

    def sigmas(self, tokens: StepTokens) -> Mapping[str, float] | None:
        """How far a step may be off; see `step_sigmas`."""
        step, prediction = self._step(tokens)
        whole_s = prediction.time_s + self.engine.overhead_s(tokens.decoding + tokens.prompts)
        return step_sigmas(step.at_default, step.counts, max(0.0, 1 - prediction.device_time_s / whole_s))

    def _step(self, tokens: StepTokens) -> tuple[ServedStep, Prediction]:
        """One step, without what it waits for the engine.

        Raises:
            InputError: The GPU lacks a precision, or cannot hold the clock or the cap.
            UncoveredError: Too much of the step cannot be predicted.
        """
        if not tokens.prompts:
            # (a CUDA graph computes as many sequences as were there when it was recorded)
            padded = self.engine.padded(tokens.decoding)
            tokens = StepTokens(padded, tokens.cached, sampled=padded)
        if tokens not in self._known:
            network = self._network(tokens)
            refuse_precisions(self.gpu, network.operations)
            cap_w = self.gpu.checked_power_limit_w(self.power_limit_w)
            step = ServedStep(self.predictor, network, cap_w)
            self._known[tokens] = step, step.at(self.clock)
        return self._known[tokens]

    def cost(self, tokens: StepTokens) -> Cost:
        """One step with what it waits for the engine, in which the board draws what it draws without work."""
        prediction = self.predict(tokens)
        waiting_s = self.engine.overhead_s(tokens.decoding + tokens.prompts)
        idle_w = float(static_power_w(self.gpu, prediction.held_clock_mhz))
        return Cost(prediction.time_s + waiting_s, prediction.energy_j + idle_w * waiting_s)

    def _network(self, tokens: StepTokens) -> Network:
        if self.engine.fused:
            return step_network(self.decoder, tokens, self.engine, self.precisions, self.parallel)
        precision = self.precisions.weights
        if tokens.decoding:
            past = tokens.cached - 1
            return network_of(self.model, (tokens.decoding, 1), precision=precision, cache_length=past)
        return network_of(self.model, (tokens.prompts, tokens.prompt_tokens), precision=precision)
