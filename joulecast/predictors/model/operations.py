"""LearnedOperations: what trees learned over many GPUs of the ratio of measured operations to physics.

    ln t = ln physics(work) + what was learned of this chip, or trust x what holds on all GPUs

Physics is the least time (least_times.py) times what is counted of fp32 kernels (fp32_kernels.py). The features that
trees see are relative to each GPU (relative.py), so one set of trees serves chips that were measured and all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU, Boards, each_of, per_gpu
from ...operations.kinds import KINDS
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..contract import Files, Regressor, host_times
from ..formats.numbers import require_features
from ..physics.energy import EnergyConstants
from ..physics.fp32_kernels import device_ratio, is_counted_product
from ..physics.operation_numbers import KIND_PLACES, numbers_of
from ..physics.pytorch_kernels import is_own_depthwise
from ..physics.relative import RELATIVE_NAMES, relative_features
from ..physics.variants import seen_as
from ..regressors.trees import stored_trees
from .basis import boards_of, stands_for

# Trust: weight of the trees' log ratio on a chip that was not measured, by family, in training and in inference. Of
# other families, and of depthwise convolutions, physics alone is at least as good with any chip left out: their kernels
# are counted, or they wait for the memory. In inference, 0.25 is a compromise for convolutions: with A100, V100, T4, P4
# and P100 left out, random sizes ask for 0.25 to 1, those of networks on A30 and RTX 2080 Ti for 0, and timm's networks
# that may be looked at (benchmarks/public) for 0 as well. Of a backward nothing is counted but products, so what was
# learned of training counts in full.
_TRUST: Mapping[str, tuple[float, float]] = {
    "convolution": (1.0, 0.25),
    "normalization": (1.0, 0.5),
    "softmax": (1.0, 0.5),
}
_NONE = (0.0, 0.0)
_NOTHING = np.zeros(len(KIND_PLACES), dtype=bool)  # Which kinds were measured on a chip of which nothing was.


@dataclass(frozen=True)
class LearnedOperations:
    """A residual model of operations as frameworks call them, learned over all measured GPUs.

    Args:
        learner: Name of the recipe that fitted the trees.
        log_ratio: Predicts the log ratio of device time to physics.
        chips: Measured chip -> kinds that were measured on it, in either mode.
        energy: Energy constants: joules per FLOP and per byte, and watts of a busy multiprocessor.
        host_s: Mode -> kind -> seconds that launching it takes; "" stands for the kinds that are not listed.
        gpus: Names of the measured GPUs. What kernels leave of physics belongs to a chip rather than to a board, so
            all boards with a chip get the ratio of one of them (`stands_for`). Their bandwidth, clocks and cap
            count in physics alone: if all of them are better, a board is not slower.
    """

    learner: str
    log_ratio: Regressor
    chips: Mapping[str, frozenset[str]]
    energy: EnergyConstants
    host_s: Mapping[str, Mapping[str, float]]
    gpus: frozenset[str] = frozenset()

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """See `ResidualModel.to_files`."""
        facts = {
            "predictor": self.learner,
            "inputs": list(RELATIVE_NAMES),
            "chips": {chip: sorted(kinds) for chip, kinds in sorted(self.chips.items())},
            "energy": self.energy.to_dict(),
            "host_s": {mode: dict(kinds) for mode, kinds in self.host_s.items()},
            "gpus": sorted(self.gpus),
        }
        return facts, self.log_ratio.to_files("time")

    @classmethod
    def from_files(cls, facts: Mapping[str, Any], files: Files) -> Self:
        """Read what `to_files` wrote.

        Raises:
            ZooError, KeyError, TypeError, ValueError: It is something else.
        """
        require_features(facts["inputs"], RELATIVE_NAMES, facts["predictor"])
        return cls(
            learner=facts["predictor"],
            log_ratio=stored_trees(files, "time", len(RELATIVE_NAMES)),
            chips={str(chip): frozenset(map(str, kinds)) for chip, kinds in facts["chips"].items()},
            energy=EnergyConstants.from_dict(facts["energy"]),
            host_s=host_times(facts["host_s"]),
            gpus=frozenset(str(name) for name in facts["gpus"]),
        )

    def factors(self, operations: Sequence[Operation], gpu: GPU, *, capped: bool = True) -> FloatArray:
        """See `ResidualModel.factors`."""
        listed = OperationList.of(operations)
        seen = seen_as(listed, gpu)
        n = numbers_of(seen)
        in_training, in_inference = self._trust[:, n.kind.astype(int)]
        trust = np.where(is_own_depthwise(n), 0.0, np.where(n.is_training > 0, in_training, in_inference))
        measured = self._is_measured(n.kind, gpu)
        trust = np.where(measured, 1.0, trust)
        # Where trees are not trusted they are not asked.
        logs, trusted = np.zeros(trust.shape), np.any(trust, axis=tuple(range(trust.ndim - 1)))
        if trusted.any():
            logs[..., trusted] = self._log_ratios(seen.some(trusted), gpu)
        return device_ratio(listed, gpu, np.exp(trust * logs), measured & capped)

    def under_cap(self, operations: OperationList, gpu: GPU) -> NDArray[np.bool_]:
        """See `ResidualModel.under_cap`: what is counted of products on other chips holds without a cap."""
        n = numbers_of(operations)
        found: NDArray[np.bool_] = self._is_measured(n.kind, gpu) | ~is_counted_product(n)
        return found

    def _is_measured(self, kinds: FloatArray, gpu: GPU) -> NDArray[np.bool_]:
        """Whether operations of these kinds were measured on a GPU's chip, shape (..., operations)."""
        of_chip = per_gpu(lambda each: self._measured.get(each.chip, _NOTHING))(gpu)
        return of_chip[..., kinds.astype(int)]

    def _log_ratios(self, seen: OperationList, gpu: GPU) -> FloatArray:
        """What trees say of operations on the boards that stand for GPUs, shape (..., operations)."""
        stand = [stands_for(each, boards_of(self.gpus)) for each in each_of(gpu)]
        boards = [*dict.fromkeys(stand)]
        rows = relative_features(seen, Boards.of(tuple(boards)))
        logs = self.log_ratio(rows.reshape(-1, rows.shape[-1]).astype(np.float32)).reshape(len(boards), -1)
        logs = logs[[boards.index(each) for each in stand]]
        return logs if isinstance(gpu, Boards) else logs[0]

    @cached_property
    def _measured(self) -> dict[str, NDArray[np.bool_]]:
        """Chip -> whether each kind was measured on it, shape (kinds,)."""
        return {chip: np.array([kind in kinds for kind in KIND_PLACES]) for chip, kinds in self.chips.items()}

    @cached_property
    def _trust(self) -> FloatArray:
        """Trust in the trees for every kind, in training and in inference, shape (2, kinds).

        What similar operations took says nothing of a family that was never measured: its physics alone counts.
        """
        measured = {KINDS[kind].family for kinds in self.chips.values() for kind in kinds}
        families = (KINDS[kind].family for kind in KIND_PLACES)
        return np.array([_TRUST.get(family, _NONE) if family in measured else _NONE for family in families]).T
