"""The one model of an operation's device time: physics, what holds on all GPUs, and what a generation adds.

    ln t = ln physics(work) + trust x trees over all GPUs + trees of this generation

The trees over all GPUs are shallow, so that they learn what carries over. How far they are trusted on a generation that
was not measured is found for each group of kernels by leaving generations out. The trees of a measured generation learn
what is left there. A generation without measurements has no such trees: its part is zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from ...arrays import FloatArray
from ...errors import damaged_entry
from ...hardware import GPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ..contract import Files, Regressor, host_times
from ..formats.numbers import number, require_features
from ..kernels.basis import generation_of
from ..physics.energy import EnergyConstants
from ..physics.least_times import LeastTimes
from ..regressors.trees import stored_trees
from .features import NAMES, features, first_kernels
from .physics import CONSTANTS, WAYS, Machine, costs
from .work import GROUPS, Work

NAME = "one-model"
"""Name of the predictor in recipes and in the zoo."""

_LEAST_S = 1e-6  # No kernel takes less than a microsecond.
_SHARED = "shared"


class Terms(NamedTuple):
    """What a prediction is the product of; arrays of shape (operations,).

    Args:
        physics_s: Least seconds by physics.
        shared: Factor that holds on all GPUs.
        generation: Factor that the GPU's generation adds; 1 where it was not measured.
    """

    physics_s: FloatArray
    shared: FloatArray
    generation: FloatArray

    @property
    def device_s(self) -> FloatArray:
        """Device seconds at the default clock."""
        return np.maximum(self.physics_s * self.shared * self.generation, _LEAST_S)


@dataclass(frozen=True, eq=False)
class OneModel:
    """The one model, learned over all measured GPUs. See `ResidualModel` for what its methods give.

    Args:
        constants: Constants of physics, shape (groups, ways, constants).
        shared: Trees over all GPUs, which predict the log ratio of device time to physics.
        generations: Generation -> trees, which predict the log ratio that is left there.
        trust: Group of kernels -> weight of the shared trees on generations that were not measured, from 0 to 1.
        energy: Energy constants: joules per FLOP and per byte, and watts of a busy multiprocessor.
        host_s: Mode -> kind -> seconds that launching it takes; "" stands for the kinds that are not listed.
    """

    constants: FloatArray
    shared: Regressor
    generations: Mapping[str, Regressor]
    trust: Mapping[str, float]
    energy: EnergyConstants
    host_s: Mapping[str, Mapping[str, float]]

    def terms(self, operations: Sequence[Operation], gpu: GPU) -> Terms:
        """Device times of operations on a GPU at its default clock, as the product of what they rest on.

        Raises:
            InputError: An operation's precision does not exist on the GPU.
        """
        listed = OperationList.of(operations)
        work, machine, count = Work.of(listed), Machine.of(gpu), len(listed)
        found = costs(work, machine, self.constants)
        physics_s = np.maximum(np.bincount(work.place, found.time_s, count), _LEAST_S)
        rows = features(listed, work, found, machine)
        own = self.generations.get(generation_of(gpu))
        trust: FloatArray | float = 1.0
        if own is None:
            trust = np.array([self.trust.get(group, 0.0) for group in GROUPS])[work.group[first_kernels(work, count)]]
        shared = np.exp(trust * self.shared(rows))
        return Terms(physics_s, shared, np.ones(count) if own is None else np.exp(own(rows)))

    def factors(
        self, operations: Sequence[Operation], gpu: GPU, *, capped: bool = True
    ) -> tuple[FloatArray, FloatArray]:
        """See `ResidualModel.factors`; energies are those of physics, so their factor is 1."""
        least_s = LeastTimes.of(operations, gpu, float(gpu.boost_clock_mhz)).time_s
        return self.terms(operations, gpu).device_s / least_s, np.ones(len(operations))

    def prefetch(self, operations: OperationList, gpus: Iterable[GPU]) -> None:
        """See `ResidualModel.prefetch`; nothing is computed in advance."""

    @property
    def same_in_all_networks(self) -> bool:
        """See `ResidualModel.same_in_all_networks`."""
        return True

    def in_network(self, operations: Sequence[Operation], counts: FloatArray, gpu: GPU) -> tuple[float, float]:
        """See `ResidualModel.in_network`; operations cost the same in a network, so both factors are 1."""
        return 1.0, 1.0

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """See `ResidualModel.to_files`."""
        files = self.shared.to_files(_SHARED)
        for generation, trees in self.generations.items():
            files |= trees.to_files(_of_generation(generation))
        facts = {
            "predictor": NAME,
            "inputs": list(NAMES),
            "constants": self.constants.tolist(),
            "generations": sorted(self.generations),
            "trust": dict(self.trust),
            "energy": self.energy.to_dict(),
            "host_s": {mode: dict(kinds) for mode, kinds in self.host_s.items()},
        }
        return facts, files

    @classmethod
    def from_files(cls, facts: Mapping[str, Any], files: Files) -> Self:
        """Read what `to_files` wrote.

        Raises:
            ZooError, KeyError, TypeError, ValueError: It is something else.
        """
        require_features(facts["inputs"], NAMES, NAME)
        constants = np.array(facts["constants"], dtype=float)
        shape = (len(GROUPS), len(WAYS), len(CONSTANTS))
        if constants.shape != shape or not np.isfinite(constants).all() or (constants <= 0).any():
            raise damaged_entry("the constants of physics are not positive numbers", constants.shape, shape)
        names = [str(name) for name in facts["generations"]]
        return cls(
            constants=constants,
            shared=stored_trees(files, _SHARED, len(NAMES)),
            generations={name: stored_trees(files, _of_generation(name), len(NAMES)) for name in names},
            trust={group: number(facts["trust"].get(group, 0.0)) for group in GROUPS},
            energy=EnergyConstants.from_dict(facts["energy"]),
            host_s=host_times(facts["host_s"]),
        )


def _of_generation(generation: str) -> str:
    return f"generation-{generation.replace('.', '-')}"
