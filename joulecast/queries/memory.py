"""Device memory that a job needs, as far as a list of operations and what was dropped from it tell.

Inference: weights, the caches of attention, and the inputs and output of the operation that has the largest of them.
Training: weights and their gradients, whatever the optimizer keeps, the outputs that the backward needs, and the same
again for the largest operation. On top comes what CUDA and PyTorch take for themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..hardware import GPU
from ..operations.network import Entry, Network
from ..operations.precisions import ELEMENT_BYTES
from ..operations.rules import size

# A context with the kernels of cuDNN and cuBLAS, and their workspaces: an allowance, not a measurement.
_CONTEXT_BYTES = 768 * 2**20
# Their output takes the place of a tensor that nobody needs any more: the one or the other is kept, not both.
_IN_PLACE = frozenset({"relu", "add", "dropout", "stochastic_depth", "copy", "save_input", "gradient_accumulation"})
_INDEX_BYTES = 8  # Max pooling keeps where each maximum was.
_MOMENTS = {"adam_step": 2, "adamw_step": 2}  # Tensors per parameter that the optimizer keeps.
_STEPS = frozenset({"sgd_step", *_MOMENTS})


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a job needs, by what they hold.

    Args:
        weights_bytes: Parameters, and in training their gradients and what the optimizer keeps.
        activations_bytes: Inputs and outputs that live at once, caches among them.
        context_bytes: What CUDA and PyTorch take.
    """

    weights_bytes: int
    activations_bytes: int
    context_bytes: int = _CONTEXT_BYTES

    @property
    def total_bytes(self) -> int:
        """All together."""
        return self.weights_bytes + self.activations_bytes + self.context_bytes

    def fits(self, gpu: GPU) -> bool:
        """Whether a GPU has as much."""
        return self.total_bytes <= usable_bytes(gpu)


def usable_bytes(gpu: GPU) -> int:
    """Device memory without what error correction takes: a sixteenth of GDDR, which GeForce boards do without."""
    corrects = "GDDR" in (gpu.memory_type or "") and "GeForce" not in gpu.name
    return gpu.memory_bytes * 15 // 16 if corrects else gpu.memory_bytes


def shortage(need: MemoryNeed, gpu: GPU) -> str | None:
    """How much a GPU lacks, in words: "needs 30.1 GiB of memory, has 24.0 GiB"; None where the job fits."""
    if need.fits(gpu):
        return None
    return f"needs {need.total_bytes / 2**30:.1f} GiB of memory, has {usable_bytes(gpu) / 2**30:.1f} GiB"


def memory_need(network: Network) -> MemoryNeed:
    """Estimate the device memory of one iteration of a network."""
    dropped = [each.work for each in network.dropped if each.work is not None]
    weights = sum(_weights_bytes(entry) for entry in network) + sum(work.parameter_bytes for work in dropped)
    # A step over all parameters touches weights, gradients and moments, which are counted already.
    touched = [_touched_bytes(entry) for entry in network if entry.operation.kind not in _STEPS]
    largest = max((*touched, *(work.largest_bytes for work in dropped)), default=0)
    if network.mode == "training":
        moments = max(_MOMENTS.get(entry.operation.kind, 0) for entry in network)
        return MemoryNeed((2 + moments) * weights, saved_bytes(network) + largest)
    return MemoryNeed(weights, largest + sum(_cached_bytes(entry) for entry in network))


def saved_bytes(network: Network) -> int:
    """Bytes that a forward keeps for its backward.

    Within 10 % of what autograd saves for convolutional networks; tests/queries/test_memory.py holds it to that.
    """
    first = network.entries[0].operation
    dropped = sum(each.work.output_bytes for each in network.uncounted if each.work is not None)
    return (
        dropped
        + round(first.input_size * ELEMENT_BYTES[first.precision])
        + sum(_kept_bytes(entry) for entry in network)
    )


def _weights_bytes(entry: Entry) -> int:
    """A module that is called twice has its weights once; where modules are not known, every call has its own."""
    modules = len(entry.by_module) if entry.module_paths else entry.count
    return round(modules * entry.operation.parameters * ELEMENT_BYTES[entry.operation.precision])


def _touched_bytes(entry: Entry) -> int:
    operation = entry.operation
    return round((operation.input_size + size(operation.output_shape)) * ELEMENT_BYTES[operation.precision])


def _kept_bytes(entry: Entry) -> int:
    operation = entry.operation
    if operation.kind in _IN_PLACE or operation.kind in _STEPS:
        return 0
    element = ELEMENT_BYTES[operation.precision] + _INDEX_BYTES * (operation.kind == "max_pool2d")
    return round(entry.count * size(operation.output_shape) * element)


def _cached_bytes(entry: Entry) -> int:
    """Keys and values of attention that were there before: more of them than queries."""
    operation = entry.operation
    if operation.kind != "attention":
        return 0
    queries, keys, values = operation.input_shapes[:3]
    if keys[-2] <= queries[-2]:
        return 0
    element = ELEMENT_BYTES[operation.attributes["cache_precision"] or operation.precision]
    return round(entry.count * (size(keys) + size(values)) * element)
