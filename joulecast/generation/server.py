"""A language model on a GPU as an engine serves it: time and energy of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..extraction import network_of
from ..hardware import GPU
from ..operations.entry import Entry
from ..operations.network import Network
from ..operations.operation import Operation
from ..predictors.networks.prediction import Prediction
from ..predictors.networks.predictor import NetworkPredictor, at_clock
from ..predictors.networks.prepared import PreparedNetwork, over_clocks, over_gpus
from ..predictors.operation_predictions import OperationPredictions
from ..predictors.physics.energy import static_power_w
from ..predictors.physics.variants import refuse_precisions
from .collectives import with_collectives
from .deployment import Deployment
from .engines import sampling_factors
from .intervals import KERNEL_LEVEL, step_sigmas
from .run_energy import SIGMA, four_bit_factors, power_was_learned, served_j, with_joules
from .steps import StepTokens, step_network

KERNEL_GAP_S = 1e-6
"""Seconds for which the device waits after each kernel in an engine's CUDA graph, which is an assumption. Loops over
one kernel, by which engines were measured, do not contain them."""

Places = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ServedStep(PreparedNetwork):
    """A step of fused kernels in CUDA graphs, whose times are those of the kernels as they were measured."""

    known: OperationPredictions  # Predictions of the operations of several steps at the default clock
    places: Places  # Index of each operation of this step in these predictions

    @cached_property
    def at_default(self) -> OperationPredictions:
        """Predictions of the operations of this step at the default clock."""
        # Their errors stay with those of all steps (`Server.sigmas`).
        return replace(self.known, spread=None).take(self.places, self.network.operations)


def together(networks: Iterable[Network]) -> Network:
    """All operations of several steps, each once."""
    return Network(tuple(map(Entry, dict.fromkeys(each for network in networks for each in network.operations))))


@dataclass(frozen=True)
class Server:
    """One GPU of a deployment, which predicts its steps."""

    model: Any  # The model as the user gave it
    deployment: Deployment  # The deployment; all its busy GPUs do the same at the same time
    predictor: NetworkPredictor  # Predicts networks on the GPU
    power_limit_w: float | None = None  # Power cap of a board in watts; None for its default
    _known: dict[StepTokens, PreparedNetwork] = field(default_factory=dict, repr=False, compare=False)

    @property
    def gpu(self) -> GPU:
        """The GPU model."""
        return self.predictor.operations.gpu

    def prepare(self, steps: Iterable[StepTokens]) -> None:
        """Predict steps at the default clock, all of them together. Raises as `take` does."""
        asked = [tokens for tokens in dict.fromkeys(steps) if tokens not in self._known]
        if asked:
            self.take({tokens: self.network(tokens) for tokens in asked})

    def take(self, steps: Mapping[StepTokens, Network]) -> None:
        """Predict steps whose operations are known, which takes less time together than one after the other.

        Raises InputError: the GPU lacks a precision or cannot be capped so.
        """
        every = together(steps.values()).operations
        refuse_precisions(self.gpu, every)
        cap_w, engine = self.gpu.checked_power_limit_w(self.power_limit_w), self.deployment.engine
        if not engine.fused:
            self._known.update({tokens: self.predictor.prepared(network, cap_w) for tokens, network in steps.items()})
            return
        found = self.predictor.operations.predict_for_network(every, cap_w)
        narrow = self._narrow(steps.values())
        if narrow:
            lighter = four_bit_factors(found, narrow)
            found = found.times(lighter, lighter)
        if engine.samples_in_torch:
            longer = sampling_factors(found, self.gpu)
            found = found.times(longer, longer)
        found = with_collectives(found, self.gpu)
        joules = served_j(found.operations, found.device_time_s, self.gpu, narrow, triton=engine.triton_experts)
        found = with_joules(found, self.gpu, joules)
        place_of = {operation: place for place, operation in enumerate(every)}
        for tokens, network in steps.items():
            places = np.array([place_of[operation] for operation in network.operations])
            self._known[tokens] = ServedStep(self.predictor, network, cap_w, known=found, places=places)

    def _narrow(self, networks: Iterable[Network]) -> Mapping[Operation, float]:
        """Operation with weights of four bits -> bytes of one of them."""
        served, precisions = self.deployment, self.deployment.precisions
        narrow = {
            path: precisions.element_bytes(part)
            for part, at in served.decoder
            if precisions.has_four_bits(part)
            for path in at
        }
        return {
            entry.operation: narrow[entry.module_paths[0]]
            for network in networks
            for entry in (network if narrow else ())
            if entry.operation.kind in ("linear", "experts") and entry.module_paths[0] in narrow
        }

    def predict(self, tokens: StepTokens, clock: float | None) -> Prediction:
        """Predict one step, without the time in which the GPU waits for the engine.

        Raises InputError: the GPU cannot hold the clock, see `take`. Raises UncoveredError: too large a part of the
        step cannot be predicted.
        """
        return at_clock(self._step(tokens), clock).prediction()

    def sigmas(self, tokens: StepTokens, prediction: Prediction) -> Mapping[str, float] | None:
        """Standard deviations of a step's errors, see `step_sigmas`; None if no errors of kernels are known."""
        step = self._step(tokens)
        found, places = (step.known, step.places) if isinstance(step, ServedStep) else (step.at_default, slice(None))
        if found.spread is None:
            return None
        halves = {name: half[places] for name, half in found.spread.log_errors(found, KERNEL_LEVEL).items()}
        whole_s = prediction.time_s + float(self.waiting_s(tokens, prediction.time_s))
        seconds = np.array([cost.device_time_s or 0.0 for cost in prediction.operations])
        kinds = [cost.operation.kind for cost in prediction.operations]
        waiting_share = 1 - prediction.device_time_s / whole_s
        sigmas = step_sigmas(halves, seconds, kinds, waiting_share, self.deployment.engine.wait_sigma)
        return {**sigmas, "power": SIGMA, "energy": SIGMA} if power_was_learned(self.gpu) else sigmas

    def cost(self, tokens: StepTokens, clocks: Sequence[float]) -> FloatArray:
        """Seconds and joules of a step, shape (2, clocks). While the GPU waits for the engine, it draws static power.

        Raises as `predict` does.
        """
        step = self._step(tokens)
        totals = over_clocks(step, clocks)
        step.coverage.refuse_too_much(step.network.name)
        waiting_s = self.waiting_s(tokens, totals.time_s)
        idle_w = np.asarray(static_power_w(self.gpu, totals.held_clocks_mhz))
        return np.array([totals.time_s + waiting_s, totals.energy_j + idle_w * waiting_s])

    def kernels(
        self, steps: Mapping[StepTokens, Network], clocks: Sequence[float]
    ) -> tuple[FloatArray, FloatArray, float]:
        """Steps, or parts of steps, on one GPU without a power cap, which does not wait for the engine.

        `steps`: Tokens of each step -> its operations. `clocks`: Graphics clocks in MHz. Returns seconds in which
        kernels run and their dynamic joules, shape (steps, clocks) each, and the most seconds between kernels.
        """
        alone = replace(self, _known={})
        alone.take(steps)
        every, static_w = np.array(clocks, dtype=float), static_power_w(self.gpu, np.array(clocks, dtype=float))
        uncapped = [replace(alone._known[tokens], power_limit_w=np.inf) for tokens in steps]
        found = over_gpus([(step, every) for step in uncapped])
        gaps_s = np.array([step.knowledge.host.execution.gap_s * step.counts.sum() for step in uncapped])
        for step in uncapped:
            step.coverage.refuse_too_much(step.network.name)
        busy_s = np.array([each.device_time_s for each in found]) - gaps_s[:, None]
        dynamic_j = np.array([each.energy_j - static_w * each.time_s for each in found])
        return busy_s, dynamic_j, float(gaps_s.max(initial=0.0))

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

    def waiting_s(self, tokens: StepTokens, busy_s: FloatArray | float) -> FloatArray:
        """Seconds in which the GPU waits for the engine in a step whose kernels take `busy_s`."""
        served = self.deployment
        if tokens.images:
            return np.zeros_like(busy_s)
        launching_s = served.engine.scan_s * served.decoder.scans if tokens.prompts else 0.0
        return served.engine.overhead_s(tokens.decoding + tokens.prompts) + np.maximum(launching_s - busy_s, 0.0)

    def _step(self, tokens: StepTokens) -> PreparedNetwork:
        self.prepare([tokens])
        return self._known[tokens]


def figures_of(deployment: Deployment, server: Server, clocks: Sequence[float]) -> dict[str, FloatArray]:
    """Add up the steps of a deployment to what its requests take at some clocks, each of shape (clocks,).

    Power and tokens per second are those of all boards and requests together. Raises as `Server.cost` does.
    """
    cycle, load = deployment.cycle, deployment.load
    server.prepare(deployment.steps)
    costs = [server.cost(each.tokens, clocks) for each in cycle]

    def total(count: str) -> FloatArray:
        found: FloatArray = sum(getattr(each, count) * cost for each, cost in zip(cycle, costs, strict=True))
        return found

    time_s, energy_j = total("count")
    # GPUs without requests draw static power as long as the others work.
    idle_w = float(static_power_w(deployment.gpu, float(deployment.gpu.boost_clock_mhz)))
    idle = deployment.parallel.groups - deployment.busy
    boards_j = deployment.parallel.tensor * (deployment.busy * energy_j + idle * idle_w * time_s)
    tokens = deployment.total_load.batch * load.output_tokens
    energy_per_token_j, tokens_per_s = boards_j / tokens, tokens / time_s
    return {
        "time_to_first_token_s": total("first")[0],
        "time_per_output_token_s": total("further")[0],
        "latency_s": time_s,
        "tokens_per_s": tokens_per_s,
        "power_w": energy_per_token_j * tokens_per_s,
        "energy_per_token_j": energy_per_token_j,
    }
