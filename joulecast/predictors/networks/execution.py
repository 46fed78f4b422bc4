"""How a network is run, and on which host: what decides the time that no GPU can make up for.

Eager PyTorch launches one operation after the other, and the device waits where the host is slower. A CUDA graph was
recorded before: the host launches all of it at once, and what is left between two kernels is a gap of about a
microsecond. torch.compile writes kernels that do several operations at once (operations/fusion.py) and launches them
from code that it wrote for this network alone, which takes less time than PyTorch's dispatcher.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...errors import unknown_name
from ...hardware.host import REFERENCE, Host

ExecutionName = Literal["eager", "graph", "compiled"]
EXECUTIONS: tuple[ExecutionName, ...] = ("eager", "graph", "compiled")

GRAPH_LAUNCH_S = 10e-6
"""What launching a whole graph takes the reference host. An assumption, about one kernel launch: nothing in the data
of this project shows it, and no network that is worth a prediction is so short."""

GAP_S = 1e-6
"""From the end of a kernel in a graph to the start of the next one: about a microsecond, an assumption as well."""

COMPILED_CALL_S = 50e-6
"""What entering a compiled function takes the reference host: checking that the compiled code fits these inputs, an
assumption. On a CPU, torch.compile with PyTorch 2.13 took 40 to 70 us more than the kernels of a small network."""

COMPILED_LAUNCH_S = 8e-6
"""What a launch from compiled code takes the reference host, an assumption: on the same CPU it took 0.7 times as long
as an operation of eager PyTorch, which takes this host about 12 us."""

KERNELS_IN_TRAINING = 3
"""Kernels of an operation with its backward: forward, gradient of the input, gradient of the parameters."""


@dataclass(frozen=True)
class Execution:
    """How a network is run.

    Args:
        name: "eager": PyTorch as it is. "graph": recorded once and replayed as a CUDA graph.
            "compiled": by torch.compile with its default mode.
        host: The machine that launches it.
    """

    name: ExecutionName = "eager"
    host: Host = REFERENCE

    @classmethod
    def of(cls, name: str, host: Host) -> Execution:
        """An execution by its name.

        Raises:
            UnknownNameError: There is none of that name.
        """
        for known in EXECUTIONS:
            if name == known:
                return cls(known, host)
        raise unknown_name("execution", name, EXECUTIONS)


EAGER = Execution()
