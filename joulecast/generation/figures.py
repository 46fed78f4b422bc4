"""From steps to requests: seconds, watts and joules of a deployment at one clock or at many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..arrays import FloatArray
from ..predictors.physics.energy import static_power_w
from .deployment import Deployment
from .server import Server


@dataclass(frozen=True)
class Figures:
    """Time and energy of a deployment at several clocks; arrays of shape (clocks,)."""

    time_to_first_token_s: FloatArray  # Seconds from the start of a request to its first token
    time_per_output_token_s: FloatArray  # Mean seconds from one token of a request to the next
    latency_s: FloatArray  # Seconds from the start of a request to its last token
    tokens_per_s: FloatArray  # Output tokens per second, of all requests together
    energy_per_token_j: FloatArray  # Joules of all boards per output token

    @property
    def power_w(self) -> FloatArray:
        """Mean power of all boards together in watts."""
        return self.energy_per_token_j * self.tokens_per_s


def figures_of(deployment: Deployment, server: Server, clocks: Sequence[float]) -> Figures:
    """Add up the steps of a deployment to the figures of its requests.

    Raises:
        InputError: The GPU lacks a precision, or cannot hold a clock or the cap.
    """
    cycle, load = deployment.cycle, deployment.load
    server.prepare(deployment.steps)
    total = server.cost(cycle.steps, clocks)
    # GPUs without requests draw static power as long as the others work.
    idle_w = float(static_power_w(deployment.gpu, float(deployment.gpu.boost_clock_mhz)))
    idle = deployment.parallel.groups - deployment.busy
    boards_j = deployment.parallel.tensor * (deployment.busy * total.energy_j + idle * idle_w * total.time_s)
    tokens = deployment.total_load.batch * load.output_tokens
    return Figures(
        time_to_first_token_s=server.cost(cycle.first_token, clocks).time_s,
        time_per_output_token_s=server.cost(cycle.next_tokens, clocks).time_s,
        latency_s=total.time_s,
        tokens_per_s=tokens / total.time_s,
        energy_per_token_j=boards_j / tokens,
    )
