"""NetworkPredictor: predicts networks on one GPU in one mode."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from ...hardware.host import USUAL, Host
from ...operations.network import Network
from ..board.calibrated import calibrated
from ..board.parts import launches_in
from .execution import Execution
from .knowledge import NetworkKnowledge
from .prediction import Prediction
from .prepared import PreparedNetwork


@dataclass(frozen=True, eq=False)
class NetworkPredictor(NetworkKnowledge):
    """Predicts networks by what is known of their operations; see `NetworkKnowledge` for the arguments."""

    def under(self, execution: Execution) -> Self:
        """The same predictor for networks that are run in another way, by another host, or on a board of its own.

        Raises:
            InputError: The board's profile is of another GPU.
        """
        profile, host = execution.profile, execution.host.of(self.operations.gpu)
        operations = self.operations if profile is None else calibrated(self.operations, profile)
        launches = launches_in(self.operations.mode)
        if profile is not None and execution.host is USUAL and launches in profile.factors:
            host = Host("the calibrated host", profile.factors[launches], "measured by joulecast calibrate")
        return replace(self, operations=operations, host=replace(self.host, execution=execution, host=host))

    def predict(
        self,
        network: Network,
        clock_mhz: float | None = None,
        power_limit_w: float | None = None,
        *,
        composition: str | None = None,
        strict: bool = False,
    ) -> Prediction:
        """Predict one iteration of a network.

        Args:
            network: Operations of this predictor's mode.
            clock_mhz: Graphics clock; None for the GPU's default.
            power_limit_w: Power cap; None for the board's default.
            composition: "overlap" or "sum"; None for the one that was better on networks that were left out.
            strict: Whether to raise an error where an operation is not covered.

        Raises:
            InputError: Another mode, a clock or a cap that the GPU cannot hold, an unknown composition, or a network
                of which nothing is covered.
            UncoveredError: Strict, and some operations are not covered.
        """
        return self.prepared(network, power_limit_w).at(clock_mhz, composition=composition, strict=strict)

    def prepared(self, network: Network, power_limit_w: float | None = None) -> PreparedNetwork:
        """Compute everything that does not depend on the clock. Raises InputError: a cap that the GPU cannot hold."""
        return PreparedNetwork(self, network, self.operations.gpu.checked_power_limit_w(power_limit_w))
