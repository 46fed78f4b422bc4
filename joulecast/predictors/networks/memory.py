"""An estimate of the device memory that a job needs, from its operations and dropped operators.

Inference needs the weights, the caches of attention, and the inputs and output of the largest operation. Training needs
the weights and their gradients, the state of the optimizer, the outputs that the backward pass uses, and the inputs and
output of the largest operation. CUDA and PyTorch need memory of their own in both.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ...hardware import GPU
from ...operations.attributes import ELEMENT_BYTES
from ...operations.entry import Entry
from ...operations.network import Network, ParameterBytes
from ...operations.rules import size
from ...units import si

# The CUDA context with the kernels of cuDNN and cuBLAS, and their workspaces. An allowance, not a measurement.
_CONTEXT_BYTES = 768 * 2**20


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a job needs, by what they hold.

    Args:
        weights_bytes: Parameters, and in training also their gradients and the state of the optimizer.
        activations_bytes: Inputs and outputs that exist at the same time, including caches of attention.
        context_bytes: Bytes that CUDA and PyTorch need for themselves.
    """

    weights_bytes: int
    activations_bytes: int
    context_bytes: int = _CONTEXT_BYTES

    @property
    def total_bytes(self) -> int:
        """All together."""
        return self.weights_bytes + self.activations_bytes + self.context_bytes

    def fits(self, gpu: GPU) -> bool:
        """Whether a GPU has enough memory."""
        return self.total_bytes <= usable_bytes(gpu)


def usable_bytes(gpu: GPU) -> int:
    """Device memory that programs can use: without the sixteenth that error correction takes on some boards."""
    return gpu.memory_bytes * 15 // 16 if gpu.inline_ecc else gpu.memory_bytes


def shortage(need: MemoryNeed, gpu: GPU) -> str | None:
    """Why a job does not fit, in words: "needs 30.1 GB of memory, has 25.8 GB"; None where it fits."""
    if need.fits(gpu):
        return None
    return f"needs {si(need.total_bytes, 'B')} of memory, has {si(usable_bytes(gpu), 'B')}"


def memory_need(network: Network) -> MemoryNeed:
    """Estimate the device memory of one iteration of a network."""
    dropped = [each.work for each in network.dropped if each.work is not None]
    # The optimizer's step works on weights, gradients and moments, which are counted already.
    operations = [entry.operation for entry in network if not entry.operation.row.is_optimizer_step]
    touched = (round((o.input_size + size(o.output_shape)) * ELEMENT_BYTES[o.precision]) for o in operations)
    largest = max((*touched, *(work.largest_bytes for work in dropped)), default=0)
    held = parameters_held(network)
    if network.mode == "training":
        learned = (1 + moments(network)) * held.learned
        return MemoryNeed(held.stored + learned, held.casts + saved_bytes(network) + largest)
    return MemoryNeed(held.stored, held.casts + largest + sum(map(_cached_bytes, network)))


def parameters_held(network: Network) -> ParameterBytes:
    """Bytes of the parameters of a network.

    The optimizer's step has each parameter once; where there is none, a weight that two modules share counts twice.
    """
    if network.parameter_bytes is not None:
        return network.parameter_bytes
    steps = [entry for entry in network if entry.operation.row.is_optimizer_step]
    if steps:
        pairs = ((entry.count * entry.operation.input_size, entry.operation.precision) for entry in steps)
        weights = round(sum(elements * ELEMENT_BYTES[precision] for elements, precision in pairs))
    else:
        dropped = sum(each.work.parameter_bytes for each in network.dropped if each.work is not None)
        weights = dropped + sum(map(_weights_bytes, network))
    return ParameterBytes(weights, weights)


def moments(network: Network) -> int:
    """How many values the optimizer keeps for each parameter."""
    return max(entry.operation.row.moments or 0 for entry in network)


def saved_bytes(network: Network) -> int:
    """Bytes that the forward pass saves for the backward pass.

    For convolutional networks this is within 10 % of what autograd saves (tests/predictors/networks/test_memory.py).
    """
    first = network.entries[0].operation
    regions = sum(entry.count for entry in network if entry.operation.kind == "checkpoint")
    kept = Counter[object]()
    for entry in network:
        if entry.operation.has_backward:
            kept[_tensors(entry)] += _saved_bytes(entry)
    # What is recomputed does not say which gradients it needs, and thus whether its forward keeps anything.
    recomputed = (entry for entry in network if entry.operation.gradients == "recomputed")
    again = sum(min(_saved_bytes(entry), kept[_tensors(entry)]) for entry in recomputed)
    dropped = sum(each.work.output_bytes for each in network.uncounted if each.work is not None)
    inputs = first.has_backward * round(first.input_size * ELEMENT_BYTES[first.precision])
    # The backward recomputes what checkpoints did not keep, one of them at a time.
    return dropped + inputs + kept.total() - again + round(again / max(1, regions))


def _tensors(entry: Entry) -> object:
    operation = entry.operation
    return operation.kind, operation.input_shapes, operation.output_shape, operation.precision


def _weights_bytes(entry: Entry) -> int:
    """Bytes of weights. A module that is called twice has them once; without module paths each call has its own."""
    modules = len(entry.by_module) if entry.module_paths else entry.count
    return round(modules * entry.operation.parameters * ELEMENT_BYTES[entry.operation.precision])


def _saved_bytes(entry: Entry) -> int:
    """Bytes that all calls of an operation keep for a backward."""
    return round(entry.count * entry.operation.row.saved(entry.operation))


def _cached_bytes(entry: Entry) -> int:
    """Bytes of keys and values that were cached before: those beyond the number of queries."""
    operation = entry.operation
    if operation.kind != "attention":
        return 0
    queries, keys, values = operation.input_shapes[:3]
    element = ELEMENT_BYTES[operation.attributes["cache_precision"] or operation.precision]
    return round((keys[-2] > queries[-2]) * entry.count * (size(keys) + size(values)) * element)
