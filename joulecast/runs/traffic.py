"""Seconds and joules of what the GPUs of a run send each other, inside of nodes and between them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ..generation.collectives import NCCL, collective_j, collective_s
from ..generation.parallel import GROUPS
from ..hardware import GPU
from ..operations.operation import Operation

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
        between_s = rings * size_bytes * (nodes - 1) / nodes / self.between_nodes + nodes * _STEP_S
        return Cost(max(inside.time_s, between_s), inside.energy_j)

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
        return Cost(collective_s(operation, self.gpu), collective_j(operation))
