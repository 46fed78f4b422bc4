"""OperationPredictor: the predictor of operations on one GPU in one mode, at any clock.

What all GPUs share (model/shared.py) predicts an operation from physics and a GPU's data sheet. Where loops of the chip
were measured, they decide (chip.py): for the kinds and precisions that were measured, and for launches of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..hardware import GPU, Boards
from ..operations.operation import Operation
from ..operations.operation_list import OperationList
from .chip import ChipPart, Known
from .contract import Shared, require_mode
from .intervals.conformal import power_range_w
from .intervals.operation_spread import OperationSpread
from .operation_predictions import OperationPredictions
from .physics.baseline import group_of
from .physics.cached import cached
from .physics.clock import Work
from .physics.energy import static_power_w
from .physics.norms import smooth_max
from .physics.power_cap import loop_clocks_mhz
from .physics.variants import as_run, measured_operations, measured_shares, seen_as, with_limits

_LEAST_S = 1e-30  # Instead of a division by zero, where nothing runs.
_SETTLING_S = 3e-4
"""Seconds of a call that feels half of a power cap in a loop as benchmarks measure it: from where kernels in half
precision start (`burst_s` in model/physics.py)."""


@dataclass(frozen=True, eq=False)
class OperationPredictor:
    """What is known of a GPU: what all GPUs share, and what loops that were measured on its chip add.

    Args:
        gpu: Any GPU of the catalogue, or one that a file describes.
        mode: "inference" or "training".
        find_shared: Gives what all GPUs share. It is called, and so loaded, only for what was not measured on the chip.
        chips: Mode -> what loops that were measured on this GPU add. In training, those of inference limit forwards.
    """

    gpu: GPU
    mode: str
    find_shared: Callable[[], Shared]
    chips: Mapping[str, ChipPart] = field(default_factory=dict)

    @property
    def chip(self) -> ChipPart | None:
        """What loops of this mode add that were measured on this GPU; None where none were."""
        return self.chips.get(self.mode)

    @property
    def coverage(self) -> tuple[str, ...]:
        """What was measured on this GPU, and what follows from its data sheet."""
        measured = () if self.chip is None else tuple(self.chip.baseline.groups)
        return (*measured, *self.find_shared().coverage(self.gpu))

    def predict(
        self, operations: Sequence[Operation], clock_mhz: float | None = None, power_limit_w: float | None = None
    ) -> OperationPredictions:
        """Predict single operations at a graphics clock under a power cap; None for the GPU's defaults.

        Raises InputError: an operation of another mode, or a clock or a cap that the GPU cannot hold.
        """
        clock, cap_w = self.gpu.checked_clock_mhz(clock_mhz), self.gpu.checked_power_limit_w(power_limit_w)
        as_measured = clock == self.gpu.boost_clock_mhz and cap_w == self.gpu.power_limit_w
        return self._predict(OperationList.of(operations), clock, cap_w, as_measured)

    def predict_for_network(self, operations: Sequence[Operation], power_limit_w: float) -> OperationPredictions:
        """Predict operations at the default clock, as the start for a network that settles at one clock of its own.

        The cap is left out, which spares a search for each operation: the clock of the network follows from it.

        Raises InputError: an operation of another mode.
        """
        listed, as_measured = OperationList.of(operations), power_limit_w == self.gpu.power_limit_w
        found = self._predict(listed, 1.0 * self.gpu.boost_clock_mhz, np.inf, as_measured)
        others = ~self._of_chip(listed)
        if found.work is None or not others.any():
            return found
        # Weights come from the memory, which no clock changes.
        read_s = np.where(others, self.find_shared().read_s(listed, self.gpu), np.nan)
        work = replace(found.work, least_fixed_s=np.fmax(found.work.least_fixed_s, read_s))
        known_s = found.device_time_s
        return replace(found, work=work, device_time_s=np.where(np.isnan(known_s), known_s, np.fmax(known_s, read_s)))

    def alike(self, operations: OperationList) -> Hashable:
        """A value that is equal for predictors that `on_each` can ask at once; None for one that is asked alone."""
        if self.chips or type(self) is not OperationPredictor:
            return None
        shared = self.find_shared()
        covered = shared.covered(operations, self.gpu)
        run = as_run(operations.some(covered), self.gpu)
        seen = seen_as(run, self.gpu)
        return (self.mode, shared, operations, covered.tobytes(), run, seen) if covered.any() else None

    @staticmethod
    def on_each(predictors: Sequence[OperationPredictor], operations: OperationList) -> list[OperationPredictions]:
        """Operations as they are inside any network at the default clock, by each of some predictors that are alike."""
        several = replace(predictors[0], gpu=Boards.of(tuple(each.gpu for each in predictors)))
        found = several.in_network(several.predict_for_network(operations, np.inf)).on_each()
        return [replace(one, **each._ranges(operations, np.inf)) for one, each in zip(found, predictors, strict=True)]

    def _of_chip(self, operations: OperationList) -> NDArray[np.bool_]:
        """Whether the chip's loops predict each operation, shape (operations,)."""
        return np.zeros(len(operations), dtype=bool) if self.chip is None else self.chip.covered(operations)

    def _predict(
        self, operations: OperationList, clock: float | FloatArray, cap_w: float, as_measured: bool
    ) -> OperationPredictions:
        require_mode(operations, self.mode)
        covered = self._of_chip(operations)
        if not covered.all():
            covered |= self.find_shared().covered(operations, self.gpu)
        shape = np.broadcast_shapes(np.shape(clock), (len(operations),))
        values, measured = np.full((6, *shape), np.nan), np.zeros(len(operations), dtype=bool)
        work = None
        if covered.any():
            some = operations.some(covered)
            whole = some.derived(measured_operations)
            known = self._known(whole)
            work = self.work(some, capped=np.isfinite(cap_w))
            values[..., covered] = self._predict_covered(some, work, known, clock, cap_w)
            work = work.scatter(covered)
            if known is not None and as_measured:
                measured[covered] = known.measured & (some.derived(measured_shares) == 1)
        time_s, power_w, device_s, dynamic_j, host_s, held_mhz = values
        source = np.where(covered, np.where(measured, "measured", "modelled"), "missing")
        return OperationPredictions(
            operations=operations,
            time_s=time_s,
            power_w=power_w,
            energy_j=time_s * power_w,
            device_time_s=device_s,
            dynamic_energy_j=dynamic_j,
            host_time_s=host_s,
            source=tuple(source.tolist()),
            static_power_w=self._static_power_w(clock),
            held_clock_mhz=held_mhz,
            work=work,
            **self._ranges(operations, cap_w),
        )

    def _predict_covered(
        self, operations: OperationList, work: Work, known: Known | None, clock: float | FloatArray, cap_w: float
    ) -> FloatArray:
        host_s = np.broadcast_to(self._host_s(operations), work.switching_j.shape)
        held_mhz = loop_clocks_mhz(work, clock, cap_w, host_s)
        device_s, dynamic_j = work.at(held_mhz)
        if np.isfinite(cap_w):  # An infinite cap times a device time of zero would be NaN.
            # Measured loops ran under the default cap, and too shortly to throttle as networks do. So a time that was
            # learned of them holds at the clock that the default cap allows, and is scaled from there to the held
            # clock. Other times hold without a cap, of which short calls feel less than long ones.
            default, under = float(self.gpu.boost_clock_mhz), self._under_cap(operations)
            top_mhz = np.maximum(loop_clocks_mhz(work, default, self.gpu.power_limit_w, host_s), 1.0)
            device_s, _ = work.at(default * held_mhz / np.where(under, top_mhz, default))
            if not under.all():
                quick_s, _ = work.at(np.minimum(clock, work.most_mhz))
                slower = (device_s / np.maximum(quick_s, _LEAST_S)) ** (quick_s / (quick_s + _SETTLING_S))
                device_s = np.where(under, device_s, quick_s * slower)
            device_s = work.bounds.applied(device_s, default / clock)
            allowed_w = np.maximum(cap_w - self._static_power_w(held_mhz), 1.0)
            dynamic_j = np.minimum(dynamic_j, allowed_w * device_s)
        time_s, loop_j = smooth_max(device_s, host_s), dynamic_j
        if known is not None:
            time_s, loop_j = time_s * known.longer, loop_j * known.more
        power_w = self._static_power_w(held_mhz) + loop_j / time_s
        return np.array([time_s, power_w, device_s, dynamic_j, host_s, held_mhz])

    def _under_cap(self, operations: OperationList) -> NDArray[np.bool_]:
        """Whether the work of each operation holds under the default cap, shape (operations,)."""
        of_chip = self._of_chip(operations)
        if of_chip.all():
            return of_chip
        return of_chip | self.find_shared().under_cap(operations.derived(measured_operations), self.gpu)

    def _host_s(self, operations: OperationList) -> FloatArray:
        """Seconds of launching each operation in a loop: as measured on this GPU, otherwise as on others."""
        measured_s = np.full(len(operations), np.nan) if self.chip is None else self.chip.host_s(operations)
        if not np.isnan(measured_s).any():
            return measured_s
        return np.where(np.isnan(measured_s), self.find_shared().host_s(operations, self.mode), measured_s)

    def _static_power_w(self, clock_mhz: Any) -> Any:
        return static_power_w(self.gpu, clock_mhz) if self.chip is None else self.chip.static_power_w(clock_mhz)

    def _known(self, whole: OperationList) -> Known | None:
        """What the chip's loops say of whole operations of both modes; None where none were measured."""
        found: Known | None = None
        for part in self.chips.values():
            mine = part.known(whole)
            found = mine if found is None else found.joined(mine)
        return found

    def work(self, operations: Sequence[Operation], *, capped: bool = False) -> Work:
        """Work of covered operations at the default clock; see clock.py and `ResidualModel.factors`.

        Some operations limit others (variants.py). Where loops in training were measured on the chip, but none in
        inference, what limits them is known less well than they are, and does not.
        """
        listed, masked, trained, multiples = OperationList.of(operations).derived(with_limits)
        work = self._work(listed, capped)
        if self.chip is not None and "inference" not in self.chips and len(trained):
            multiples = np.where(self.chip.covered(listed)[trained], 0.0, multiples)
        work = work.limited(trained, multiples) if len(trained) else work
        return work.limited(masked, at_most=True) if len(masked) else work

    def _work(self, operations: OperationList, capped: bool) -> Work:
        whole = operations.derived(measured_operations)
        known = self._known(whole)
        if known is not None and known.covered.all():
            work = known.work
        elif known is None or not known.covered.any():
            work = self.find_shared().work(whole, self.gpu, capped)
        else:
            others = whole.some(~known.covered)
            work = known.work.merge(self.find_shared().work(others, self.gpu, capped).scatter(~known.covered))
        if whole is operations:
            return work
        share = operations.derived(measured_shares)
        return work.scaled_by(share, share)

    def _ranges(self, operations: OperationList, cap_w: float) -> dict[str, Any]:
        """What is known of errors, and of the watts that the board can draw; nothing of several GPUs at once."""
        if isinstance(self.gpu, Boards):
            return {}
        return {"spread": self._spread(operations), "power_range_w": power_range_w(self.gpu, cap_w)}

    def _spread(self, operations: OperationList) -> OperationSpread | None:
        """Errors on operations that the chip's loops were left out for; of others, on chips that were left out."""
        others = ~self._of_chip(operations)
        shared = self.find_shared().spread(operations, self.gpu) if others.any() else None
        if self.chip is None or self.chip.calibration is None:
            return shared
        fallback = None if shared is None else (shared, others)
        return OperationSpread(self.chip.calibration, self.chip.measured, float(self.gpu.boost_clock_mhz), fallback)

    def in_network(self, predictions: OperationPredictions) -> OperationPredictions:
        """Correct operations by what is known of networks, for any network that they are parts of."""
        operations, found = OperationList.of(predictions.operations), predictions
        of_chip = self._of_chip(operations)
        if self.chip is not None:
            # Operations in TF32 are quicker than in their loops, and the board draws more (docs/how-it-works.md).
            more = self.chip.network_static_w / self.chip.baseline.static_power_w  # At any clock, as static power.
            quicker = np.where(predictions.in_tf32 & of_chip, self.chip.network_tf32_factor, 1.0)
            static_w = predictions.static_power_w * (1 + more)
            found = replace(predictions.times(quicker, quicker), static_power_w=static_w)
        others = ~of_chip & np.array([source != "missing" for source in predictions.source], dtype=bool)
        return self.find_shared().in_network(found, others, self.gpu) if others.any() else found

    def remarks(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """Warnings, one sentence each: the measurements behind what was not measured on the chip."""
        listed = OperationList.of(operations)
        others = ~self._of_chip(listed)
        if not others.any():
            return ()
        return self.find_shared().remarks(listed.some(others), self.gpu)

    def not_of_chip(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """Kinds and precisions among operations that were not measured on a GPU on which others were; else none."""
        return () if self.chip is None else _not_of_chip(OperationList.of(operations), self.chip)

    def regressor_inputs(self, operation: Operation) -> NDArray[np.float32] | None:
        """What the regressors of the chip see of an operation, shape (1, inputs); None where its loops do not count."""
        return None if self.chip is None else self.chip.inputs(operation)


@cached
def _not_of_chip(operations: OperationList, chip: ChipPart) -> tuple[str, ...]:
    # Kind and precision decide, and thousands of operations have a few dozen pairs of these.
    some = {(operation.kind, operation.precision): operation for operation in operations}.values()
    return tuple(dict.fromkeys(group_of(each, chip.gpu) for each in some if chip.group(each) is None))
