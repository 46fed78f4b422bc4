"""NetworkPredictor: a predictor of operations, with what it takes to compose them to networks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING

from ...errors import InputError
from ...hardware import GPU
from ...operations.network import Network
from ..contract import PredictsOperations
from ..fallback import FallbackPredictor
from ..intervals.network_calibration import NetworkCalibration
from ..intervals.network_spread import FAR_SHARE, NetworkSpread
from ..intervals.power_range import power_range_w
from ..operation_predictions import OperationPredictions
from ..physics.roofline import roofline
from .composition import HostModel, Totals, counts_of
from .prediction import Bound, Composition, Prediction
from .uncovered import Coverage

if TYPE_CHECKING:
    from .prepared import PreparedNetwork

_SHOWN_KINDS = 4
_SHOWN_OPERATIONS = 3


@dataclass(frozen=True)
class NetworkPredictor:
    """An OperationPredictor with what it takes to compose networks.

    Args:
        name: Where it comes from, such as "a30/forest-inference".
        operations: Predicts single operations.
        host: Host cost inside a network.
        composition: Which composition was better on networks that were left out.
        network_errors: Errors on networks that were left out; None where none was measured.
        any_gpu: Whether it is one for GPUs and clocks that were not measured; its errors come from such.
    """

    name: str
    operations: PredictsOperations
    host: HostModel
    composition: Composition = "overlap"
    network_errors: NetworkCalibration | None = None
    any_gpu: bool = False

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
            composition: "overlap" or "sum"; None for the one that was better on networks left out.
            strict: Raise where an operation is not covered.

        Raises:
            InputError: Another mode, a clock or a cap that the GPU cannot hold, an unknown composition, or a network
                of which nothing is covered.
            UncoveredError: Strict, and some operations are not covered.
        """
        return self.prepared(network, power_limit_w).at(clock_mhz, composition=composition, strict=strict)

    def prepared(self, network: Network, power_limit_w: float | None = None) -> PreparedNetwork:
        """A network with everything found out that no clock changes: what to ask when several clocks are wanted.

        Args:
            network: Operations of this predictor's mode.
            power_limit_w: Power cap; None for the board's default.

        Raises:
            InputError: A cap that the GPU cannot hold.
        """
        from .prepared import PreparedNetwork

        return PreparedNetwork(self, network, self.operations.gpu.checked_power_limit_w(power_limit_w))

    def summary(
        self,
        network: Network,
        predictions: OperationPredictions,
        totals: Totals,
        clock_mhz: float,
        power_limit_w: float,
        composition: str,
    ) -> Prediction:
        """A prediction whose operations are left out, and which holds the clock that is asked for.

        Args:
            network: What was predicted.
            predictions: Its operations; for what is covered.
            totals: What they come to.
            clock_mhz: Asked for.
            power_limit_w: Power cap.
            composition: How the totals were made.
        """
        gpu = self.operations.gpu
        coverage = self.coverage(network, predictions)
        spread = self._spread(network, predictions, composition, clock_mhz, power_limit_w, coverage.share)
        return Prediction(
            network=network.name,
            input_shape=network.input_shape,
            mode=network.mode,
            gpu=gpu.name,
            clock_mhz=clock_mhz,
            predictor=self.name,
            composition="overlap" if composition == "overlap" else "sum",
            time_s=totals.time_s,
            energy_j=totals.energy_j,
            device_time_s=totals.device_time_s,
            host_time_s=totals.host_time_s,
            power_limit_w=power_limit_w,
            held_clock_mhz=clock_mhz,
            operations=(),
            spread=spread,
            notes=tuple(self._notes(network, gpu, clock_mhz, power_limit_w, spread, coverage)),
            coverage=coverage,
            idle_power_w=power_range_w(gpu, power_limit_w)[0],
        )

    def _spread(
        self,
        network: Network,
        predictions: OperationPredictions,
        composition: str,
        clock_mhz: float,
        power_limit_w: float,
        missing_share: float | None,
    ) -> NetworkSpread | None:
        if missing_share is None:
            return None  # nobody knows how much longer the whole takes than what is counted
        if self.network_errors is None or composition not in self.network_errors.scores:
            return None
        if self._by_fallback(network):
            return None  # its errors are those of what was measured
        as_measured = self.any_gpu or self._is_default(clock_mhz, power_limit_w)
        return NetworkSpread(
            networks=self.network_errors,
            composition=composition,
            operations=predictions.spread if self.network_errors.difficulties else None,
            counts=counts_of(network),
            predictions=predictions,
            missing_share=missing_share,
            measured_mhz=None if as_measured else float(self.operations.gpu.boost_clock_mhz),
        )

    def _is_default(self, clock_mhz: float, power_limit_w: float) -> bool:
        gpu = self.operations.gpu
        return clock_mhz == gpu.boost_clock_mhz and power_limit_w == gpu.power_limit_w

    def bounds(self, predictions: OperationPredictions, clock_mhz: float) -> Iterator[Bound]:
        """What decides the time of each operation; see `OperationCost.bound_by`."""
        known = [source != "missing" for source in predictions.source]
        some = predictions.operations if all(known) else [*compress(predictions.operations, known)]
        by_line = iter(roofline(some, self.operations.gpu, clock_mhz).bounds)
        # (a missing operation has no device time, and no bound that anybody could know)
        on_device = predictions.device_time_s >= predictions.host_time_s + self.host.offset_s
        for is_known, longer in zip(known, on_device.tolist(), strict=True):
            bound = next(by_line) if is_known else "launch"
            yield bound if longer else "launch"

    def coverage(self, network: Network, predictions: OperationPredictions) -> Coverage:
        """What of a network is in no total."""
        return Coverage.of(network, predictions.source, self.name)

    def refuse_uncovered(self, network: Network, predictions: OperationPredictions, strict: bool) -> None:
        """Refuse a network of which too much is not covered; a strict one of which anything is not.

        Raises:
            InputError, UncoveredError: See `predict`.
        """
        if set(predictions.source) == {"missing"}:
            raise InputError(
                f"{self.name} covers none of these operations",
                given="; ".join(map(repr, predictions.operations[:_SHOWN_OPERATIONS])),
                allowed=", ".join(self.operations.coverage),
                hint="choose another precision or GPU",
            )
        coverage = self.coverage(network, predictions)
        if strict:
            coverage.refuse_any(network.name)
        coverage.refuse_too_much(network.name)

    def _by_fallback(self, network: Network) -> tuple[str, ...]:
        """Kinds and precisions that the GPU's own predictor lacks."""
        if not isinstance(self.operations, FallbackPredictor):
            return ()
        return self.operations.by_fallback(network.operations)

    def _notes(
        self,
        network: Network,
        gpu: GPU,
        clock_mhz: float,
        power_limit_w: float,
        spread: NetworkSpread | None,
        coverage: Coverage,
    ) -> Iterator[str]:
        if coverage:
            yield str(coverage)
        if self.any_gpu:
            yield f"{gpu.name} has no predictor of its own: predicted from its data sheet by what other GPUs showed"
        elif not self._is_default(clock_mhz, power_limit_w):
            yield "no other clock or cap was measured: time and energy are scaled by physics, the interval is wider"
        if kinds := self._by_fallback(network):
            more = f" and {len(kinds) - _SHOWN_KINDS} more" if len(kinds) > _SHOWN_KINDS else ""
            shown = ", ".join(kinds[:_SHOWN_KINDS]) + more
            yield f"not measured on {gpu.name}, predicted from its data sheet by what other GPUs showed: {shown}"
        if not self.host.learned:
            yield "no network was measured on this GPU: host cost taken from the A30"
        if coverage.share is None:
            yield "no interval: nobody knows how much work is not covered; extract the network again"
        elif spread is None:
            yield "no interval: no errors on networks are known"
        elif spread.far_outside:
            yield f"far outside the training data: over {100 * FAR_SHARE:.0f} % of the device time"
