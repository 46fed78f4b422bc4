"""NetworkKnowledge: everything that was learned or is assumed about networks on one GPU in one mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import compress

from ...arrays import FloatArray
from ...operations.attributes import ELEMENT_BYTES
from ..contract import PredictsOperations
from ..intervals.network_calibration import NetworkCalibration, shares_of
from ..operation_predictions import OperationPredictions
from .composition import HostModel
from .prediction import Composition

_MAJORITY = 0.5  # Share of the device time from which a network counts as one in half precision.


@dataclass(frozen=True, eq=False)
class NetworkKnowledge:
    """A predictor of single operations, and everything else that is needed to compose networks from them.

    Args:
        name: Name of the zoo entry that it comes from, such as "a30/forest-inference".
        operations: Predicts single operations.
        host: Model of the host seconds of a call inside a network.
        composition: The composition that was better on networks that were left out; the default.
        network_errors: Errors on networks that were left out; None where no network was measured.
        half_errors: Errors on left-out networks that spend most of their time in half precision; None if
            `network_errors` holds for these as well.
        any_gpu: Whether the predictor is for GPUs and clocks that were not measured. Its errors come from such GPUs, so
            they do not grow at other clocks than the default.
        find_fallback: Gives the knowledge of the fallback predictor, for networks with operations that only the
            fallback predicts. The fallback is loaded when this is called first.
    """

    name: str
    operations: PredictsOperations
    host: HostModel
    composition: Composition = "overlap"
    network_errors: NetworkCalibration | None = None
    half_errors: NetworkCalibration | None = None
    any_gpu: bool = False
    find_fallback: Callable[[], NetworkKnowledge | None] = lambda: None

    def holds_measured_settings(self, clock_mhz: float, power_limit_w: float) -> bool:
        """Whether a GPU's own measurements were made at this clock and under this power cap."""
        gpu = self.operations.gpu
        return clock_mhz == gpu.boost_clock_mhz and power_limit_w == gpu.power_limit_w

    def errors_on(self, counts: FloatArray, predictions: OperationPredictions) -> NetworkCalibration | None:
        """Errors on networks like this one; None where nothing is known."""
        if self.operations.by_fallback(predictions.operations):
            # A GPU's own errors come from networks whose operations were all measured there.
            fallback = self.find_fallback()
            return None if fallback is None else fallback.errors_on(counts, predictions)
        if self.half_errors is not None and _half_share(counts, predictions) > _MAJORITY:
            return self.half_errors
        return self.network_errors


def _half_share(counts: FloatArray, predictions: OperationPredictions) -> float:
    """Share of a network's device time in precisions of 16 bits and less."""
    shares, known = shares_of(counts, predictions)
    half = [ELEMENT_BYTES[operation.precision] <= 2 for operation in compress(predictions.operations, known)]
    return float(shares[half].sum())
