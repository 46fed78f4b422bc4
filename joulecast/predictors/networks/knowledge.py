"""NetworkKnowledge: everything that was learned, or is assumed, about networks on one GPU in one mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..contract import PredictsOperations
from ..intervals.network_calibration import NetworkCalibration
from .composition import HostModel
from .prediction import Composition


@dataclass(frozen=True)
class NetworkKnowledge:
    """A predictor of single operations, and what it takes to compose networks from them.

    Args:
        name: Name of the zoo entry that it comes from, such as "a30/forest-inference".
        operations: Predicts single operations.
        host: What the host needs for a call inside a network.
        composition: The composition that was better on networks that were left out; the default.
        network_errors: Errors on networks that were left out; None where no network was measured.
        any_gpu: Whether it was made for GPUs and clocks that were not measured. Its errors come from such GPUs, so that
            another clock adds nothing to them.
        find_fallback_errors: Gives the errors of the fallback on networks, for networks with operations that only the
            fallback predicts. It is called, and so loaded, only for these.
    """

    name: str
    operations: PredictsOperations
    host: HostModel
    composition: Composition = "overlap"
    network_errors: NetworkCalibration | None = None
    any_gpu: bool = False
    find_fallback_errors: Callable[[], NetworkCalibration | None] = lambda: None

    def holds_measured_settings(self, clock_mhz: float, power_limit_w: float) -> bool:
        """Whether a GPU's own measurements were made at this clock and under this power cap."""
        gpu = self.operations.gpu
        return clock_mhz == gpu.boost_clock_mhz and power_limit_w == gpu.power_limit_w
