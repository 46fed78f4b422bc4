"""What a GPU holds in training: parameters, gradients, moments, and what a forward saves for its backward."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from ..operations.attributes import ELEMENT_BYTES, HALF_PRECISIONS
from ..operations.entry import Entry
from ..operations.fusion import role_of
from ..operations.network import Network, ParameterBytes
from ..operations.rules import size
from ..predictors.networks.memory import MemoryNeed, memory_need, moments, parameters_held, saved_bytes
from ..predictors.networks.prediction import Prediction
from .computed import WORDS, computed_part, divided, expert_share, layers_of, results_of_blocks
from .layout import IN_A_LAYER, Layout
from .traffic import Cost, Traffic, total

_ATTENTION = ("attention", "matmul", "softmax")  # What selective recomputing repeats.


@dataclass(frozen=True)
class State:
    """One GPU's part of a model in training: what it computes, and what its stage holds before replicas divide it."""

    layout: Layout  # How a step is divided
    whole: Network  # A micro-batch through all layers, in training, with the optimizer's step
    network: Network  # The GPU's part of it
    held: ParameterBytes  # Bytes of the parameters of a stage
    experts: float  # The share of experts in them

    @classmethod
    def of(cls, whole: Network, layout: Layout) -> State:
        """The part of a GPU. Raises InputError: the model has no layers that GPUs can share so."""
        part = divided(whole, layout.tensor_parallel)
        held = ParameterBytes(*(round(each / layout.pipeline_parallel) for each in parameters_held(part)))
        return cls(layout, whole, computed_part(whole, layout), held, expert_share(part))

    def divisor(self, what: str) -> float:
        """By how much moments, gradients or parameters are divided among GPUs, experts as others among as many."""
        shares, over = self.layout.shares(what), self.layout.expert_gpus
        # Replicas of an expert are on fewer GPUs than those of a layer, and divide it among all of a stage.
        of_experts = max(over, shares * self.layout.tensor_parallel) if shares > 1 else over
        return 1 / ((1 - self.experts) / shares + self.experts / of_experts)

    @property
    def on_each(self) -> float:
        """Share of the state that a GPU holds where replicas divide nothing."""
        return 1 - self.experts + self.experts / self.layout.expert_gpus

    def memory(self, *, compiled: bool = False) -> MemoryNeed:
        """The memory of a GPU: parameters, gradients and moments that are not divided, and what a forward saves.

        The first stage of a pipeline starts as many micro-batches as there are stages before it continues with a
        backward (1F1B). DistributedDataParallel holds gradients a second time, in the buckets that they are sent in.

        `compiled`: Whether point-wise operations and norms are fused, whose results the backward computes again.
        """
        layout, network, held = self.layout, self.network, self.held
        buckets = layout.sharers > 1 and layout.sharding != "zero3"
        weights = (
            held.stored / self.divisor("parameters")
            + (1 + buckets) * held.learned / self.divisor("gradients")
            + moments(network) * held.learned / self.divisor("moments")
        )
        kept = _not_fused(network) if compiled else network
        saved = float(saved_bytes(kept) - _unsaved_logits(kept))
        casts = network.parameter_bytes.casts if network.parameter_bytes else 0
        largest = memory_need(network).activations_bytes - saved_bytes(network) - casts
        outside = tuple(entry for entry in kept if not is_recomputed(entry, layout.recompute))
        if layout.recompute != "none" and outside:
            layers, blocks = max(1, layers_of(network)), [*results_of_blocks(network)]
            # A layer is computed again from its input, attention from queries, keys and values, which others save.
            inputs = 2 * sum(map(size, blocks[::2])) / layout.tensor_parallel if layout.recompute == "full" else 0
            inner = saved_bytes(kept) - saved_bytes(replace(kept, entries=outside))
            saved = max(0, saved - inner) + inner / layers + inputs
        started = min(layout.pipeline_parallel, layout.accumulation)
        divided_casts = held.casts / self.divisor("parameters")
        activations = saved * started / layout.pipeline_parallel + largest + divided_casts
        return MemoryNeed(round(weights), round(activations))


def _not_fused(network: Network) -> Network:
    """The network without the point-wise operations and norms that torch.compile fuses into kernels of their own.

    Its partitioner saves what products and attention read and compute, not what lies between them
    (torch/_functorch/partitioners.py, min_cut_rematerialization_partition).
    """
    entries = tuple(
        e for e in network if role_of(e.operation) == "call" or e.operation.kind in ("softmax", "embedding")
    )
    return replace(network, entries=entries) if entries else network


def is_recomputed(entry: Entry, recompute: str) -> bool:
    """Whether the backward computes an operation again, in one of `RECOMPUTES`: of a layer, all or attention alone."""
    inside = any(map(IN_A_LAYER.search, entry.module_paths))
    return inside and (recompute == "full" or (recompute == "selective" and entry.operation.kind in _ATTENTION))


def _unsaved_logits(network: Network) -> int:
    """Bytes of logits that no backward needs, which `saved_bytes` counts.

    The loss keeps the logarithmic softmax alone, of all that is as large: not the logits, nor their cast to fp32; and
    its gradient takes the place of its input.
    """
    loss = [entry.operation.output_shape for entry in network if entry.operation.kind == "softmax"]
    words = max((size(shape) for shape in loss if shape[-1] >= WORDS), default=0)
    alike = [entry.operation for entry in network if size(entry.operation.output_shape) == words > 0]
    return round(sum(words * ELEMENT_BYTES[operation.precision] for operation in alike))


_COUNTING_S = 1.1e-3
"""Seconds that a GPU waits in each layer of experts and pass, while the host learns how many tokens each expert got
and launches what follows. Three ways to run Qwen3 30B-A3B lack 2.2, 2.1 and 2.3 ms for each layer, forward and
backward. With that, two ways to run Qwen3 235B-A22B, which were left out, are 2 and 9 % too slow, without it 17 and
8 % too quick (best releases of Megatron Bridge on H100, benchmarks/training/MEGATRON.md)."""

_BUCKET_BYTES = 25 * 2**20  # Default size of a bucket of gradients in DistributedDataParallel.


class Sending:
    """What a GPU sends in a step."""

    def __init__(self, traffic: Traffic, state: State, micro: Prediction) -> None:
        """Find what is sent in a step, of which a micro-batch was predicted."""
        self.traffic, self.state, whole, layout = traffic, state, state.whole, state.layout
        precision = micro.operations[0].operation.precision
        self._element_bytes = ELEMENT_BYTES[precision if precision in HALF_PRECISIONS else "fp32"]
        self._blocks = [*results_of_blocks(whole)]  # The shape of the result of each block, in a micro-batch
        # The first of the layers of experts reads what was sent to them, the last one is sent back.
        grouped = [e for e in whole if e.operation.kind == "grouped_linear"][:1]
        self._routed = sum(e.count * size(e.operation.input_shapes[0]) for e in grouped) / layout.tensor_parallel
        attention = [e for e in whole if e.operation.kind == "attention"]
        cached = math.fsum(e.count * sum(map(size, e.operation.input_shapes[1:3])) for e in attention)
        self._cached = cached / layout.tensor_parallel  # Keys and values of a GPU's part of the sequences
        costs = (c for c in micro.operations if c.operation.kind == "attention")
        self._attended_s = math.fsum(cost.device_time_s or 0.0 for cost in costs)
        # Pieces of a product that are computed while others are sent, and how often each token is among those routed.
        # Transformer Engine, which computes in fp8, sends as many pieces as GPUs share a layer, and Megatron with it
        # sends a token once to each node; PyTorch waits for the whole result, and sends tokens to each expert.
        self._pieces, self._copies = 1, 1.0
        if any(cost.operation.precision == "fp8" for cost in micro.operations):
            self._pieces = layout.tensor_parallel
            for each in grouped:
                self._copies = each.operation.input_shapes[0][0] * self._blocks[0][-1] / size(self._blocks[0])

    @cached_property
    def layers(self) -> Cost:
        """What a GPU waits for in a micro-batch and one of the stages, in the forward, the backward, and again.

        Results of blocks are summed over the GPUs that share layers, and tokens are sent to their experts and back.
        Keys and values go around the GPUs that share sequences while these compute attention with the ones before.
        """
        layout, traffic = self.state.layout, self.traffic
        passes = 3 if layout.recompute == "full" else 2
        sums = total(
            traffic.all_reduce(size(shape) * self._element_bytes, layout.tensor_parallel) for shape in self._blocks
        )
        layers = max(1, len(self._blocks))
        routed = traffic.exchanged(self._routed * self._element_bytes / layers, layout.expert_gpus, self._copies)
        counting = Cost(_COUNTING_S if self._routed and layout.expert_gpus > 1 else 0.0, 0.0)
        # In the backward keys and values go around with their gradients.
        keys = self._cached * layout.context_parallel * self._element_bytes / layers
        ring = traffic.gathered(keys, layout.context_parallel, layout.tensor_parallel).times((passes + 1) * layers)
        ring = ring._replace(time_s=max(0.0, ring.time_s - self._attended_s))
        sums = sums._replace(time_s=sums.time_s / self._pieces)
        sent = [sums.times(passes), routed.times(2 * passes * layers), counting.times(passes * layers), ring]
        return total(sent).times(1 / layout.pipeline_parallel)

    def exposed(self, backward_s: float, turn_s: float) -> tuple[float, Cost]:
        """Seconds that a GPU waits for what is sent, and all that is sent."""
        layout = self.state.layout
        stages, stride = layout.pipeline_parallel, layout.tensor_parallel
        # Micro-batches in flight pass to the next stage forward and back.
        result = size(self._blocks[0]) * self._element_bytes / layout.tensor_parallel if self._blocks else 0.0
        crossings = 2 * (layout.accumulation * layout.virtual_stages + stages - 2) if stages > 1 else 0
        sent = [self.layers.times(layout.accumulation), self.traffic.message(result, stride).times(crossings)]
        waited_s = total(sent).time_s
        if layout.sharers > 1:
            held, on_each = self.state.held, self.state.on_each
            each, whole = held.learned * on_each, min(held.casts or held.stored, held.stored) * on_each
            if layout.sharding == "zero3":
                gather = self.traffic.gathered(whole, layout.sharers, stride)
                once = total([gather.times(2), self.traffic.gathered(min(each, whole), layout.sharers, stride)])
                # Nothing computes while the first of the layers is collected.
                first_s = gather.time_s / max(1, len(self._blocks) // 2)
                waited_s += layout.accumulation * max(first_s, once.time_s - turn_s)
                sent.append(once.times(layout.accumulation))
            else:
                summed = self.traffic.all_reduce(each, layout.sharers, stride)
                buckets = max(1.0, each / _BUCKET_BYTES)
                waited_s += max(summed.time_s / buckets, summed.time_s - backward_s * (1 - 1 / buckets))
                sent.append(summed)
        return waited_s, total(sent)
