"""What one step of training costs a GPU, by parts: forward, backward, optimizer, communication and waiting.

Layers are computed as often as the layout says, and what GPUs send each other goes on beside the backward as far as it
is long enough (Li et al., PyTorch Distributed, arXiv 2006.15704; Zhao et al., PyTorch FSDP, arXiv 2304.11277).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from ..extraction import Job
from ..generation.dividing import divided, results_of_blocks
from ..hardware import GPU
from ..hardware.host import find_host
from ..operations.attributes import ELEMENT_BYTES
from ..operations.entry import Entry
from ..operations.network import Network, ParameterBytes
from ..operations.operation import Operation
from ..operations.rules import size
from ..predictors.board.profile import find_profile
from ..predictors.networks.energy_rows import forward_fraction
from ..predictors.networks.execution import Execution
from ..predictors.networks.memory import MemoryNeed, memory_need, moments, parameters_held, saved_bytes
from ..predictors.networks.network_predictor import NetworkPredictor
from ..predictors.networks.operation_cost import OperationCost
from ..predictors.networks.prediction import Prediction
from ..predictors.physics.energy import static_power_w
from ..predictors.physics.precisions import refuse_precisions
from ..zoo import find_predictor
from .layout import Layout
from .traffic import Sent, Traffic

_IN_A_LAYER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")
_BUCKET_BYTES = 25 * 2**20  # Default size of a bucket of gradients in DistributedDataParallel.
_ATTENTION = ("attention", "matmul", "softmax")  # What selective recomputing repeats.
# From so many outputs on, a last layer is a head over words, whose loss is worth counting.
_WORDS = 8192


class Cost(NamedTuple):
    """Seconds and joules of a GPU in a step."""

    time_s: float
    energy_j: float


@dataclass(frozen=True)
class Step:
    """A step of one of the GPUs.

    Args:
        parts: Name of a part -> its seconds and joules.
        micro: A micro-batch through all layers, or one GPU's part of them under tensor parallelism.
        memory: Device memory that a GPU needs.
        communication_s: Seconds of everything that is sent, including what goes on beside the backward.
        state_bytes: Bytes of all weights and of the state of the optimizer, which a checkpoint stores.
    """

    parts: dict[str, Cost]
    micro: Prediction
    memory: MemoryNeed
    communication_s: float
    state_bytes: float

    @property
    def time_s(self) -> float:
        """Seconds of the step."""
        return math.fsum(part.time_s for part in self.parts.values())

    @property
    def energy_j(self) -> float:
        """Joules of the GPU's board."""
        return math.fsum(part.energy_j for part in self.parts.values())


def with_loss(network: Network) -> Network:
    """The network with the loss over its words, where it ends with a head over words but has no softmax over them.

    PyTorch's cross entropy casts the logits to fp32, takes their logarithmic softmax, and picks one from each row.
    """
    heads = [e.operation for e in network if e.operation.kind == "linear" and e.operation.output_shape[-1] >= _WORDS]
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


def predictors_of(job: Job, gpu: GPU, network: Network) -> tuple[NetworkPredictor, NetworkPredictor]:
    """The GPU's predictors for training and for inference, which predicts what is computed again.

    Raises:
        UnknownNameError: No such execution, host or predictor.
        InputError: The GPU does not compute in the precision of an operation.
    """
    refuse_precisions(gpu, network.operations)
    executed = Execution.of(job.execution, find_host(job.host), find_profile(job.calibration))
    return (
        find_predictor(gpu, "training", job.predictor).under(executed),
        find_predictor(gpu, "inference").under(executed),
    )


def step_of(
    whole: Network,
    gpu: GPU,
    layout: Layout,
    traffic: Traffic,
    predictor: NetworkPredictor,
    of_forward: NetworkPredictor,
    clock: float | None,
    power_limit_w: float | None,
) -> Step:
    """Predict a step.

    Args:
        whole: A micro-batch through all layers, in training, with the optimizer's step.
        gpu: The GPU model.
        layout: How the step is divided.
        traffic: What collectives cost.
        predictor: The GPU's predictor for training.
        of_forward: Its predictor for inference; see `predictors_of`.
        clock: Graphics clock in MHz; None for the GPU's default.
        power_limit_w: Power cap of a board in watts; None for its default.

    Raises:
        InputError: The model has no layers that GPUs can share so.
    """
    network = divided(whole, layout.tensor_parallel)
    steps = [entry for entry in network if entry.operation.row.is_optimizer_step]
    computed = replace(network, entries=tuple(entry for entry in network if entry not in steps))
    micro = predictor.predict(computed, clock, power_limit_w)
    stages, times = layout.pipeline_parallel, layout.accumulation
    forward = _forward_share(micro.operations)
    repeated = _recomputed(computed, layout.recompute)
    again = of_forward.predict(repeated, clock, power_limit_w) if repeated else None

    def work(prediction: Prediction, share: float) -> Cost:
        return Cost(times * share * prediction.time_s / stages, times * share * prediction.known_energy_j / stages)

    parts = {"forward": work(micro, forward), "backward": work(micro, 1 - forward)}
    if again is not None:
        parts["recomputing"] = work(again, 1.0)
    held = _held(network, stages)
    if steps:
        divisor = stages * layout.shares("moments")
        run = [replace(each, operation=_of_part(each.operation, divisor)) for each in steps]
        optimizer = predictor.predict(replace(network, entries=tuple(run), dropped=()), clock, power_limit_w)
        parts["optimizer"] = Cost(optimizer.time_s, optimizer.known_energy_j)
    sent = _Sending(layout, traffic, held, [*results_of_blocks(whole)], micro.operations[0].operation.precision)
    turn_s = (micro.time_s + (again.time_s if again else 0.0)) / stages
    exposed, all_s, dynamic_j = sent.exposed((1 - forward) * micro.time_s / stages, turn_s)
    # A stage waits for the first micro-batch to arrive and the last one to leave (Huang et al., GPipe).
    bubble_s = (stages - 1) * (turn_s + sent.layers.time_s) / layout.virtual_stages
    static_w = float(static_power_w(gpu, float(gpu.boost_clock_mhz)))
    parts["communication"] = Cost(exposed, static_w * exposed + dynamic_j)
    parts["waiting for stages"] = Cost(bubble_s, static_w * bubble_s)
    kept = {name: cost for name, cost in parts.items() if cost.time_s > 0}
    state = (held.stored + moments(network) * held.learned) * stages * layout.tensor_parallel
    return Step(kept, micro, memory_of(whole, layout), all_s, state)


@dataclass(frozen=True)
class _Sending:
    """What a GPU sends in a step.

    Args:
        layout: How the step is divided.
        traffic: What collectives cost.
        held: Bytes of the parameters of a GPU's replica.
        blocks: Shape of the result of each block, in a micro-batch.
        precision: Precision of the results.
    """

    layout: Layout
    traffic: Traffic
    held: ParameterBytes
    blocks: Sequence[tuple[int, ...]]
    precision: str

    @property
    def element_bytes(self) -> float:
        """Bytes of an element of a result."""
        return ELEMENT_BYTES[self.precision if self.precision in ("bf16", "fp16") else "fp32"]

    @cached_property
    def layers(self) -> Sent:
        """Sums of the results of blocks, over the GPUs that share layers, of a micro-batch and one of the stages.

        They are summed in the forward, in the backward, and where the forward is computed again.
        """
        passes = 3 if self.layout.recompute == "full" else 2
        sums = [
            self.traffic.all_reduce(size(shape) * self.element_bytes, self.layout.tensor_parallel)
            for shape in self.blocks
        ]
        stages = self.layout.pipeline_parallel
        return Sent(
            passes * math.fsum(each.time_s for each in sums) / stages,
            passes * math.fsum(each.energy_j for each in sums) / stages,
        )

    def exposed(self, backward_s: float, turn_s: float) -> tuple[float, float, float]:
        """Seconds that a GPU waits for what is sent, seconds of all that is sent, and joules above static power.

        Args:
            backward_s: Seconds of the backward of a micro-batch in a stage.
            turn_s: Seconds of all computation of a micro-batch in a stage.
        """
        layout, layers = self.layout, self.layers
        stages, times, stride = layout.pipeline_parallel, layout.accumulation, layout.tensor_parallel
        # Micro-batches in flight pass to the next stage forward and back.
        result = size(self.blocks[0]) * self.element_bytes if self.blocks else 0.0
        crossings = 2 * (times * layout.virtual_stages + stages - 2) if stages > 1 else 0
        messages_s = crossings * self.traffic.message(result, stride).time_s
        waited_s, all_s, joules = times * layers.time_s + messages_s, times * layers.time_s + messages_s, 0.0
        joules += times * layers.energy_j
        if layout.replicas > 1:
            each, whole = self.held.learned, self.held.casts or self.held.stored
            if layout.sharding == "zero3":
                gather = self.traffic.gathered(whole, layout.replicas, stride)
                scatter = self.traffic.gathered(min(each, whole), layout.replicas, stride)
                once_s, once_j = 2 * gather.time_s + scatter.time_s, 2 * gather.energy_j + scatter.energy_j
                # Nothing computes while the first of the layers is collected.
                first_s = gather.time_s / max(1, len(self.blocks) // 2)
                waited_s += times * max(first_s, once_s - turn_s)
                all_s, joules = all_s + times * once_s, joules + times * once_j
            else:
                summed = self.traffic.all_reduce(each, layout.replicas, stride)
                buckets = max(1.0, each / _BUCKET_BYTES)
                waited_s += max(summed.time_s / buckets, summed.time_s - backward_s * (1 - 1 / buckets))
                all_s, joules = all_s + summed.time_s, joules + summed.energy_j
        return waited_s, all_s, joules


def _forward_share(costs: Iterable[OperationCost]) -> float:
    """The share of the forward in the device time of operations."""
    listed = [
        (cost.device_time_s or 0.0, forward_fraction(cost.operation, cost.bound_by == "memory")) for cost in costs
    ]
    whole = math.fsum(seconds for seconds, _ in listed)
    return math.fsum(seconds * forward for seconds, forward in listed) / whole if whole else 0.0


def _recomputed(network: Network, recompute: str) -> Network | None:
    """The forward of what the backward computes again; None where that is nothing."""

    def again(entry: Entry) -> bool:
        inside = any(map(_IN_A_LAYER.search, entry.module_paths))
        return inside and (recompute == "full" or entry.operation.kind in _ATTENTION) and entry.operation.has_backward

    chosen = [entry for entry in network if recompute != "none" and again(entry)]
    forward: dict[Operation, Entry] = {}
    for entry in chosen:
        changed = replace(entry, operation=entry.operation.replace(mode="inference"))
        known = forward.get(changed.operation)
        forward[changed.operation] = changed if known is None else known.plus(changed)
    listed = [(entry.operation, entry.count) for entry in forward.values()]
    return Network.of(listed) if listed else None


def _of_part(operation: Operation, divisor: int) -> Operation:
    """The optimizer's step over a part of the parameters."""
    (parameters,) = operation.input_shapes[0]
    part = max(1, round(parameters / divisor))
    return Operation(operation.kind, [(part,)], precision=operation.precision, mode="training")


def _held(network: Network, stages: int) -> ParameterBytes:
    return ParameterBytes(*(round(each / stages) for each in parameters_held(network)))


def memory_of(whole: Network, layout: Layout) -> MemoryNeed:
    """The memory of a GPU: parameters, gradients and moments as far as they are not divided, and what a forward saves.

    The first stage of a pipeline starts as many micro-batches as there are stages before it continues with a backward
    (1F1B). DistributedDataParallel holds gradients a second time, in the buckets that they are sent in.

    Args:
        whole: A micro-batch through all layers, in training, with the optimizer's step.
        layout: How a step is divided.

    Raises:
        InputError: The model has no layers that GPUs can share so.
    """
    network = divided(whole, layout.tensor_parallel)
    held = _held(network, layout.pipeline_parallel)
    buckets = layout.replicas > 1 and layout.sharding != "zero3"
    weights = (
        held.stored / layout.shares("parameters")
        + (1 + buckets) * held.learned / layout.shares("gradients")
        + moments(network) * held.learned / layout.shares("moments")
    )
    need = memory_need(network)
    saved = saved_bytes(network) - _unsaved_logits(network)
    largest = (
        need.activations_bytes
        - saved_bytes(network)
        - (network.parameter_bytes.casts if network.parameter_bytes else 0)
    )
    if layout.recompute == "full":
        numbers = {found[1] for entry in network for path in entry.module_paths if (found := _IN_A_LAYER.search(path))}
        layers, blocks = max(1, len(numbers)), [*results_of_blocks(network)]
        inputs = sum(map(size, blocks[::2])) * 2 if blocks else 0
        inner = sum(
            saved_bytes(replace(network, entries=(entry,), dropped=()))
            for entry in network
            if any(map(_IN_A_LAYER.search, entry.module_paths))
        )
        saved = max(0, saved - inner) + inner // layers + inputs
    started = min(layout.pipeline_parallel, layout.accumulation)
    casts = held.casts // layout.shares("parameters")
    return MemoryNeed(round(weights), round(saved * started / layout.pipeline_parallel + largest + casts))


def _unsaved_logits(network: Network) -> int:
    """Bytes of logits that no backward needs, which `saved_bytes` counts.

    The loss keeps the logarithmic softmax alone, of all that is as large: not the logits, nor their cast to fp32; and
    its gradient takes the place of its input.
    """
    loss = [entry.operation.output_shape for entry in network if entry.operation.kind == "softmax"]
    words = max((size(shape) for shape in loss if shape[-1] >= _WORDS), default=0)
    alike = [entry.operation for entry in network if size(entry.operation.output_shape) == words > 0]
    return round(sum(words * ELEMENT_BYTES[operation.precision] for operation in alike))
