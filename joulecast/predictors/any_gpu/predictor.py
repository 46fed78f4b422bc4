"""A predictor for GPUs of which nothing was measured, at any clock.

It knows a GPU by its data sheet. Physics gives the least time of an operation (least_times.py) and what libraries make
of it (library.py). The residual model is the log ratio of device time to that, learned over many GPUs from features
that are relative to each GPU (relative.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import ZooError
from ...hardware import GPU
from ...operations.kinds import KINDS
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..batches import in_batches
from ..contract import Files, Regressor, ResidualModel, SharedModel, host_times, launch_s, require_mode
from ..formats.numbers import number, numbers
from ..intervals.calibration import Calibration
from ..intervals.operation_spread import OperationSpread
from ..intervals.power_range import power_range_w
from ..kernels.learned import Kernels
from ..operation_predictions import OperationPredictions
from ..physics.baseline import STAND_INS
from ..physics.clock import Work
from ..physics.energy import EnergyConstants, static_power_w
from ..physics.half_precision import HalfPrecision, seen_as
from ..physics.least_times import LeastTimes
from ..physics.library import expected_ratio, on_fp32_pipes
from ..physics.norms import smooth_max
from ..physics.operation_numbers import KIND_PLACES, numbers_of
from ..physics.precisions import tf32_in_fp32, without_tf32
from ..physics.relative import RELATIVE_NAMES, relative_features
from ..regressors.perceptron import Perceptron
from ..regressors.serving import stored_trees

Range = tuple[float, float]
LogRatios = Callable[[NDArray[np.float32]], FloatArray]
"""Maps features of operations to the log ratio of each."""

_NAME = "boosting"  # Name in recipes and files.
_PERCEPTRON = "perceptron"

# Shrinkage: weight of the learned log ratio on a chip that was not measured; the rest is what is typical of the kind.
# Part of what is learned holds for the learned chips only. With each of NeuSight's five chips left out, weights of 0.5
# to 0.8 gave smaller errors than 1, and much the same among themselves.
_SHRINKAGE = 0.75
# Features that are not zero for operations that do not run on fp32 pipes. Only 227 convolutions of these were measured.
# Trees keep to what they showed; a perceptron extrapolates from it and predicted networks in half precision too slow.
_NO_PLAIN_FP32 = [RELATIVE_NAMES.index(name) for name in ("tensor_cores", "half_precision")]


@dataclass(frozen=True)
class BoostedResidual:
    """A residual model of boosted trees and a perceptron, learned over all measured GPUs.

    Args:
        time: Predicts the log ratio of device time to what libraries let expect (library.py), on chips that were
            measured.
        unseen_chips: Predicts the same ratio on all other chips. It was trained on equally many rows of every kind and
            GPU and follows none of them closely, so it is worse on measured chips and better on others.
        chips: The chips that were measured.
        ranges: Kind or family -> lowest and highest log ratio that was seen; predictions are clipped to it, because
            trees may go wrong on sizes that were never measured.
        energy: Energy constants: joules per FLOP and per byte, and watts of a busy multiprocessor.
        host_s: Mode -> kind -> seconds that launching it takes; "" stands for the kinds that are not listed.
        half: Factors of half precision, from measured networks; None where operations in half precision were measured.
        perceptron: Predicts the same ratio for operations on fp32 pipes; None for trees alone.
        share: Weight of the perceptron in the mean of both.
        typical: Kind or family -> its typical log ratio on fp32 pipes, towards which predictions are shrunk.
    """

    time: Regressor
    unseen_chips: Regressor
    chips: frozenset[str]
    ranges: Mapping[str, Range]
    energy: EnergyConstants
    host_s: Mapping[str, Mapping[str, float]]
    half: HalfPrecision | None = None
    perceptron: Regressor | None = None
    share: float = 0.0
    typical: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Everything but the regressors."""
        return {
            "inputs": list(RELATIVE_NAMES),
            "chips": sorted(self.chips),
            "ranges": {name: list(values) for name, values in self.ranges.items()},
            "energy": self.energy.to_json(),
            "host_s": {mode: dict(kinds) for mode, kinds in self.host_s.items()},
            "half": None if self.half is None else self.half.to_json(),
            "share": self.share,
            "usual": dict(self.typical),
        }

    @classmethod
    def from_json(
        cls, value: Mapping[str, Any], time: Regressor, unseen_chips: Regressor, perceptron: Regressor | None = None
    ) -> Self:
        """Read what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: It is something else.
        """
        share = number(value.get("share", 0.0))  # Entries of trees alone may say nothing of it.
        if not 0 <= share <= 1 or (share > 0) is not (perceptron is not None):
            raise ValueError("an impossible share of a perceptron")
        return cls(
            time=time,
            unseen_chips=unseen_chips,
            chips=frozenset(str(chip) for chip in value["chips"]),
            ranges={name: (number(low), number(high)) for name, (low, high) in value["ranges"].items()},
            energy=EnergyConstants.from_json(value["energy"]),
            host_s=host_times(value["host_s"]),
            half=None if value["half"] is None else HalfPrecision.from_json(value["half"]),
            perceptron=perceptron,
            share=share,
            typical=numbers(value.get("usual", {})),
        )

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """See `ResidualModel.to_files`."""
        files = self.time.to_files("time") | self.unseen_chips.to_files("elsewhere")
        if self.perceptron is not None:
            files |= self.perceptron.to_files(_PERCEPTRON)
        return {"predictor": _NAME, **self.to_json()}, files

    @classmethod
    def from_files(cls, facts: Mapping[str, Any], files: Files) -> Self:
        """Read what `to_files` wrote.

        Raises:
            ZooError, KeyError, TypeError, ValueError: It is something else.
        """
        if facts["inputs"] != list(RELATIVE_NAMES):
            raise ZooError("this zoo entry was trained on other features", hint="train it again")
        time, unseen_chips = (stored_trees(files, name, len(RELATIVE_NAMES)) for name in ("time", "elsewhere"))
        perceptron = Perceptron.from_files(files, _PERCEPTRON)
        if perceptron is not None and perceptron.columns != len(RELATIVE_NAMES):
            raise ZooError("a stored perceptron wants other inputs than these", given=perceptron.columns)
        return cls.from_json(facts, time, unseen_chips, perceptron)

    @property
    def parts(self) -> dict[str, object]:
        """What has learning curves of its own; see `curves_of`."""
        return {"time": self.time, "elsewhere": self.unseen_chips}

    def ratio(self, operations: Sequence[Operation], gpu: GPU, capped: bool = True) -> FloatArray:
        """Device time over least time, one value per operation; see `ResidualModel.factors`."""
        listed = OperationList.of(operations)
        lowest, highest, typical = self._by_kind[:, numbers_of(listed).kind.astype(int)]
        log_ratio = listed.derived(_prefetched).get((self._regressor(gpu), gpu))
        if log_ratio is None:
            rows = relative_features(seen_as(listed, gpu), gpu).astype(np.float32)
            (log_ratio,) = in_batches(_alone(self._regressor(gpu)), rows, [numbers_of(listed).kind])
        if gpu.chip not in self.chips:
            drawn = typical + _SHRINKAGE * (log_ratio - typical)
            log_ratio = np.where(on_fp32_pipes(seen_as(listed, gpu), gpu) & np.isfinite(typical), drawn, log_ratio)
        ratio = np.exp(np.clip(log_ratio, lowest, highest)) * expected_ratio(listed, gpu, capped)
        return ratio if self.half is None else self.half.applied(listed, gpu, ratio)

    def prefetch(self, operations: OperationList, gpus: Iterable[GPU]) -> None:
        """See `ResidualModel.prefetch`: an operation takes much the same way through trees on all GPUs."""
        found = operations.derived(_prefetched)
        by_regressor: dict[LogRatios, list[GPU]] = {}
        for gpu in gpus:
            if (self._regressor(gpu), gpu) not in found:
                by_regressor.setdefault(self._regressor(gpu), []).append(gpu)
        places = np.arange(len(operations))
        for regressor, some in by_regressor.items():
            rows = np.concatenate([relative_features(seen_as(operations, gpu), gpu).astype(np.float32) for gpu in some])
            (logs,) = in_batches(_alone(regressor), rows, [np.tile(places, len(some))])
            found.update(zip([(regressor, gpu) for gpu in some], logs.reshape(len(some), -1), strict=True))

    def _regressor(self, gpu: GPU) -> LogRatios:
        """Which of those that are kept; the same one every time."""
        measured, unseen_chips = self._regressors
        return measured if gpu.chip in self.chips else unseen_chips

    @cached_property
    def _regressors(self) -> tuple[LogRatios, LogRatios]:
        if self.perceptron is None:
            return self.time, self.unseen_chips
        return _mean(self.time, self.perceptron, self.share), _mean(self.unseen_chips, self.perceptron, self.share)

    @cached_property
    def _by_kind(self) -> FloatArray:
        """Lowest, highest and typical log ratio of every kind, shape (3, kinds)."""
        found = np.empty((3, len(KIND_PLACES)))
        for kind, place in KIND_PLACES.items():
            family = KINDS[kind].family
            # What trees say of a family that nobody measured is chance: it stays within what its stand-in showed.
            known = (self.ranges.get(name) for name in (kind, family, *STAND_INS[family]))
            lowest, highest = next((each for each in known if each), (-np.inf, np.inf))
            found[:, place] = lowest, highest, self.typical.get(kind, self.typical.get(family, np.nan))
        return found

    def factors(
        self, operations: Sequence[Operation], gpu: GPU, *, capped: bool = True
    ) -> tuple[FloatArray, FloatArray]:
        """See `ResidualModel.factors`; the trees leave energies as physics says."""
        return self.ratio(operations, gpu, capped), np.ones(len(operations))

    def in_network(self, operations: Sequence[Operation], counts: FloatArray, gpu: GPU) -> tuple[float, float]:
        """See `ResidualModel.in_network`; a network is its parts."""
        return 1.0, 1.0


def _mean(trees: LogRatios, perceptron: LogRatios, share: float) -> LogRatios:
    def mean(rows: NDArray[np.float32]) -> FloatArray:
        found = np.array(trees(rows))
        plain = (rows[:, _NO_PLAIN_FP32] == 0).all(axis=1)
        found[plain] += share * (perceptron(rows[plain]) - found[plain])
        return found

    return mean


def _alone(regressor: LogRatios) -> Callable[[NDArray[np.float32]], tuple[FloatArray]]:
    return lambda rows: (regressor(rows),)


def _prefetched(operations: OperationList) -> dict[tuple[LogRatios, GPU], FloatArray]:
    return {}


_LEAST_J = 1e-15


@dataclass(frozen=True)
class AnyGpuPredictor:
    """What was learned, on one GPU and in one mode.

    Args:
        gpu: Any GPU of the catalogue, or one that a file describes.
        mode: inference or training.
        learned: Shared by all GPUs.
        calibration: Errors on chips that were left out; None where they are not known.
        kernels: Device times of kernels that were measured by themselves, in half precision and below; for what they
            cover, they take the place of the residual model. None: there are none.
    """

    gpu: GPU
    mode: str
    learned: ResidualModel
    calibration: Calibration | None = None
    kernels: Kernels | None = None

    @property
    def coverage(self) -> tuple[str, ...]:
        """What is covered: every kind, in the precisions of the GPU that were learned."""
        kinds = tuple(f"all kinds in {precision}" for precision in self.gpu.unquantized)
        return kinds if self.kernels is None else (*kinds, *self.kernels.coverage(self.gpu))

    def predict(
        self, operations: Sequence[Operation], clock_mhz: float | None = None, power_limit_w: float | None = None
    ) -> OperationPredictions:
        """Predict operations on this GPU; see `OperationPredictor.predict`.

        Raises:
            InputError: An operation of another mode, or a clock or a cap that the GPU cannot hold.
        """
        clock, cap_w = self.gpu.checked_clock_mhz(clock_mhz), self.gpu.checked_power_limit_w(power_limit_w)
        return self._predict(operations, clock, cap_w)

    def predict_for_network(self, operations: Sequence[Operation], power_limit_w: float) -> OperationPredictions:
        """See `PredictsOperations.predict_for_network`; the cap is left out, which spares a search for each operation.

        Raises:
            InputError: An operation of another mode.
        """
        return self._predict(operations, float(self.gpu.boost_clock_mhz), np.inf)

    def _predict(self, operations: Sequence[Operation], clock: float, cap_w: float) -> OperationPredictions:
        operations = OperationList.of(operations)
        require_mode(operations, self.mode)
        # Quantized products are covered where they were measured: another precision must not stand in for them.
        has = {"tf32", *self.gpu.unquantized}
        covered = np.array([o.precision in has and not o.row.measured_only for o in operations], dtype=bool)
        if self.kernels is not None:
            covered |= ~np.isnan(self.kernels.device_s(operations, self.gpu))
        values = np.full((6, len(operations)), np.nan)
        work = None
        if covered.any():
            some = operations if covered.all() else OperationList(compress(operations, covered))
            work = self.work(some, capped=np.isfinite(cap_w))
            values[:, covered] = self._predict_covered(some, work, clock, cap_w)
            work = work.scatter(covered)
        time_s, power_w, device_s, dynamic_j, host_s, held_mhz = values
        return OperationPredictions(
            operations=operations,
            time_s=time_s,
            power_w=power_w,
            energy_j=time_s * power_w,
            device_time_s=device_s,
            dynamic_energy_j=dynamic_j,
            host_time_s=host_s,
            source=tuple("modelled" if known else "missing" for known in covered.tolist()),
            static_power_w=static_power_w(self.gpu, clock),
            held_clock_mhz=held_mhz,
            work=work,
            spread=self._spread(operations),
            power_range_w=power_range_w(self.gpu, cap_w),
        )

    def work(self, operations: Sequence[Operation], *, capped: bool = False) -> Work:
        """What operations cost at the default clock, all of them covered; see clock.py and `ResidualModel.factors`.

        TF32 is a permission: what may run in it takes the quicker of TF32 and fp32, between which cuDNN chooses. Where
        the data sheet gives TF32 no higher rate, that is fp32.
        """
        listed = OperationList.of(operations)
        places, plain = listed.derived(tf32_in_fp32)
        if plain and self.gpu.peak_flops.get("tf32", 0.0) <= self.gpu.peak_flops["fp32"]:
            return self._work(listed.derived(without_tf32), capped)
        work = self._work(listed, capped)
        if not plain:
            return work
        in_fp32 = self._work(plain, capped).scatter(places)
        quicker = places & (np.nan_to_num(in_fp32.device_s, nan=np.inf) < work.device_s)
        return work.with_others(in_fp32, quicker)

    def _work(self, operations: OperationList, capped: bool) -> Work:
        ratio, energy_ratio = self.learned.factors(operations, self.gpu, capped=capped)
        works = 1.0 - numbers_of(operations).is_identity
        clock = float(self.gpu.boost_clock_mhz)
        if self.kernels is not None:
            device_s = self.kernels.device_s(operations, self.gpu)
            least_s = LeastTimes.of(operations, self.gpu, clock).time_s
            ratio = np.where(np.isnan(device_s), ratio, device_s / least_s)
        work = Work.of(operations, self.gpu, clock, ratio * works, self.learned.energy)
        work = work.scaled_by(1.0, energy_ratio).bounded(operations)
        return work if self.kernels is None else self._with_power(work, self.kernels.demand_w(operations, self.gpu))

    def _with_power(self, work: Work, demand_w: FloatArray) -> Work:
        """The same with the power of kernels, where that was learned."""
        if np.isnan(demand_w).all():
            return work
        clock = float(self.gpu.boost_clock_mhz)
        device_s, dynamic_j = work.at(clock)
        known_j = (demand_w - static_power_w(self.gpu, clock)) * device_s
        return work.scaled_by(1.0, np.where(np.isnan(demand_w), 1.0, known_j / np.maximum(dynamic_j, _LEAST_J)))

    def _spread(self, operations: OperationList) -> OperationSpread | None:
        """Errors on chips that were left out; of kernels, errors of what their times rest on."""
        if self.calibration is None:
            return None
        fallback: tuple[OperationSpread, NDArray[np.bool_]] | None = None
        for calibration, places in () if self.kernels is None else self.kernels.calibrations(operations, self.gpu):
            others = places if fallback is None else places | fallback[1]
            fallback = OperationSpread(calibration, frozenset(), None, fallback), others
        return OperationSpread(self.calibration, frozenset(), None, fallback)

    def _predict_covered(self, operations: Sequence[Operation], work: Work, clock: float, cap_w: float) -> FloatArray:
        host_s = launch_s(operations, self.mode, self.learned.host_s)
        held_mhz = work.held_mhz(clock, cap_w, host_s)
        # The loops that were learned from ran under their caps, and too shortly to throttle as networks do: what
        # the default clock and cap let each hold counts as that clock.
        device_s, dynamic_j = work.at(held_mhz)
        if np.isfinite(cap_w):  # (no cap times no time is no number)
            default = float(self.gpu.boost_clock_mhz)
            top_mhz = np.maximum(work.held_mhz(default, self.gpu.power_limit_w, host_s), 1.0)
            device_s, _ = work.at(default * held_mhz / top_mhz)
            device_s = work.bounds.applied(device_s, default / clock)
            allowed_w = np.maximum(cap_w - static_power_w(self.gpu, held_mhz), 1.0)
            dynamic_j = np.minimum(dynamic_j, allowed_w * device_s)
        time_s = smooth_max(device_s, host_s)
        power_w = static_power_w(self.gpu, held_mhz) + dynamic_j / time_s
        return np.array([time_s, power_w, device_s, dynamic_j, host_s, held_mhz])

    def in_network(self, predictions: OperationPredictions, counts: FloatArray) -> OperationPredictions:
        """See `PredictsOperations.in_network`."""
        known = [source != "missing" for source in predictions.source]
        if not any(known):
            return predictions
        operations = [*compress(predictions.operations, known)]
        found = predictions.times(*self.learned.in_network(operations, counts[known], self.gpu))
        if self.kernels is None:
            return found
        return found.times(self.kernels.in_network(OperationList.of(predictions.operations), self.gpu), 1.0)

    def remarks(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """See `PredictsOperations.remarks`: what the device times of kernels rest on."""
        return () if self.kernels is None else self.kernels.remarks(OperationList.of(operations), self.gpu)

    def by_fallback(self, operations: Sequence[Operation]) -> tuple[str, ...]:
        """See `PredictsOperations.by_fallback`; there is no other."""
        return ()

    def regressor_inputs(self, operation: Operation) -> None:
        """See `PredictsOperations.regressor_inputs`; it has none of a GPU's own."""

    def covers(self, operation: Operation) -> bool:
        """See `PredictsOperations.covers`: every kind, in the precisions of the GPU."""
        return operation.precision in {"tf32", *self.gpu.unquantized}

    @property
    def measured_launch_s(self) -> Mapping[str, float]:
        """See `PredictsOperations.measured_launch_s`; nothing was."""
        return {}

    @property
    def shared_models(self) -> tuple[SharedModel, ...]:
        """See `PredictsOperations.shared_models`."""
        return (self.learned,) if self.kernels is None else (self.learned, self.kernels)
