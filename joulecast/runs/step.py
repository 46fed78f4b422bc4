"""What one step of training costs a GPU, by parts: forward, backward, optimizer, communication and waiting.

Layers are computed as often as the layout says, and what GPUs send each other goes on beside the backward as far as it
is long enough (Li et al., PyTorch Distributed, arXiv 2006.15704; Zhao et al., PyTorch FSDP, arXiv 2304.11277).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..extraction import Job
from ..hardware import GPU
from ..hardware.host import find_host
from ..operations.entry import Entry
from ..operations.network import Network
from ..operations.operation import Operation
from ..operations.rules import size
from ..predictors.board.profile import find_profile
from ..predictors.networks.composition import Execution
from ..predictors.networks.costs import OperationCost
from ..predictors.networks.memory import MemoryNeed, moments
from ..predictors.networks.prediction import Prediction
from ..predictors.physics.energy import static_power_w
from ..predictors.physics.variants import refuse_precisions
from ..zoo import find_predictor, predicts
from .computed import WORDS, results_of_blocks, step_over
from .layout import Layout
from .state import State, is_recomputed
from .traffic import Cost, Sending, Traffic, total

FORWARD = ("forward", "waiting for the host")
"""The parts of a step that evaluating has as well."""

_CLIPPING = "sgd_step"  # Reads as much as a norm of the gradients and their scaling, and writes as much.

_LAUNCHED_S = 3.8e-3
"""Seconds that the reference host launches the forward of a block (attention or feed-forward), in fp8 and without CUDA
graphs: Python calls two layers of Transformer Engine, which cast, scale and send pieces. NVIDIA's 8 and 128 DGX H100
evaluate a batch of Llama 2 70B, 160 blocks, in 0.366 s (MLPerf 4.0; h100-server launches in 0.6 of the time). The
backward keeps up with its GPU (github.com/NVIDIA/TransformerEngine/issues/761)."""


@dataclass(frozen=True)
class Step:
    """A step of one of the GPUs."""

    parts: dict[str, Cost]  # Name of a part -> its seconds and joules
    micro: Prediction  # A micro-batch through all layers, or one GPU's part of them under tensor parallelism
    memory: MemoryNeed  # Device memory that a GPU needs
    communication_s: float  # Seconds of everything that is sent, including what goes on beside the backward
    state_bytes: float  # Bytes of all weights and of the state of the optimizer, which a checkpoint stores

    @property
    def whole(self) -> Cost:
        """Seconds of the step, and joules of the GPU's board."""
        return total(self.parts.values())


def with_loss(network: Network) -> Network:
    """The network with the loss over its words, where it ends with a head over words but has no softmax over them.

    PyTorch's cross entropy casts the logits to fp32, takes their logarithmic softmax, and picks one from each row.
    """
    heads = [e.operation for e in network if e.operation.kind == "linear" and e.operation.output_shape[-1] >= WORDS]
    if network.mode != "training" or not heads:
        return network
    logits, softmax = heads[-1], "softmax"
    shape = logits.output_shape
    if any(entry.operation.kind == softmax and size(entry.operation.output_shape) == size(shape) for entry in network):
        return network
    loss = [Entry(Operation(softmax, [shape], precision="fp32", mode="training"), 1, ("(loss)",))]
    if logits.precision in ("bf16", "fp16"):
        cast = Operation("copy", [shape], precision="fp32", mode="training")
        loss.append(Entry(cast, 1, ("(loss)",)))
    return replace(network, entries=(*network.entries, *loss))


def step_of(
    job: Job,
    whole: Network,
    gpu: GPU,
    layout: Layout,
    clock: float | None = None,
    network_bandwidth: float | None = None,
    clipping: bool = False,
    launched: bool = False,
) -> Step:
    """Predict a step.

    `job`: How the GPU, its host and its predictor are asked for. `whole`: A micro-batch through all layers, in
    training, with the optimizer's step. `launched`: Whether a Python program launches the layers of Transformer Engine.
    Raises UnknownNameError: no such execution, host or predictor. Raises InputError: the GPU does not compute in the
    precision of an operation, or the model has no layers that GPUs can share so.
    """
    refuse_precisions(gpu, whole.operations)
    host, static_w = find_host(job.host), float(static_power_w(gpu, float(gpu.boost_clock_mhz)))
    executed = Execution.of(job.execution, host, find_profile(job.calibration))
    predictor = find_predictor(gpu, "training", job.predictor).under(executed)
    state = State.of(whole, layout)
    network = state.network
    steps = [entry for entry in network if entry.operation.row.is_optimizer_step]
    computed = replace(network, entries=tuple(entry for entry in network if entry not in steps))
    micro = predictor.predict(computed, clock, job.power_limit_w)
    of_micro, forward = Cost(micro.time_s, micro.known_energy_j), _forward_share(micro.operations)
    stages, turns = layout.pipeline_parallel, layout.accumulation / layout.pipeline_parallel
    parts = {"forward": of_micro.times(turns * forward), "backward": of_micro.times(turns * (1 - forward))}
    again_s = 0.0
    if repeated := _recomputed(computed, layout.recompute):
        named = job.predictor if predicts("inference", gpu, job.predictor) else None
        of_forwards = find_predictor(gpu, "inference", named).under(executed)
        again = of_forwards.predict(repeated, clock, job.power_limit_w)
        again_s = again.time_s
        parts["recomputing"] = Cost(again.time_s, again.known_energy_j).times(turns)
    waited_s = 0.0
    if launched:
        launching_s = _LAUNCHED_S * host.of(gpu).factor * len([*results_of_blocks(whole)])
        passes = [forward * micro.time_s, *([again_s] if layout.recompute == "full" else [])]
        waited_s = math.fsum(max(0.0, launching_s - computed_s) for computed_s in passes)
        parts["waiting for the host"] = Cost(waited_s, static_w * waited_s).times(turns)
    if steps:
        run = [replace(each, operation=step_over(each.operation, 1 / state.divisor("moments"))) for each in steps]
        if clipping:
            sizes = [step_over(each.operation, 1 / state.divisor("gradients"), _CLIPPING) for each in steps]
            run += [replace(each, operation=size) for each, size in zip(steps, sizes, strict=True)]
        # The device steps while the host launches the next forward already: what the step adds to a micro-batch counts.
        both = predictor.predict(replace(network, entries=(*computed.entries, *run)), clock, job.power_limit_w)
        parts["optimizer"] = total([Cost(both.time_s, both.known_energy_j), of_micro.times(-1)]).times(1 / stages)
    sending = Sending(Traffic(gpu, layout.gpus_per_node, network_bandwidth), state, micro)
    turn_s = (micro.time_s + again_s + waited_s) / stages
    exposed_s, sent = sending.exposed((1 - forward) * micro.time_s / stages, turn_s)
    # A stage waits for the first micro-batch to arrive and the last one to leave (Huang et al., GPipe).
    bubble_s = (stages - 1) * (turn_s + sending.layers.time_s) / layout.virtual_stages
    waiting = Cost(bubble_s, static_w * bubble_s)
    # A board at its cap draws no more where it sends beside computing.
    others, cap_w = total([*parts.values(), waiting]), float(gpu.checked_power_limit_w(job.power_limit_w))
    room_j = cap_w * (others.time_s + exposed_s) - others.energy_j
    parts["communication"] = Cost(exposed_s, min(static_w * exposed_s + sent.energy_j, room_j))
    parts["waiting for stages"] = waiting
    stored = (state.held.stored + moments(network) * state.held.learned) * stages * layout.tensor_parallel
    return Step(
        {name: cost for name, cost in parts.items() if cost.time_s > 0},
        micro,
        state.memory(compiled=job.execution == "compiled"),
        sent.time_s,
        stored,
    )


def _forward_share(costs: Iterable[OperationCost]) -> float:
    """The share of the forward in the device time of operations."""
    listed = [(cost.device_time_s or 0.0, cost.forward_fraction) for cost in costs]
    whole = math.fsum(seconds for seconds, _ in listed)
    return math.fsum(seconds * forward for seconds, forward in listed) / whole if whole else 0.0


def _recomputed(network: Network, recompute: str) -> Network | None:
    """The forward of what the backward computes again; None where that is nothing."""
    chosen = tuple(entry for entry in network if is_recomputed(entry, recompute) and entry.operation.has_backward)
    if not chosen:
        return None
    some = replace(network, entries=chosen, dropped=(), parameter_bytes=None)
    return some.changed(lambda entry: entry.operation.replace(mode="inference"), mode="inference")
