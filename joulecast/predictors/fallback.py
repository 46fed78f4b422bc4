"""A GPU's own predictor, with the one for any GPU as its fallback.

Kinds and precisions that were never measured on a GPU (half precision on the A30) are predicted from its data sheet and
from what other GPUs showed, instead of being left out of the totals. Launching an operation takes the host as long in
any precision, so the host time is the GPU's own where the kind was measured at all. Device times are used unchanged,
because the predictor for any GPU has learned from this GPU's other measurements, too.

In training, what the predictor of the GPU's inference says of forwards limits what that of its training says, because
the two were fitted apart (physics/limits.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..operations.operation import Operation
from ..operations.operation_list import OperationList
from .contract import PredictsOperations, WrappedPredictor
from .intervals.operation_spread import OperationSpread
from .operation_predictions import OperationPredictions
from .physics.baseline import group_of, stand_ins
from .physics.cached import cached
from .physics.limits import with_limits
from .physics.norms import smooth_max

_LEAST = 1e-15  # Instead of a division by zero.
_Ask = Callable[[PredictsOperations, Sequence[Operation]], OperationPredictions]


@dataclass(frozen=True, eq=False)
class FallbackPredictor(WrappedPredictor):
    """Predicts from measurements of this GPU, and by a fallback what was never measured on it.

    Args:
        own: The predictor that was trained on this GPU's measurements.
        find_fallback: Gives a predictor of the same GPU and mode that covers more. It is called, and so loaded, only
            when something is missing.
        find_forward: In training, gives the predictor of the same GPU in inference; None in inference.
    """

    find_fallback: Callable[[], PredictsOperations]
    find_forward: Callable[[], PredictsOperations] | None = None

    @property
    def coverage(self) -> tuple[str, ...]:
        """What was measured, and what the fallback predicts."""
        return (*self.own.coverage, f"the rest in {', '.join(self.gpu.unquantized)} from its data sheet")

    def predict(
        self, operations: Sequence[Operation], clock_mhz: float | None = None, power_limit_w: float | None = None
    ) -> OperationPredictions:
        """See `PredictsOperations.predict`."""
        cap_w = self.gpu.checked_power_limit_w(power_limit_w)
        return self._with_fallback(operations, lambda each, some: each.predict(some, clock_mhz, power_limit_w), cap_w)

    def _with_fallback(self, operations: Sequence[Operation], ask: _Ask, cap_w: float) -> OperationPredictions:
        """Ask the own predictor for all operations, and the fallback for those that it does not cover."""
        predictions = self._at_least_forward(ask(self.own, operations), ask)
        missing = np.array([source == "missing" for source in predictions.source], dtype=bool)
        if not missing.any():
            return predictions
        listed = OperationList.of(operations)
        some = listed if missing.all() else OperationList(compress(listed, missing))
        found = ask(self.find_fallback(), some)
        host_s = self._host_s(some, found.host_time_s)
        time_s = smooth_max(found.device_time_s, host_s)
        power_w = predictions.static_power_w + found.dynamic_energy_j / time_s
        power_w = np.minimum(power_w, cap_w)
        work = None if found.work is None else found.work.scatter(missing)
        sources = iter(found.source)

        def merged(known: FloatArray, values: FloatArray) -> Any:
            whole = known.copy()
            whole[missing] = values
            return whole

        others: dict[str, Any] = {
            "time_s": time_s,
            "power_w": power_w,
            "energy_j": power_w * time_s,
            "host_time_s": host_s,
        }
        others |= {name: getattr(found, name) for name in ("device_time_s", "dynamic_energy_j", "held_clock_mhz")}
        return replace(
            predictions,
            **{name: merged(getattr(predictions, name), values) for name, values in others.items()},
            source=tuple(next(sources) if source == "missing" else source for source in predictions.source),
            spread=_spread(predictions.spread, found.spread, missing),
            work=work if predictions.work is None or work is None else predictions.work.merge(work),
        )

    def _at_least_forward(self, predictions: OperationPredictions, ask: _Ask) -> OperationPredictions:
        """Predictions of training with at least the time and energy of the forward, and of as much a backward."""
        operations = OperationList.of(predictions.operations)
        listed, _, trained, multiples = operations.derived(with_limits)
        if self.find_forward is None or not len(trained):
            return predictions
        forward = ask(self.find_forward(), OperationList(listed[len(listed) - len(trained) :]))
        own = trained < len(operations)  # The others are forwards of attention without its mask.
        factors = np.ones((2, len(operations)))
        for row, least, found in zip(
            factors,
            (forward.device_time_s, forward.dynamic_energy_j),
            (predictions.device_time_s, predictions.dynamic_energy_j),
            strict=True,
        ):
            row[trained[own]] = np.fmax((multiples * least)[own] / np.maximum(found[trained[own]], _LEAST), 1.0)
        raised = predictions.times(*factors)
        time_s = np.maximum(raised.time_s, raised.device_time_s)
        return replace(raised, time_s=time_s, energy_j=time_s * raised.power_w)

    def _host_s(self, operations: Sequence[Operation], otherwise: FloatArray) -> FloatArray:
        """Seconds of launches, shape (operations,): those that were measured, which are the same in any precision."""
        known = self.measured_launch_s
        measured = ((known[kind] for kind in stand_ins(operation) if kind in known) for operation in operations)
        return np.array([next(some, other) for some, other in zip(measured, otherwise.tolist(), strict=True)])

    def predict_for_network(self, operations: Sequence[Operation], power_limit_w: float) -> OperationPredictions:
        """See `PredictsOperations.predict_for_network`."""
        return self._with_fallback(
            operations, lambda each, some: each.predict_for_network(some, power_limit_w), power_limit_w
        )

    def covers(self, operation: Operation) -> bool:
        """See `PredictsOperations.covers`; the fallback covers what the own predictor does not."""
        return True

    @property
    def shared_models(self) -> tuple[()]:
        """See `PredictsOperations.shared_models`; most of it is the GPU's own."""
        return ()

    def remarks(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """See `PredictsOperations.remarks`: those of the fallback about what it predicts."""
        if not self.by_fallback(operations):
            return ()
        return self.find_fallback().remarks([each for each in operations if not self.own.covers(each)])

    def by_fallback(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """Which of these operations the fallback predicts, as kinds with their precision."""
        return _uncovered(OperationList.of(operations), self.own)


@cached
def _uncovered(operations: OperationList, own: PredictsOperations) -> tuple[str, ...]:
    """Kinds and precisions among these operations that a predictor does not cover."""
    # Kind and precision decide, and thousands of operations have a few dozen pairs of these.
    some = {(operation.kind, operation.precision): operation for operation in operations}.values()
    return tuple(dict.fromkeys(group_of(each, own.gpu) for each in some if not own.covers(each)))


def _spread(
    own: OperationSpread | None, other: OperationSpread | None, missing: NDArray[np.bool_]
) -> OperationSpread | None:
    """Intervals of both: what the fallback predicted is as uncertain as the fallback says."""
    return own if own is None or other is None else replace(own, fallback=(_scattered(other, missing), missing))


def _scattered(spread: OperationSpread, places: NDArray[np.bool_]) -> OperationSpread:
    """The spread of some operations, to be asked about all: its own masks with False for the others."""
    if spread.fallback is None:
        return spread
    other, mask = spread.fallback
    among_all = places.copy()
    among_all[places] = mask
    return replace(spread, fallback=(_scattered(other, places), among_all))
