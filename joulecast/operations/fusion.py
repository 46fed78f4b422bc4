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

from collections import Counter, defaultdict
from collections.abc import Mapping
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


def fusion_of(network: Network) -> Fusion:
    """Estimate by the rules above what Inductor fuses in a network."""
    kernels, traffic = np.ones(len(network)), np.ones(len(network))
    places, calls = _by_size(network)
    for elements, fused in places.items():
        mine = calls[elements]
        loops, begin = mine["loop"], mine["reduction"] + mine["window"]
        chains = min(loops - begin, mine["left"] + mine["scaled"], max(mine["taken"], 1))
        after = min(loops, max(1, begin + max(0, chains - mine["reduction"])))  # kernels after fusion
        joined = loops - after
        if not joined:
            continue
        some = [network.entries[place] for place in fused]
        moved = sum(e.count * (e.operation.bytes_read + e.operation.bytes_written) for e in some)
        element_bytes = max(e.operation.storage.output / size(e.operation.output_shape) for e in some)
        # A tensor between two fused operations is neither written nor read. In training this holds for the forward
        # alone: the backward saves about as much as it spends on computing values again.
        spared = elements * element_bytes * (2 * joined - min(mine["keeping"], joined))
        least = elements * element_bytes * after
        kernels[fused] = after / loops
        traffic[fused] = min(1.0, max(moved - spared, least) / moved)
    return Fusion(kernels, traffic)


def _by_size(network: Network) -> tuple[Mapping[int, list[int]], Mapping[int, Counter[str]]]:
    """Number of elements of a tensor -> positions of the operations over such tensors that may be fused, and calls.

    Calls are counted by role, and as "loop" (all that may be fused), "keeping" (reductions whose input is written in
    any case), "left" (tensors of this size that library calls output), "taken" (those that library calls, windows and
    reductions read) and "scaled" (operations that wait for a library call, because they also read its smaller output).
    """
    places: dict[int, list[int]] = defaultdict(list)
    calls: dict[int, Counter[str]] = defaultdict(Counter)
    for place, entry in enumerate(network):
        operation, count = entry.operation, entry.count
        if operation.is_identity:
            continue
        inputs, output = [*map(size, operation.input_shapes)], size(operation.output_shape)
        role = role_of(operation)
        elements = inputs[0] if role == "reduction" else output
        if role == "call":
            calls[elements]["left"] += count
        else:
            places[elements].append(place)
            keeping = count * (role == "reduction" and operation.kind in _KEEP_INPUT)
            calls[elements].update({role: count, "loop": count, "keeping": keeping})
        if role != "point-wise":
            for taken in inputs:
                calls[taken]["taken"] += count
    for entry in network:
        operation = entry.operation
        output = size(operation.output_shape)
        smaller = [size(shape) for shape in operation.input_shapes if size(shape) < output]
        if role_of(operation) == "point-wise" and any(calls[elements]["left"] for elements in smaller):
            calls[output]["scaled"] += entry.count
    return places, calls
