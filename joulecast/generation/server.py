"""A language model on a GPU as an engine serves it: time and energy of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..extraction import network_of
from ..hardware import GPU
from ..hardware.host import USUAL, Host
from ..operations.network import Network
from ..predictors.board.profile import BoardProfile
from ..predictors.networks.composition import Execution
from ..predictors.networks.prediction import Prediction
from ..predictors.networks.prepared import NetworkPredictor, PreparedNetwork, over_clocks, over_gpus
from ..predictors.physics.energy import static_power_w
from ..predictors.physics.precisions import refuse_precisions
from ..zoo import find_predictor
from .deployment import Deployment
from .intervals import KERNEL_LEVEL, step_sigmas
from .run_energy import SIGMA, power_was_learned
from .served import StepNetworks, half_widths
from .serving import Steps
from .steps import StepTokens, step_network

KERNEL_GAP_S = 1e-6
"""Seconds for which the device waits after each kernel in an engine's CUDA graph, which is an assumption. Loops over
one kernel, by which engines were measured, do not contain them."""


@dataclass(frozen=True)
class Cost:
    """Time and energy of steps at several clocks."""

    time_s: FloatArray  # Seconds, shape (clocks,)
    energy_j: FloatArray  # Joules, shape (clocks,)

    def times(self, count: float) -> Cost:
        """The cost of `count` such steps."""
        return Cost(count * self.time_s, count * self.energy_j)

    def plus(self, other: Cost) -> Cost:
        """The cost of both, one after the other."""
        return Cost(self.time_s + other.time_s, self.energy_j + other.energy_j)


@dataclass(frozen=True)
class Server:
    """One GPU of a deployment, which predicts its steps."""

    model: Any  # The model as the user gave it
    deployment: Deployment  # The deployment; all its busy GPUs do the same at the same time
    predictor: NetworkPredictor  # Predicts networks on the GPU
    power_limit_w: float | None = None  # Power cap of a board in watts; None for its default
    _known: dict[StepTokens, PreparedNetwork] = field(default_factory=dict, repr=False, compare=False)
    _costs: dict[tuple[StepTokens, tuple[float, ...]], Cost] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        model: Any,
        deployment: Deployment,
        power_limit_w: float | None,
        predictor: str | Path | None,
        host: Host = USUAL,
        profile: BoardProfile | None = None,
    ) -> Server:
        """One of the GPUs of a deployment, with its predictor.

        `predictor`: Name or folder of a predictor; None for the GPU's default.
        `profile`: What was measured on the board; None for any board.

        Raises:
            UnknownNameError, ZooError: No predictor has this name, or it cannot be loaded.
        """
        engine = deployment.engine
        execution = (
            Execution("graph", host, profile, KERNEL_GAP_S) if engine.fused else Execution("eager", host, profile)
        )
        found = find_predictor(deployment.gpu, "inference", predictor).under(execution)
        return cls(model, deployment, found, power_limit_w)

    @property
    def gpu(self) -> GPU:
        """The GPU model."""
        return self.predictor.operations.gpu

    def prepare(self, steps: Iterable[StepTokens]) -> None:
        """Predict steps at the default clock, all of them together.

        Raises:
            InputError: The GPU lacks a precision or cannot be capped so.
        """
        asked = [tokens for tokens in dict.fromkeys(map(self.padded, steps)) if tokens not in self._known]
        if asked:
            self.take(self.networks(asked))

    def networks(self, steps: Iterable[StepTokens]) -> StepNetworks:
        """The operations of steps, with the form of their weights."""
        return self._listed({tokens: self.network(tokens) for tokens in steps})

    def _listed(self, networks: Mapping[StepTokens, Network]) -> StepNetworks:
        served, precisions = self.deployment, self.deployment.precisions
        narrow = {
            path: precisions.element_bytes(p) for p, at in served.decoder if precisions.has_four_bits(p) for path in at
        }
        operations = {
            entry.operation: narrow[entry.module_paths[0]]
            for network in networks.values()
            for entry in network
            if entry.operation.kind in ("linear", "experts") and entry.module_paths[0] in narrow
        }
        return StepNetworks(networks, operations, served.engine.samples_in_torch, served.engine.triton_experts)

    def take(self, steps: StepNetworks) -> None:
        """Predict steps whose operations are known, all of them together.

        Raises:
            InputError: The GPU lacks a precision or cannot be capped so.
        """
        refuse_precisions(self.gpu, steps.together.operations)
        cap_w = self.gpu.checked_power_limit_w(self.power_limit_w)
        self._known.update(steps.on(self.predictor, cap_w))

    def predict(self, tokens: StepTokens, clock: float | None) -> Prediction:
        """Predict one step, without the time in which the GPU waits for the engine.

        Raises:
            InputError: The GPU lacks a precision, or cannot hold the clock or the power cap.
            UncoveredError: Too large a part of the step cannot be predicted.
        """
        return self._step(tokens).at(clock, composition="overlap")

    def sigmas(self, tokens: StepTokens, prediction: Prediction) -> Mapping[str, float] | None:
        """Standard deviations of a step's errors, see `step_sigmas`; None if no errors of kernels are known."""
        halves = half_widths(self._step(tokens), KERNEL_LEVEL)
        if halves is None:
            return None
        whole_s = prediction.time_s + float(self._waiting_s(tokens, prediction.time_s))
        seconds = np.array([cost.device_time_s or 0.0 for cost in prediction.operations])
        kinds = [cost.operation.kind for cost in prediction.operations]
        waiting_share = 1 - prediction.device_time_s / whole_s
        found = step_sigmas(halves, seconds, kinds, waiting_share, self.deployment.engine.wait_sigma)
        return {**found, "power": SIGMA, "energy": SIGMA} if power_was_learned(self.gpu) else found

    def cost(self, steps: Sequence[Steps], clocks: Sequence[float]) -> Cost:
        """Time and energy of steps. While the GPU waits for the engine, it draws its static power.

        Raises:
            InputError: The GPU lacks a precision, or cannot hold a clock or the power cap.
            UncoveredError: Too large a part of a step cannot be predicted.
        """
        nothing = Cost(np.zeros(len(clocks)), np.zeros(len(clocks)))
        return reduce(Cost.plus, (self._cost(each.tokens, clocks).times(each.count) for each in steps), nothing)

    def kernels(
        self, steps: Mapping[StepTokens, Network], clocks: Sequence[float]
    ) -> tuple[FloatArray, FloatArray, float]:
        """Steps, or parts of steps, on one GPU without a power cap, which does not wait for the engine.

        `steps`: Tokens of each step -> its operations.
        `clocks`: Graphics clocks in MHz.

        Returns:
            Seconds in which kernels run and their dynamic joules, shape (steps, clocks) each, and the most seconds of a
            step between kernels.
        """
        alone = replace(self, _known={}, _costs={})
        alone.take(self._listed(steps))
        every, static_w = np.array(clocks, dtype=float), static_power_w(self.gpu, np.array(clocks, dtype=float))
        uncapped = [replace(alone._known[tokens], power_limit_w=np.inf) for tokens in steps]
        found = over_gpus([(step, every) for step in uncapped], composition="overlap")
        gaps_s = np.array([step.knowledge.host.execution.gap_s * step.counts.sum() for step in uncapped])
        for each in found:
            if each.missing:
                each.coverage.refuse_too_much(each.network.name)
        busy_s = np.array([each.device_time_s for each in found]) - gaps_s[:, None]
        dynamic_j = np.array([each.energy_j - static_w * each.time_s for each in found])
        return busy_s, dynamic_j, float(gaps_s.max(initial=0.0))

    def waiting_s(self, steps: Sequence[Steps], clock: float) -> float:
        """Seconds in which the GPU waits for the engine during these steps."""
        return sum(
            each.count * float(self._waiting_s(each.tokens, self.predict(each.tokens, clock).time_s)) for each in steps
        )

    def network(self, tokens: StepTokens) -> Network:
        """The operations of a step on one GPU."""
        served = self.deployment
        if tokens.images and served.images is not None:
            return served.images.network(served.engine, served.parallel)
        if served.engine.fused:
            return step_network(served.decoder, tokens, served.engine, served.precisions, served.parallel)
        precision = served.precisions.weights
        if tokens.decoding:
            past = tokens.cached - 1
            return network_of(self.model, (tokens.decoding, 1), precision=precision, cache_length=past)
        return network_of(self.model, (tokens.prompts, tokens.prompt_tokens), precision=precision)

    def _cost(self, tokens: StepTokens, clocks: Sequence[float]) -> Cost:
        key = tokens, tuple(clocks)
        if key not in self._costs:
            step = self._step(tokens)
            totals = over_clocks(step, clocks)
            if totals.missing:
                totals.coverage.refuse_too_much(step.network.name)
            waiting_s = self._waiting_s(tokens, totals.time_s)
            idle_w = np.asarray(static_power_w(self.gpu, totals.held_clocks_mhz))
            self._costs[key] = Cost(totals.time_s + waiting_s, totals.energy_j + idle_w * waiting_s)
        return self._costs[key]

    def _waiting_s(self, tokens: StepTokens, busy_s: FloatArray | float) -> FloatArray:
        """Seconds in which the GPU waits for the engine in a step whose kernels take `busy_s`."""
        served = self.deployment
        if tokens.images:
            return np.zeros_like(busy_s)
        launching_s = served.engine.scan_s * served.decoder.scans if tokens.prompts else 0.0
        return served.engine.overhead_s(tokens.decoding + tokens.prompts) + np.maximum(launching_s - busy_s, 0.0)

    def _step(self, tokens: StepTokens) -> PreparedNetwork:
        self.prepare([tokens])
        return self._known[self.padded(tokens)]

    def padded(self, tokens: StepTokens) -> StepTokens:
        """The step as it is computed: a CUDA graph computes the number of sequences that it was recorded with."""
        if tokens.prompts or tokens.images:
            return tokens
        padded = self.deployment.engine.padded(tokens.decoding)
        return StepTokens(padded, tokens.cached, sampled=padded)


@dataclass(frozen=True)
class Figures:
    """Time and energy of a deployment at several clocks; arrays of shape (clocks,)."""

    time_to_first_token_s: FloatArray  # Seconds from the start of a request to its first token
    time_per_output_token_s: FloatArray  # Mean seconds from one token of a request to the next
    latency_s: FloatArray  # Seconds from the start of a request to its last token
    tokens_per_s: FloatArray  # Output tokens per second, of all requests together
    energy_per_token_j: FloatArray  # Joules of all boards per output token

    @property
    def power_w(self) -> FloatArray:
        """Mean power of all boards together in watts."""
        return self.energy_per_token_j * self.tokens_per_s


def figures_of(deployment: Deployment, server: Server, clocks: Sequence[float]) -> Figures:
    """Add up the steps of a deployment to the figures of its requests.

    Raises:
        InputError: The GPU lacks a precision, or cannot hold a clock or the cap.
    """
    cycle, load = deployment.cycle, deployment.load
    server.prepare(deployment.steps)
    total = server.cost(cycle.steps, clocks)
    # GPUs without requests draw static power as long as the others work.
    idle_w = float(static_power_w(deployment.gpu, float(deployment.gpu.boost_clock_mhz)))
    idle = deployment.parallel.groups - deployment.busy
    boards_j = deployment.parallel.tensor * (deployment.busy * total.energy_j + idle * idle_w * total.time_s)
    tokens = deployment.total_load.batch * load.output_tokens
    return Figures(
        time_to_first_token_s=server.cost(cycle.first_token, clocks).time_s,
        time_per_output_token_s=server.cost(cycle.next_tokens, clocks).time_s,
        latency_s=total.time_s,
        tokens_per_s=tokens / total.time_s,
        energy_per_token_j=boards_j / tokens,
    )
