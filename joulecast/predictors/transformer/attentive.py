"""A residual model of physics whose corrections come from a transformer over operations (encoder.py).

The transformer predicts the log ratio of an operation's device time to that of physics, which is the least time with
what is counted of fp32 kernels (fp32_kernels.py). The input does not depend on the clock, so many clocks cost no more
than one, and the last results are cached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU, per_gpu
from ...operations.kinds import KINDS
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..contract import Curves, Files, host_times
from ..formats.numbers import number, require_features
from ..physics.cached import cached
from ..physics.energy import EnergyConstants
from ..physics.fp32_kernels import device_ratio
from ..physics.variants import seen_as
from ..recipes import TransformerRecipe, recipe_of
from .encoder import PHYSICS_NAMES, ROLES, Encoder, tokens

_WEIGHTS = "transformer.safetensors"
_LAYOUT = [*ROLES, *PHYSICS_NAMES]
_AT_ONCE = 256  # Operations that are read at once; more do not fit into the processor's caches.

_ANY = (-np.inf, np.inf)
Range = tuple[float, float]
"""Lowest and highest log ratio that was seen."""


@dataclass(frozen=True, eq=False)
class Attentive:
    """The `ResidualModel` of a transformer, which is learned from many GPUs and holds for any GPU.

    Args:
        encoder: Maps tokens of operations to log ratios.
        vocabulary: Kinds of operations that it distinguishes.
        ranges: Kind or family -> lowest and highest log ratio that was seen.
        energy: Energy constants of physics.
        host_s: Mode -> kind -> seconds to launch an operation, see `ResidualModel.host_s`.
    """

    encoder: Encoder
    vocabulary: tuple[str, ...]
    ranges: Mapping[str, Range]
    energy: EnergyConstants
    host_s: Mapping[str, Mapping[str, float]]

    def factors(self, operations: Sequence[Operation], gpu: GPU, *, capped: bool = True) -> FloatArray:
        """See `ResidualModel.factors`."""
        listed = OperationList.of(operations)
        kinds = {operation.kind for operation in listed}
        known = {kind: self.ranges.get(kind) or self.ranges.get(KINDS[kind].family, _ANY) for kind in kinds}
        lowest, highest = np.array([known[operation.kind] for operation in listed]).T
        logs = per_gpu(lambda each: _log_ratios(listed, self, each))(gpu)
        learned: FloatArray = np.exp(np.clip(logs, lowest, highest))
        return device_ratio(listed, gpu, learned, capped)

    def under_cap(self, operations: OperationList, gpu: GPU) -> NDArray[np.bool_]:
        """See `ResidualModel.under_cap`: the cap is counted on all GPUs."""
        return np.ones(len(operations), dtype=bool)

    def log_ratios(self, operations: OperationList, gpu: GPU) -> FloatArray:
        """Log ratios on a GPU, shape (operations,)."""
        read = tokens(seen_as(operations, gpu), gpu, self.vocabulary)
        parts = [slice(first, first + _AT_ONCE) for first in range(0, len(operations), _AT_ONCE)]
        each = (self.encoder(read.values[p, None], read.families[p, None], read.kinds[p, None])[:, 0] for p in parts)
        return np.concatenate([*each])

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """See `ResidualModel.to_files`."""
        facts = {
            "predictor": "transformer",
            "recipe": self.encoder.recipe.to_dict(),
            "tokens": _LAYOUT,
            "vocabulary": list(self.vocabulary),
            "ranges": {name: list(values) for name, values in self.ranges.items()},
            "energy": self.energy.to_dict(),
            "host_s": {mode: dict(kinds) for mode, kinds in self.host_s.items()},
        }
        return facts, {_WEIGHTS: self.encoder.to_bytes()}

    @classmethod
    def from_files(cls, facts: Mapping[str, Any], files: Files) -> Self:
        """Read what `to_files` wrote.

        Raises InputError, ZooError, KeyError, TypeError, ValueError: the content is not what `to_files` writes.
        """
        require_features(facts["tokens"], _LAYOUT, "transformer")
        recipe, vocabulary = recipe_of(TransformerRecipe, facts["recipe"], "transformer recipe"), facts["vocabulary"]
        if not all(isinstance(kind, str) for kind in vocabulary):
            raise TypeError("a kind of the vocabulary is not a text")
        return cls(
            Encoder.from_bytes(recipe, files[_WEIGHTS], len(vocabulary)),
            tuple(vocabulary),
            {name: (number(low), number(high)) for name, (low, high) in facts["ranges"].items()},
            EnergyConstants.from_dict(facts["energy"]),
            host_times(facts["host_s"]),
        )

    @property
    def curves(self) -> Curves:
        """Losses of each pass of the training; empty where it was read from a file."""
        return {f"transformer/{name}": losses for name, losses in self.encoder.curves.items()}


@cached
def _log_ratios(operations: OperationList, learned: Attentive, gpu: GPU) -> FloatArray:
    """See `Attentive.log_ratios`."""
    return learned.log_ratios(operations, gpu)
