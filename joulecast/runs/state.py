"""What a GPU holds in training: parameters, gradients, moments, and what a forward saves for its backward."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..operations.attributes import ELEMENT_BYTES
from ..operations.entry import Entry
from ..operations.fusion import role_of
from ..operations.network import Network, ParameterBytes
from ..operations.rules import size
from ..predictors.networks.memory import MemoryNeed, memory_need, moments, parameters_held, saved_bytes
from .computed import WORDS, computed_part, divided, expert_share, layers_of, results_of_blocks
from .layout import IN_A_LAYER, Layout

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
