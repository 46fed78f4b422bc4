"""What a server draws at the plug: its boards, processors, memory, fans, adapters and conversion."""

from __future__ import annotations

from .layout import Layout

# Fitted to MLPerf's measured servers (benchmarks/NODES.md): watts of a server of two processors without its boards, and
# watts for each watt of the boards, which fans, adapters and conversion take.
BASE_W, PER_BOARD_W = 469.0, 1.20
PLUG_ERROR = 1.3
"""Factor within which nine of ten servers of vendors that were left out lie."""


def wall_energy_j(time_s: float, boards_j: float, layout: Layout) -> float:
    """Joules at the plugs of all servers of a run.

    Args:
        time_s: Seconds of the run.
        boards_j: Joules of all boards.
        layout: The GPUs and their nodes.
    """
    return layout.nodes * BASE_W * time_s + PER_BOARD_W * boards_j
