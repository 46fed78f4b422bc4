"""What was learned of a family: how far measured device times are from what physics expects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import ZooError, unknown_name
from ...hardware import GPU
from ...operations.operation_list import OperationList
from ..batches import in_batches
from ..contract import Regressor
from ..formats.numbers import number
from .attention import ATTENTION
from .family import Description, Family

FAMILIES: Mapping[str, Family] = {family.name: family for family in (ATTENTION,)}
"""Name -> a family with physics and trees of its own. No operation belongs to two."""

# How far log ratios are trusted on chips that were not measured: with each chip left out, 0.3 to 0.5 were closest and
# 1 was worse than none at all. Kernels differ more between generations than what sizes do to one of them.
_SHRINKAGE = 0.4

Range = tuple[float, float]


@dataclass(frozen=True)
class LearnedFamily:
    """A family with its trees.

    Args:
        family: Which operations, and how they are described.
        time: Predicts the log ratio of device time to what physics expects, on chips that were measured.
        unseen_chips: The same on all others, from inputs that say nothing about the GPU alone.
        measured: Chips, and the precisions that the family was measured in there.
        log_range: Lowest and highest log ratio that was seen, without the most extreme hundredth.
    """

    family: Family
    time: Regressor
    unseen_chips: Regressor
    measured: Mapping[str, frozenset[str]]
    log_range: Range

    def device_s(self, operations: OperationList, gpu: GPU) -> FloatArray:
        """Device times at the default clock, in a burst that the power cap does not slow down.

        Args:
            operations: Which the family covers.
            gpu: Where; it has their precisions.
        """
        known = operations.derived(_known)
        if (self.family.name, gpu) not in known:
            known[self.family.name, gpu] = self._device_s(operations, gpu)
        return known[self.family.name, gpu]

    def applied(self, operations: OperationList, gpu: GPU, device_s: FloatArray) -> FloatArray:
        """Device times with those of the family put in the place of what was assumed of them."""
        covered = self.family.covers(operations)
        if not covered.any():
            return device_s
        mine = operations if covered.all() else OperationList(compress(operations, covered))
        put = device_s.copy()
        put[covered] = self.device_s(mine, gpu)
        return put

    def answers_from_measurements(self, operations: OperationList, gpu: GPU) -> NDArray[np.bool_]:
        """Whether the family was measured on the chip in the precision of each operation."""
        precisions = self.measured.get(gpu.chip, frozenset())
        return np.array([operation.precision in precisions for operation in operations], dtype=bool)

    def _device_s(self, operations: OperationList, gpu: GPU) -> FloatArray:
        described = self.family.describe(operations, gpu)
        own = self.answers_from_measurements(operations, gpu)
        log_ratio = np.empty(len(operations))
        if own.any():
            log_ratio[own] = _asked(self.time, described, own)
        if not own.all():
            shared = replace_inputs(described, self.family.shared_columns)
            log_ratio[~own] = _SHRINKAGE * _asked(self.unseen_chips, shared, ~own)
        found: FloatArray = described.expected_s * np.exp(np.clip(log_ratio, *self.log_range))
        return found

    def to_json(self) -> dict[str, Any]:
        """Everything but the regressors."""
        return {
            "inputs": list(self.family.inputs),
            "measured": {chip: sorted(precisions) for chip, precisions in sorted(self.measured.items())},
            "log_range": list(self.log_range),
        }

    @classmethod
    def from_json(cls, name: str, value: Mapping[str, Any], time: Regressor, unseen_chips: Regressor) -> Self:
        """Read what `to_json` wrote.

        Raises:
            UnknownNameError: There is no such family.
            ZooError: It was trained on other inputs.
            KeyError, TypeError, ValueError: It is something else.
        """
        family = family_named(name)
        if value["inputs"] != list(family.inputs):
            raise ZooError("this zoo entry was trained on other features", given=name, hint="train it again")
        low, high = value["log_range"]
        measured = {str(chip): frozenset(map(str, of)) for chip, of in value["measured"].items()}
        return cls(family, time, unseen_chips, measured, (number(low), number(high)))


def family_named(name: str) -> Family:
    """The family of a name.

    Raises:
        UnknownNameError: There is none.
    """
    if name not in FAMILIES:
        raise unknown_name("family of operations", name, FAMILIES)
    return FAMILIES[name]


def replace_inputs(described: Description, columns: list[int]) -> Description:
    """The same with some of the inputs only."""
    return described._replace(inputs=np.ascontiguousarray(described.inputs[:, columns]))


def _asked(regressor: Regressor, described: Description, mask: NDArray[np.bool_]) -> FloatArray:
    rows = described.inputs[mask]
    alone: Callable[[NDArray[np.float32]], tuple[FloatArray]] = lambda some: (regressor(some),)
    (found,) = in_batches(alone, rows, [described.expected_s[mask]])
    return found


def _known(operations: OperationList) -> dict[tuple[str, GPU], FloatArray]:
    return {}
