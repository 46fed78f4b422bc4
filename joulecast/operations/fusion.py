"""What torch.compile makes of a network: which operations share a kernel, and how many bytes that saves.

Inductor, the compiler behind torch.compile, writes kernels of its own for everything that is computed element by
element and for reductions. What follows one another over tensors of one size becomes one kernel: such a chain reads its
inputs once and writes its outputs once. Products, convolutions and attention stay calls of cuBLAS, cuDNN and flash
attention, into which nothing but their bias is fused (mode="max-autotune" is another matter). Source:
torch/_inductor/scheduler.py, and what that scheduler says of eleven models on a CPU (benchmarks/FUSION.md).

A network here is a list of operations with counts, without the tensors that connect them. So the rules count, among the
operations over tensors of one size: chains begin where a product or another call leaves a tensor of that size, and end
where one takes it. ROLES is the table of what each kind does in a chain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from ..arrays import FloatArray
from .network import Network
from .operation import Operation
from .rules import size

Role = Literal["point-wise", "reduction", "window", "call"]
"""What a kind does in a chain of operations over tensors of one size.

- point-wise: joins the operations before it and after it.
- reduction: the same, but it is a loop of its own, so two of them are two kernels.
- window: begins a chain, because it reads each element several times.
- call: a call of a library, which joins nothing.
"""

ROLES: Mapping[str, Role] = {
    "elementwise": "point-wise",
    "normalization": "reduction",
    "softmax": "reduction",
    "pooling": "window",
    "movement": "call",
    # Kinds that are unlike the rest of their family.
    "sgd_step": "call",
    "adam_step": "call",
    "adamw_step": "call",
    "mean": "reduction",
    "sum": "reduction",
    "norm": "reduction",
    "max": "reduction",
    "argmax": "reduction",
    "var": "reduction",
    "prod": "reduction",
    "logsumexp": "reduction",
    "adaptive_avg_pool2d": "reduction",
    "cat": "point-wise",
    "copy": "point-wise",
    "save_input": "point-wise",
    "embedding": "point-wise",
    "gather": "point-wise",
    "index_select": "point-wise",
    "one_hot": "point-wise",
}
"""Kind, or family where a kind is not named -> its role."""

_KEEP_INPUT = ("layer_norm", "rms_norm", "group_norm")
"""Their input is usually the sum that the next block adds to as well, so it is written all the same."""

_JOINED_INPUTS = 8
"""Inputs of the largest concatenation that joins a chain: torch/_inductor/config.py, max_pointwise_cat_inputs."""


def role_of(operation: Operation) -> Role:
    """What an operation does in a chain."""
    if operation.kind == "batch_norm" and operation.mode == "inference":
        return "point-wise"  # A scale and an offset for each channel.
    if operation.kind == "cat" and len(operation.input_shapes) > _JOINED_INPUTS:
        return "call"
    return ROLES.get(operation.kind, ROLES.get(operation.row.family, "call"))


class Fusion(NamedTuple):
    """What is left of each operation of a compiled network, shape (operations,), above 0 and at most 1.

    Args:
        kernels: Kernels that are launched over those of eager PyTorch.
        traffic: Bytes that are moved over those of eager PyTorch.
    """

    kernels: FloatArray
    traffic: FloatArray


@dataclass
class _Tensors:
    """What happens to tensors of one number of elements; numbers of calls.

    Args:
        places: Operations that may join others, by their places in the network.
        loops: Calls of all of them.
        reductions, windows: Those that begin a kernel of their own.
        keeping: Reductions whose input is written all the same.
        left: Tensors that calls of libraries leave.
        taken: Tensors that calls of libraries and reductions take.
        scaled: Operations with a smaller input that a library's call leaves: they wait for it.
    """

    places: list[int] = field(default_factory=list)
    loops: int = 0
    reductions: int = 0
    windows: int = 0
    keeping: int = 0
    left: int = 0
    taken: int = 0
    scaled: int = 0

    @property
    def kernels(self) -> int:
        """Kernels that remain of the loops."""
        begin = self.reductions + self.windows
        chains = min(self.loops - begin, self.left + self.scaled, max(self.taken, 1))
        return min(self.loops, max(1, begin + max(0, chains - self.reductions)))


def fusion_of(network: Network) -> Fusion:
    """What Inductor fuses in a network, by rules (see above)."""
    kernels, traffic = np.ones(len(network)), np.ones(len(network))
    for elements, tensors in _by_size(network).items():
        joined = tensors.loops - tensors.kernels
        if not joined:
            continue
        some = [network.entries[place] for place in tensors.places]
        moved = sum(e.count * (e.operation.bytes_read + e.operation.bytes_written) for e in some)
        element_bytes = max(e.operation.storage.output / size(e.operation.output_shape) for e in some)
        # A tensor between two that are joined is neither written nor read. (In training this is the forward alone: what
        # the backward spares is about what it has to compute again.)
        spared = elements * element_bytes * (2 * joined - min(tensors.keeping, joined))
        least = elements * element_bytes * tensors.kernels
        kernels[tensors.places] = tensors.kernels / tensors.loops
        traffic[tensors.places] = min(1.0, max(moved - spared, least) / moved)
    return Fusion(kernels, traffic)


def _by_size(network: Network) -> Mapping[int, _Tensors]:
    """Number of elements -> what happens to tensors of that many."""
    found: dict[int, _Tensors] = defaultdict(_Tensors)
    for place, entry in enumerate(network):
        operation, count = entry.operation, entry.count
        if operation.is_identity:
            continue
        inputs, output = [*map(size, operation.input_shapes)], size(operation.output_shape)
        role = role_of(operation)
        mine = found[inputs[0] if role == "reduction" else output]
        if role == "call":
            mine.left += count
        else:
            mine.places.append(place)
            mine.loops += count
        if role == "reduction":
            mine.reductions += count
            mine.keeping += count * (operation.kind in _KEEP_INPUT)
        elif role == "window":
            mine.windows += count
        if role != "point-wise":
            for elements in inputs:
                found[elements].taken += count
    for entry in network:
        operation = entry.operation
        output = size(operation.output_shape)
        smaller = [size(shape) for shape in operation.input_shapes if size(shape) < output]
        if role_of(operation) == "point-wise" and any(found[elements].left for elements in smaller):
            found[output].scaled += entry.count
    return found
