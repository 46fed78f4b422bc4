"""How a network is run, and on which host. Both decide the host time, which no GPU can shorten.

Eager PyTorch launches one operation after the other, and the device waits when the host is slower. A CUDA graph is
recorded once: the host then launches all of its kernels together. torch.compile generates kernels that compute several
operations at once (operations/fusion.py). It launches them from code that it generated for this network, which takes
less time than PyTorch's dispatcher.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from ...errors import unknown_name
from ...hardware.host import USUAL, Host
from ..board.profile import BoardProfile

ExecutionName = Literal["eager", "graph", "compiled"]
EXECUTIONS: tuple[ExecutionName, ...] = ("eager", "graph", "compiled")

GRAPH_LAUNCH_S = 10e-6
"""Seconds that the reference host needs to launch a whole graph. This is an assumption, about the time of one kernel
launch. No data of this project shows it; it is small compared with the time of any real network."""

COMPILED_CALL_S = 50e-6
"""Seconds that the reference host needs to enter a compiled function, where it checks that the compiled code fits the
inputs. This is an assumption. On a CPU, torch.compile with PyTorch 2.13 took 40 to 70 us more than the kernels of a
small network."""

COMPILED_LAUNCH_S = 8e-6
"""Seconds that the reference host needs for a launch from compiled code. This is an assumption. On the same CPU a
launch took 0.7 times as long as an operation of eager PyTorch, which takes about 12 us on the reference host."""

KERNELS_IN_TRAINING = 3
"""Kernels of an operation with its backward: forward, gradient of the input, gradient of the parameters."""


@dataclass(frozen=True)
class Execution:
    """How a network is run.

    Args:
        name: "eager": PyTorch as it is. "graph": recorded once and replayed as a CUDA graph.
            "compiled": by torch.compile with its default mode.
        host: The machine that launches the kernels.
        profile: What was measured on the board that it runs on; None for any board of the GPU.
        gap_s: Seconds for which the device waits after each operation. Loops of PyTorch contain such gaps already;
            the kernels of engines were measured without them.
    """

    name: ExecutionName = "eager"
    host: Host = USUAL
    profile: BoardProfile | None = field(default=None, compare=False)  # It does not change how a network is run.
    gap_s: float = 0.0

    @property
    def most_clock_mhz(self) -> float:
        """The highest clock that the board holds, in MHz; infinite where it holds all that are asked for."""
        return (self.profile and self.profile.most_clock_mhz) or math.inf

    @classmethod
    def of(cls, name: str, host: Host, profile: BoardProfile | None = None) -> Execution:
        """An execution by its name. Raises UnknownNameError: there is no execution of this name."""
        for known in EXECUTIONS:
            if name == known:
                return cls(known, host, profile)
        raise unknown_name("execution", name, EXECUTIONS)


EAGER = Execution()
