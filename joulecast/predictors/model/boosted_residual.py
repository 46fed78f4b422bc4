"""BoostedResidual: what boosted trees and a perceptron learned over many GPUs of the ratio of measurements to physics.

    ln t = ln physics(work) + what trees learned of this chip, or trust x a perceptron over all GPUs

Physics is the least time (least_times.py) times what is counted of fp32 kernels (fp32_kernels.py). Trees repeat what
they saw, so they predict chips that were measured. The perceptron is smooth, and errs less on others. Its features are
relative to each GPU (relative.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import compress
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import damaged_entry
from ...hardware import GPU
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
from ..physics.least_times import LeastTimes
from ..physics.operation_numbers import KIND_PLACES, PRODUCTS, numbers_of
from ..physics.operation_rows import OperationRows
from ..physics.relative import RELATIVE_NAMES, relative_features
from ..physics.roofline import on_tensor_cores
from ..regressors.perceptron import Perceptron
from ..regressors.trees import stored_trees
from .basis import boards_of, stands_for

Range = tuple[float, float]
LogRatios = Callable[[NDArray[np.float32]], FloatArray]
"""Maps the features of operations to their log ratios."""

_NAME = "boosting"  # Name in recipes and files.
_PERCEPTRON = "perceptron"
_GPUS = 128  # GPUs whose log ratios are stored.

# Trust: weight of the perceptron's log ratio on a chip that was not measured, chosen with V100, T4 and RTX 2080 Ti left
# out one by one. It is as good on P100, P4, A100 and A30, whose mean errors with weights of 0, 0.25, 0.5, 0.75 and 1
# are 11.1, 11.5, 12.9, 15.0, 17.8 % for counted products, 4.4, 4.4, 4.6, 5.1, 5.8 % for point-wise kernels, 13.3, 12.7,
# 12.4, 12.5, 13.0 % for softmax, 15.1, 14.0, 13.8, 14.5, 16.1 % for norms, and 28.9, 26.1, 24.6, 25.6, 29.9 % for
# convolutions. Of a backward nothing is counted but products, so what was learned of training counts in full.
_TRUST = tuple({"matmul": 0.0, "elementwise": 0.25, "": other} for other in (1.0, 0.5))  # In training, in inference.

# The same for convolutions on tensor cores in inference, of which only loops on an A30 were measured. In networks all
# are quicker than in such loops; the cause is not known. With a weight of 1, ResNet-101 in TF32 is 15 to 50 % too slow
# on an A100 left out, and 7 to 24 % on an A10; with 0.5, -3 to 15 % and 5 to 10 % (the model card). It was chosen on
# these. On timm's networks, on which it was not, the bias of convolutional ones goes from 8 to 7 % (held back it stays
# at 1 %). Training needs none.
_TRUST_OF_LOOPS = 0.5

# Kernels of softmax and layer norm whose rows are counted, and the shortest that any source shows, in seconds: below 23
# (softmax, A100) to 41 us (P100), NeuSight's calls waited for the host. What was learned fades out from there.
_IN_ROWS, _SHOWN_S = (KIND_PLACES["softmax"], KIND_PLACES["layer_norm"]), 25e-6


@dataclass(frozen=True)
class BoostedResidual:
    """A residual model of boosted trees and a perceptron, learned over all measured GPUs.

    Args:
        time: Predicts the log ratio of device time to physics for kinds that were measured on a chip; and on tensor
            cores of all chips. Only 227 convolutions of these were measured. Trees stay within the measured
            values, but a perceptron extrapolates, and its times of networks in half precision were too long.
        perceptron: Predicts the same ratio of other kinds and on other chips.
        chips: Measured chip -> kinds that were measured on it, in either mode.
        ranges: Kind or family -> lowest and highest log ratio in training. Predictions are clipped to this range,
            because trees may be wrong on sizes that were never measured.
        energy: Energy constants: joules per FLOP and per byte, and watts of a busy multiprocessor.
        host_s: Mode -> kind -> seconds that launching it takes; "" stands for the kinds that are not listed.
        typical: Kind and mode -> log ratio to the least time on a typical GPU, for kinds whose kernels are not counted.
        half: Factors of half precision, from measured networks; None where operations in half precision were measured.
        gpus: Names of the measured GPUs. What kernels leave of physics belongs to a chip rather than to a board, so
            all boards with a chip get the ratio of one of them (`stands_for`). Their bandwidth, clocks and cap
            count in physics alone: if all of them are better, a board is not slower.
    """

    time: Regressor
    perceptron: Regressor
    chips: Mapping[str, frozenset[str]]
    ranges: Mapping[str, Range]
    energy: EnergyConstants
    host_s: Mapping[str, Mapping[str, float]]
    typical: Mapping[str, float]
    half: HalfPrecision | None = None
    gpus: frozenset[str] = frozenset()

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """See `ResidualModel.to_files`."""
        facts = {
            "predictor": _NAME,
            "inputs": list(RELATIVE_NAMES),
            "chips": {chip: sorted(kinds) for chip, kinds in sorted(self.chips.items())},
            "ranges": {name: list(values) for name, values in self.ranges.items()},
            "energy": self.energy.to_dict(),
            "host_s": {mode: dict(kinds) for mode, kinds in self.host_s.items()},
            "typical": dict(self.typical),
            "half": None if self.half is None else self.half.to_dict(),
            "gpus": sorted(self.gpus),
        }
        return facts, self.time.to_files("time") | self.perceptron.to_files(_PERCEPTRON)

    @classmethod
    def from_files(cls, facts: Mapping[str, Any], files: Files) -> Self:
        """Read what `to_files` wrote.

        Raises:
            ZooError, KeyError, TypeError, ValueError: It is something else.
        """
        require_features(facts["inputs"], RELATIVE_NAMES, _NAME)
        perceptron = Perceptron.from_files(files, _PERCEPTRON)
        columns = None if perceptron is None else perceptron.columns
        if perceptron is None or columns != len(RELATIVE_NAMES):
            reason = "a stored perceptron is missing, or has another number of inputs than there are features"
            raise damaged_entry(reason, columns, len(RELATIVE_NAMES))
        return cls(
            time=stored_trees(files, "time", len(RELATIVE_NAMES)),
            perceptron=perceptron,
            chips={str(chip): frozenset(map(str, kinds)) for chip, kinds in facts["chips"].items()},
            ranges={name: (number(low), number(high)) for name, (low, high) in facts["ranges"].items()},
            energy=EnergyConstants.from_dict(facts["energy"]),
            host_s=host_times(facts["host_s"]),
            typical=numbers(facts["typical"]),
            half=None if facts["half"] is None else HalfPrecision.from_dict(facts["half"]),
            gpus=frozenset(str(name) for name in facts["gpus"]),
        )

    @property
    def parts(self) -> dict[str, object]:
        """The parts that have learning curves; see `curves_of`."""
        return {"time": self.time}

    def ratio(self, operations: Sequence[Operation], gpu: GPU, capped: bool = True) -> FloatArray:
        """Device time over least time, one value per operation; see `ResidualModel.factors`."""
        listed = OperationList.of(operations)
        seen = seen_as(listed, gpu)
        n = numbers_of(seen)
        training = n.is_training > 0
        lowest, highest, *by_mode = self._by_kind[:, n.kind.astype(int)]
        trust, typical = (np.where(training, *by_mode[place : place + 2]) for place in (0, 2))
        log_ratio = self._known_log_ratios(listed, [gpu])[gpu]
        trust = np.where(self._by_trees(seen, gpu), 1.0, trust)
        trust[(n.is_convolution > 0) & on_tensor_cores(n, gpu) & ~training] = _TRUST_OF_LOOPS
        log_ratio = np.clip(trust * log_ratio, lowest, highest)
        # Rows in half precision take as many steps as in fp32, for fewer bytes.
        counted = np.where(n.is_product > 0, *(counted_ratio(each, gpu, capped) for each in (seen, listed)))
        rows_s = LeastTimes.of(listed, gpu, float(gpu.boost_clock_mhz)).time_s * counted
        log_ratio = log_ratio * np.where(np.isin(n.kind, _IN_ROWS) & ~training, np.minimum(rows_s / _SHOWN_S, 1.0), 1.0)
        ratio = np.exp(log_ratio + typical) * counted
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
            by_trees = self._by_trees(seen_as(operations, gpu), gpu) if is_new.any() else is_new
            asking: list[tuple[LogRatios, NDArray[np.bool_]]]
            asking = [(self.time, is_new & by_trees), (self.perceptron, is_new & ~by_trees)]
            for regressor, mine in asking:
                if mine.any():
                    asked.setdefault((regressor, mine.tobytes()), (mine, []))[1].append(gpu)
        for (regressor, _), (is_new, some) in asked.items():
            new = operations if is_new.all() else OperationList(compress(operations, is_new))
            seen = [relative_features(seen_as(new, gpu), stands_for(gpu, boards_of(self.gpus))) for gpu in some]
            rows = np.concatenate(seen).astype(np.float32)
            alike = [numbers_of(new).kind, np.arange(len(new))]
            (logs,) = in_batches(_alone(regressor), rows, [np.tile(each, len(some)) for each in alike])
            for gpu, log_ratios in zip(some, logs.reshape(len(some), -1), strict=True):
                known[gpu][is_new] = log_ratios
                self._log_ratios(gpu).store(new, log_ratios[:, None])
        return known

    @cached_property
    def _log_ratios(self) -> Callable[[GPU], OperationRows]:
        """GPU -> the log ratio of each operation that was predicted on it, as the regressor for this GPU gives it."""
        return lru_cache(_GPUS)(lambda gpu: OperationRows(1))

    def _by_trees(self, seen: OperationList, gpu: GPU) -> NDArray[np.bool_]:
        """Whether trees predict each operation: on tensor cores, and kinds that were measured on a chip."""
        n = numbers_of(seen)
        measured = self._measured[gpu.chip][n.kind.astype(int)] if gpu.chip in self.chips else False
        found: NDArray[np.bool_] = on_tensor_cores(n, gpu) | measured
        return found

    @cached_property
    def _measured(self) -> dict[str, NDArray[np.bool_]]:
        """Chip -> whether each kind was measured on it, shape (kinds,)."""
        return {chip: np.array([kind in kinds for kind in KIND_PLACES]) for chip, kinds in self.chips.items()}

    @cached_property
    def _by_kind(self) -> FloatArray:
        """Lowest and highest log ratio of every kind, and trust and typical ratio in either mode, shape (6, kinds)."""
        found = np.empty((6, len(KIND_PLACES)))
        for kind, place in KIND_PLACES.items():
            family = KINDS[kind].family
            # Predictions of trees for a family that was never measured are arbitrary, so they are clipped to the range
            # of a similar kind (`STAND_INS`).
            known = (self.ranges.get(name) for name in (kind, family, *STAND_INS[family]))
            lowest, highest = next((each for each in known if each), (-np.inf, np.inf))
            if family in PRODUCTS and self.ranges and family not in self.ranges:
                # Attention was never measured in fp32. It takes the same ratio for all sizes and masks.
                lowest = highest = (lowest + highest) / 2
            trusts = (trust.get(family, trust[""]) for trust in _TRUST)
            typical = (self.typical.get(f"{kind} {mode}", 0.0) for mode in ("training", "inference"))
            found[:, place] = lowest, highest, *trusts, *typical
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


def _alone(regressor: LogRatios) -> Callable[[NDArray[np.float32]], tuple[FloatArray]]:
    return lambda rows: (regressor(rows),)
