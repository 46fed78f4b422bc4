"""BoostedResidual: a residual model of boosted trees and a perceptron that was learned over many GPUs.

It predicts the log ratio of device time to the time that follows from physics (least_times.py) and from the tiles of
libraries (library.py). Its features are relative to each GPU (relative.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import compress
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import damaged_entry
from ...hardware import GPU, find_gpu
from ...operations.kinds import KINDS
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..batches import in_batches
from ..contract import Files, Regressor, host_times
from ..formats.numbers import number, numbers, require_features
from ..physics.baseline import STAND_INS
from ..physics.energy import EnergyConstants
from ..physics.fp32_kernels import counted_ratio
from ..physics.half_precision import HalfPrecision, seen_as
from ..physics.library import expected_ratio, on_fp32_pipes
from ..physics.operation_numbers import KIND_PLACES, numbers_of
from ..physics.operation_rows import OperationRows
from ..physics.relative import RELATIVE_NAMES, relative_features
from ..regressors.perceptron import Perceptron
from ..regressors.trees import stored_trees

_FIGURES = ("sms", "memory_bandwidth", "power_limit_w", "boost_clock_mhz")  # Of similar boards with the same chip.
Range = tuple[float, float]
LogRatios = Callable[[NDArray[np.float32]], FloatArray]
"""Maps the features of operations to their log ratios."""

_NAME = "boosting"  # Name in recipes and files.
_PERCEPTRON = "perceptron"
_UNSEEN = "unseen-chips"
_GPUS = 128  # GPUs whose log ratios are stored.

# Shrinkage: weight of the predicted log ratio on a chip that was not measured; the typical log ratio of the kind has
# the rest. Part of what is learned holds for the measured chips only. With each of NeuSight's five chips left out,
# weights of 0.5 to 0.8 gave smaller errors than 1, and about the same errors as each other.
_SHRINKAGE = 0.75
# Weight of the time that is counted from what kernels do, where they are known, on a chip that was not measured; the
# shrunk prediction has the rest, in the mean of logarithms. With each of seven chips left out, also of the fit of the
# counts' constants, weights of 0.5 and 0.75 gave equal errors, and 0 and 1 larger ones.
_COUNTED = 0.6
# Features that are not zero for operations on tensor cores. Only 227 convolutions of these were measured. Trees stay
# within the measured values, but a perceptron extrapolates, and its times of networks in half precision were too long.
_NO_PLAIN_FP32 = [RELATIVE_NAMES.index(name) for name in ("tensor_cores", "half_precision")]


@dataclass(frozen=True)
class BoostedResidual:
    """A residual model of boosted trees and a perceptron, learned over all measured GPUs.

    Args:
        time: Predicts the log ratio of device time to physics with the tiles of libraries, on measured chips.
        unseen_chips: Predicts the same ratio on all other chips. It was trained on equally many rows of every kind and
            GPU and follows none of them closely, so it is worse on measured chips and better on others.
        chips: The chips that were measured.
        ranges: Kind or family -> lowest and highest log ratio in training. Predictions are clipped to this range,
            because trees may be wrong on sizes that were never measured.
        energy: Energy constants: joules per FLOP and per byte, and watts of a busy multiprocessor.
        host_s: Mode -> kind -> seconds that launching it takes; "" stands for the kinds that are not listed.
        half: Factors of half precision, from measured networks; None where operations in half precision were measured.
        perceptron: Predicts the same ratio for operations on fp32 pipes; None for trees alone.
        share: Weight of the perceptron in the mean of both.
        typical: Kind or family -> its typical log ratio on fp32 pipes, towards which predictions are shrunk.
        gpus: Names of the measured GPUs. What kernels leave of physics belongs to a chip rather than to a board, so
            another board with a measured chip gets the ratio of the measured one. Its bandwidth, clocks and cap count
            in physics alone: if all of them are better, it is not slower.
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
    gpus: frozenset[str] = frozenset()

    def to_dict(self) -> dict[str, Any]:
        """Everything but the regressors."""
        return {
            "inputs": list(RELATIVE_NAMES),
            "chips": sorted(self.chips),
            "ranges": {name: list(values) for name, values in self.ranges.items()},
            "energy": self.energy.to_dict(),
            "host_s": {mode: dict(kinds) for mode, kinds in self.host_s.items()},
            "half": None if self.half is None else self.half.to_dict(),
            "share": self.share,
            "usual": dict(self.typical),
            "gpus": sorted(self.gpus),
        }

    @classmethod
    def from_dict(
        cls, value: Mapping[str, Any], time: Regressor, unseen_chips: Regressor, perceptron: Regressor | None = None
    ) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            KeyError, TypeError, ValueError: It is something else.
        """
        share = number(value.get("share", 0.0))  # Entries without a perceptron may lack it.
        if not 0 <= share <= 1 or (share > 0) is not (perceptron is not None):
            raise ValueError(f"the share of the perceptron is {share}; it must be 0 without one, and up to 1 with one")
        return cls(
            time=time,
            unseen_chips=unseen_chips,
            chips=frozenset(str(chip) for chip in value["chips"]),
            ranges={name: (number(low), number(high)) for name, (low, high) in value["ranges"].items()},
            energy=EnergyConstants.from_dict(value["energy"]),
            host_s=host_times(value["host_s"]),
            half=None if value["half"] is None else HalfPrecision.from_dict(value["half"]),
            perceptron=perceptron,
            share=share,
            typical=numbers(value.get("usual", {})),
            gpus=frozenset(str(name) for name in value.get("gpus", ())),
        )

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """See `ResidualModel.to_files`."""
        files = self.time.to_files("time") | self.unseen_chips.to_files(_UNSEEN)
        if self.perceptron is not None:
            files |= self.perceptron.to_files(_PERCEPTRON)
        return {"predictor": _NAME, **self.to_dict()}, files

    @classmethod
    def from_files(cls, facts: Mapping[str, Any], files: Files) -> Self:
        """Read what `to_files` wrote.

        Raises:
            ZooError, KeyError, TypeError, ValueError: It is something else.
        """
        require_features(facts["inputs"], RELATIVE_NAMES, _NAME)
        time, unseen_chips = (stored_trees(files, name, len(RELATIVE_NAMES)) for name in ("time", _UNSEEN))
        perceptron = Perceptron.from_files(files, _PERCEPTRON)
        if perceptron is not None and perceptron.columns != len(RELATIVE_NAMES):
            raise damaged_entry(
                "a stored perceptron has another number of inputs than there are features",
                perceptron.columns,
                len(RELATIVE_NAMES),
            )
        return cls.from_dict(facts, time, unseen_chips, perceptron)

    @property
    def parts(self) -> dict[str, object]:
        """The parts that have learning curves; see `curves_of`."""
        return {"time": self.time, _UNSEEN: self.unseen_chips}

    def ratio(self, operations: Sequence[Operation], gpu: GPU, capped: bool = True) -> FloatArray:
        """Device time over least time, one value per operation; see `ResidualModel.factors`."""
        listed = OperationList.of(operations)
        lowest, highest, typical = self._by_kind[:, numbers_of(listed).kind.astype(int)]
        log_ratio = self._known_log_ratios(listed, [gpu])[gpu]
        if gpu.chip not in self.chips:
            drawn = typical + _SHRINKAGE * (log_ratio - typical)
            log_ratio = np.where(on_fp32_pipes(seen_as(listed, gpu), gpu) & np.isfinite(typical), drawn, log_ratio)
        ratio = np.exp(np.clip(log_ratio, lowest, highest)) * expected_ratio(listed, gpu, capped)
        if gpu.chip not in self.chips:
            counted = counted_ratio(listed, gpu, capped)
            ratio = np.where(np.isnan(counted), ratio, ratio ** (1 - _COUNTED) * counted**_COUNTED)
        return ratio if self.half is None else self.half.applied(listed, gpu, ratio)

    def prefetch(self, operations: OperationList, gpus: Iterable[GPU]) -> None:
        """See `ResidualModel.prefetch`. It is quick, as paths through the trees are alike on all GPUs."""
        self._known_log_ratios(operations, gpus)

    def _known_log_ratios(self, operations: OperationList, gpus: Iterable[GPU]) -> dict[GPU, FloatArray]:
        """GPU -> log ratio of each operation; those that are new are computed together and stored."""
        known = {gpu: self._log_ratios(gpu).known(operations)[:, 0] for gpu in gpus}
        asked: dict[tuple[LogRatios, bytes], tuple[NDArray[np.bool_], list[GPU]]] = {}
        for gpu, log_ratios in known.items():
            is_new = np.isnan(log_ratios)
            if is_new.any():
                asked.setdefault((self._regressor(gpu), is_new.tobytes()), (is_new, []))[1].append(gpu)
        for (regressor, _), (is_new, some) in asked.items():
            new = operations if is_new.all() else OperationList(compress(operations, is_new))
            seen = [relative_features(seen_as(new, gpu), self._measured_like(gpu)) for gpu in some]
            rows = np.concatenate(seen).astype(np.float32)
            alike = [numbers_of(new).kind, np.arange(len(new))]
            (logs,) = in_batches(_alone(regressor), rows, [np.tile(each, len(some)) for each in alike])
            for gpu, log_ratios in zip(some, logs.reshape(len(some), -1), strict=True):
                known[gpu][is_new] = log_ratios
                self._log_ratios(gpu).store(new, log_ratios[:, None])
        return known

    def _measured_like(self, gpu: GPU) -> GPU:
        """The measured board with the chip of a GPU that is most similar to it; the GPU itself if there is none."""

        def distance(other: GPU) -> float:
            return sum(abs(math.log(getattr(other, name) / getattr(gpu, name))) for name in _FIGURES)

        return min((other for other in self._measured if other.chip == gpu.chip), key=distance, default=gpu)

    @cached_property
    def _measured(self) -> list[GPU]:
        return [find_gpu(name) for name in sorted(self.gpus)]

    @cached_property
    def _log_ratios(self) -> Callable[[GPU], OperationRows]:
        """GPU -> the log ratio of each operation that was predicted on it, as the regressor for this GPU gives it."""
        return lru_cache(_GPUS)(lambda gpu: OperationRows(1))

    def _regressor(self, gpu: GPU) -> LogRatios:
        """The regressor for a GPU: that for measured chips or that for unseen chips, always the same object."""
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
            # Predictions of trees for a family that was never measured are arbitrary, so they are clipped to the range
            # of a similar kind (`STAND_INS`).
            known = (self.ranges.get(name) for name in (kind, family, *STAND_INS[family]))
            lowest, highest = next((each for each in known if each), (-np.inf, np.inf))
            found[:, place] = lowest, highest, self.typical.get(kind, self.typical.get(family, np.nan))
        return found

    def factors(
        self, operations: Sequence[Operation], gpu: GPU, *, capped: bool = True
    ) -> tuple[FloatArray, FloatArray]:
        """See `ResidualModel.factors`; energies are those of physics, so their factor is 1."""
        return self.ratio(operations, gpu, capped), np.ones(len(operations))

    @property
    def same_in_all_networks(self) -> bool:
        """See `ResidualModel.same_in_all_networks`."""
        return True

    def in_network(self, operations: Sequence[Operation], counts: FloatArray, gpu: GPU) -> tuple[float, float]:
        """See `ResidualModel.in_network`; operations cost the same in a network, so both factors are 1."""
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
