"""What a server draws at the plug: its boards, processors, memory, fans, adapters and conversion."""

from __future__ import annotations

from ..hardware import GPU
from .layout import Layout

PER_BOARD_W = 1.15
"""Watts for each watt of the boards. Conversion takes 5 to 6 % (80 PLUS Titanium), fans and adapters the rest. A free
fit to MLPerf's servers gives 1.03, since their only one with boards of 700 W is immersed and has no fans. With 1.15,
eight air-cooled H100 at their cap come out at 7.4 kW; 7.75 kW were measured under intensive training (arXiv
2506.14551)."""

# Fitted to MLPerf's measured servers (benchmarks/NODES.md): watts of a server of two processors without its boards, and
# of one whose boards are all linked with each other, by switches on a baseboard of its own.
BASE_W, LINKED_W = 466.0, 512.0
PLUG_ERROR = 1.22
"""Factor within which nine of ten servers of vendors that were left out lie."""


def servers_w(gpu: GPU, layout: Layout) -> float:
    """Watts of the servers of a run without their boards; of one that others use as well, the share of its GPUs."""
    linked = gpu.link(layout.gpus_per_node) == "nvlink"
    return layout.gpus / layout.gpus_per_node * (BASE_W + LINKED_W * linked)


def wall_energy_j(time_s: float, boards_j: float, others_w: float) -> float:
    """Joules at the plugs of all servers of a run."""
    return others_w * time_s + PER_BOARD_W * boards_j
