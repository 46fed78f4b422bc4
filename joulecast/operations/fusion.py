"""Kernel fusion by torch.compile: which operations of a network share a kernel, and how many bytes that saves.

Inductor, the compiler behind torch.compile, generates its own kernels for element-wise operations and reductions.
Consecutive operations over tensors of one size become one kernel: such a chain reads its inputs once and writes its
outputs once. Matrix products, convolutions and attention remain calls of cuBLAS, cuDNN and flash attention, into which
only the bias is fused (mode="max-autotune" fuses more, and is not modelled). Source: torch/_inductor/scheduler.py, and
the decisions of that scheduler for eleven models on a CPU (benchmarks/FUSION.md).

A network is a list of operations with counts. It does not say which tensors connect them, so the rules work with the
number of operations over tensors of each size: a chain begins where a library call outputs a tensor of that size, and
ends where a library call reads one. The table ROLES says what each kind does in a chain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from ..arrays import FloatArray
from .kinds import KINDS
from .network import Network
from .operation import Operation
from .rules import size

Role = Literal["point-wise", "reduction", "window", "call"]
"""Role of a kind in a chain of operations over tensors of one size.

- point-wise: is fused with the operations before it and after it.
- reduction: likewise, but each reduction needs a loop of its own, so two reductions are two kernels.
- window: always begins a chain, because it reads each element several times.
- call: calls a library, and is not fused with anything.
"""

ROLES: Mapping[str, Role] = {
    "elementwise": "point-wise",
    "normalization": "reduction",
    "softmax": "reduction",
    "pooling": "window",
    "movement": "call",
    # Kinds that are unlike the rest of their family.
    **{kind: "call" for kind, row in KINDS.items() if row.is_optimizer_step},
    **dict.fromkeys(("mean", "sum", "norm", "max", "argmax", "var", "prod", "logsumexp"), "reduction"),
    "adaptive_avg_pool2d": "reduction",
    **dict.fromkeys(("cat", "copy", "save_input", "embedding", "gather", "index_select", "one_hot"), "point-wise"),
}
"""Kind -> its role; kinds that are not listed have the role of their family."""

_KEEP_INPUT = ("layer_norm", "rms_norm", "group_norm")
"""Kinds whose input is usually a residual sum. The next block adds to it as well, so it is written in any case."""

_JOINED_INPUTS = 8
"""Most inputs of a concatenation that is fused: torch/_inductor/config.py, max_pointwise_cat_inputs."""


def role_of(operation: Operation) -> Role:
    """The role of an operation in a chain."""
    if operation.kind == "batch_norm" and operation.mode == "inference":
        return "point-wise"  # A scale and an offset for each channel.
    if operation.kind == "cat" and len(operation.input_shapes) > _JOINED_INPUTS:
        return "call"
    return ROLES.get(operation.kind, ROLES.get(operation.row.family, "call"))


class Fusion(NamedTuple):
    """Cost of each operation in a compiled network relative to eager PyTorch, shape (operations,), in (0, 1].

    `kernels` are launched kernels, and `traffic` bytes moved.
    """

    kernels: FloatArray
    traffic: FloatArray


@dataclass
class _Tensors:
    """Operations over tensors with the same number of elements. All fields but `places` count calls.

    Args:
        places: Positions in the network of the operations that may be fused; `loops` are calls of all of them.
        reductions, windows: Calls that begin a kernel of their own.
        keeping: Calls of reductions whose input is written in any case.
        left: Tensors of this size that library calls output.
        taken: Tensors of this size that library calls, windows and reductions read.
        scaled: Calls that also read a smaller tensor which a library call outputs, so they have to wait for it.
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
        """Number of kernels after fusion."""
        begin = self.reductions + self.windows
        chains = min(self.loops - begin, self.left + self.scaled, max(self.taken, 1))
        return min(self.loops, max(1, begin + max(0, chains - self.reductions)))


def fusion_of(network: Network) -> Fusion:
    """Estimate by the rules above what Inductor fuses in a network."""
    kernels, traffic = np.ones(len(network)), np.ones(len(network))
    for elements, tensors in _by_size(network).items():
        joined = tensors.loops - tensors.kernels
        if not joined:
            continue
        some = [network.entries[place] for place in tensors.places]
        moved = sum(e.count * (e.operation.bytes_read + e.operation.bytes_written) for e in some)
        element_bytes = max(e.operation.storage.output / size(e.operation.output_shape) for e in some)
        # A tensor between two fused operations is neither written nor read. In training this holds for the forward
        # alone: the backward saves about as much as it spends on computing values again.
        spared = elements * element_bytes * (2 * joined - min(tensors.keeping, joined))
        least = elements * element_bytes * tensors.kernels
        kernels[tensors.places] = tensors.kernels / tensors.loops
        traffic[tensors.places] = min(1.0, max(moved - spared, least) / moved)
    return Fusion(kernels, traffic)


def _by_size(network: Network) -> Mapping[int, _Tensors]:
    """Number of elements of a tensor -> the operations over such tensors."""
    by_size: dict[int, _Tensors] = defaultdict(_Tensors)
    for place, entry in enumerate(network):
        operation, count = entry.operation, entry.count
        if operation.is_identity:
            continue
        inputs, output = [*map(size, operation.input_shapes)], size(operation.output_shape)
        role = role_of(operation)
        mine = by_size[inputs[0] if role == "reduction" else output]
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
                by_size[elements].taken += count
    for entry in network:
        operation = entry.operation
        output = size(operation.output_shape)
        smaller = [size(shape) for shape in operation.input_shapes if size(shape) < output]
        if role_of(operation) == "point-wise" and any(by_size[elements].left for elements in smaller):
            by_size[output].scaled += entry.count
    return by_size
