"""Seconds and joules of what the GPUs of a run send each other, inside of nodes and between them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ..generation.collectives import NCCL, collective_j, collective_s
from ..generation.parallel import GROUPS
from ..hardware import GPU
from ..operations.attributes import ELEMENT_BYTES, HALF_PRECISIONS
from ..operations.operation import Operation
from ..operations.rules import size
from ..predictors.networks.prediction import Prediction
from .computed import results_of_blocks
from .state import State

# A network adapter for each GPU in its own PCI Express slot: 200 Gbit/s at PCIe 4.0 x16 (DGX A100), 400 Gbit/s at 5.0
# (DGX H100), each 0.78 of the slot's 32 and 64 GB/s.
_ADAPTER = 0.78
# Share of an adapter's rate that NCCL's rings reach between nodes. Its tests report 0.8 to 0.95 with InfiniBand.
_REACHED = 0.85
_STEP_S = 10e-6  # A message between two nodes: about the time of NCCL's shortest collectives.
_HALF_BYTES = 2
_DEFAULT_PCIE = 32e9


class Cost(NamedTuple):
    """Seconds and joules of a GPU; of what is sent, joules above static power."""

    time_s: float
    energy_j: float

    def times(self, number: float) -> Cost:
        """The same so many times."""
        return Cost(number * self.time_s, number * self.energy_j)


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of costs."""
    listed = [*costs]
    return Cost(math.fsum(cost.time_s for cost in listed), math.fsum(cost.energy_j for cost in listed))


@dataclass(frozen=True)
class Traffic:
    """Collectives between GPUs of a kind."""

    gpu: GPU
    gpus_per_node: int
    # Bytes per second of a node's adapters to other nodes, in each direction; None for one adapter for each GPU, as
    # fast as its PCI Express slot allows.
    network_bandwidth: float | None = None

    @property
    def between_nodes(self) -> float:
        """Bytes per second that a node reaches to other nodes."""
        own = _ADAPTER * (self.gpu.pcie_bandwidth or _DEFAULT_PCIE) * self.gpus_per_node
        return _REACHED * (self.network_bandwidth or own)

    def all_reduce(self, size_bytes: float, gpus: int, stride: int = 1) -> Cost:
        """Sum a tensor of so many bytes up on all GPUs of a group; see `gathered` for the arguments."""
        if self._nodes(gpus, stride) == 1:
            return self._inside("all_reduce", size_bytes, gpus, stride)
        return self.gathered(size_bytes, gpus, stride).times(2)  # The sums are scattered first, and then gathered.

    def gathered(self, size_bytes: float, gpus: int, stride: int = 1) -> Cost:
        """Collect the parts of a tensor from all GPUs of a group, or sum it up and divide it (reduce-scatter).

        The rings of NCCL pass through all GPUs of a node and once between neighbouring nodes. The slower of the two
        decides.

        `stride`: GPUs between two neighbours of the group, such as those that share the layers of one replica.
        """
        inside, nodes = self._inside("all_gather", size_bytes, gpus, stride), self._nodes(gpus, stride)
        if nodes == 1:
            return inside
        # As many groups share the adapters as there are GPUs between two neighbours.
        rings = min(stride, self.gpus_per_node)
        between_s = rings * size_bytes * (nodes - 1) / nodes / self.between_nodes
        return Cost(max(inside.time_s, between_s) + nodes * _STEP_S, inside.energy_j)

    def exchanged(self, size_bytes: float, gpus: int, copies: float = 1.0) -> Cost:
        """Send so many bytes of each GPU to all GPUs of a group, evenly (all-to-all).

        `copies`: How often the bytes have each token, which is sent to another node once, and copied there (DeepEP;
        DeepSeek-V3, arXiv 2412.19437, section 3.2.2).
        """
        inside, nodes = self._inside("all_to_all", size_bytes, gpus, 1), self._nodes(gpus, 1)
        if nodes == 1:
            return inside
        # Of these many nodes, each is chosen by none of the copies with the probability (1 - 1 / nodes)^copies.
        sent = size_bytes / copies * (nodes - 1) * (1 - (1 - 1 / nodes) ** copies)
        between_s = self.gpus_per_node * sent / self.between_nodes + nodes * _STEP_S
        return Cost(max(inside.time_s, between_s), inside.energy_j)

    def message(self, size_bytes: float, stride: int) -> Cost:
        """Send a tensor to the GPU of another stage."""
        across = stride >= self.gpus_per_node
        linked = self.gpu.link(self.gpus_per_node) == "nvlink"
        inside = (self.gpu.link_bandwidth if linked else self.gpu.pcie_bandwidth) or _DEFAULT_PCIE
        return Cost(_STEP_S + size_bytes / (self.between_nodes / self.gpus_per_node if across else inside), 0.0)

    def _nodes(self, gpus: int, stride: int) -> int:
        return max(1, -(-gpus * stride // self.gpus_per_node))

    def _inside(self, kind: str, size_bytes: float, gpus: int, stride: int) -> Cost:
        """The same within a node, by measured times of the largest group of that kind that is no larger."""
        here = min(gpus, max(1, self.gpus_per_node // stride))
        count = max(group for group in GROUPS if group <= here)
        if count == 1 or size_bytes <= 0:
            return Cost(0.0, 0.0)
        elements = max(1, round(size_bytes / _HALF_BYTES / (count if kind == "all_gather" else 1)))
        attributes = {"gpus": count, "link": self.gpu.link(here), "implementation": NCCL}
        operation = Operation(kind, [(elements,)], attributes, precision="bf16")
        # Each link of a ring carries all parts but one, of which a ring of more GPUs has more.
        longer = 1.0 if kind == "all_to_all" else (1 - 1 / gpus) / (1 - 1 / count)
        return Cost(collective_s(operation, self.gpu), collective_j(operation)).times(longer)


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
