"""Several residual models as one: their weighted average in log space."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import MODES, Operation
from ...operations.operation_list import OperationList
from ..contract import Files, ResidualModel
from ..physics.energy import EnergyConstants


@dataclass(frozen=True)
class Ensemble:
    """A weighted geometric mean of residual models, which is a `ResidualModel` itself.

    Device times are the geometric mean of the members' device times at any clock. For energies that holds
    approximately: energy constants and factors are averaged separately, so that the law of clock and power cap stays
    the same.

    Args:
        members: Residual models, at least one.
        weights: Weight of each member; they sum up to one.
        energy: Energy constants, the geometric mean of the members'.
        host_s: Mode -> kind -> seconds that launching it takes, see `ResidualModel.host_s`.
    """

    members: tuple[ResidualModel, ...]
    weights: tuple[float, ...]
    energy: EnergyConstants
    host_s: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(cls, members: Sequence[ResidualModel], weights: Sequence[float]) -> Self:
        """Average residual models with these weights."""
        constants = np.array([member.energy.values() for member in members])
        fitted_with = np.array([(member.energy.l2_saves, member.energy.voltage_power) for member in members])
        saves, power = (np.array(weights) @ fitted_with).tolist()
        energy = EnergyConstants.of(np.exp(np.array(weights) @ np.log(constants)), saves, power)
        host_s = {}
        for mode in MODES:
            kinds = sorted({kind for member in members for kind in member.host_s[mode]})
            known = [member.host_s[mode] for member in members]
            logs = np.log([[each.get(kind, each[""]) for kind in kinds] for each in known])
            host_s[mode] = dict(zip(kinds, np.exp(np.array(weights) @ logs).tolist(), strict=True))
        return cls(tuple(members), tuple(weights), energy, host_s)

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """See `ResidualModel.to_files`; the files of a member have its number before their names.

        Raises:
            ZooError: A member was not trained, but read from files.
        """
        facts: list[dict[str, Any]] = []
        files: dict[str, bytes] = {}
        for number, member in enumerate(self.members):
            of_member, stored = member.to_files()
            facts.append(of_member)
            files |= {_member_file(number, name): data for name, data in stored.items()}
        return {"predictor": "ensemble", "members": facts, "weights": list(self.weights)}, files

    @classmethod
    def from_files(
        cls,
        facts: Mapping[str, Any],
        files: Files,
        read: Callable[[Mapping[str, Any], Files], ResidualModel],
    ) -> Self:
        """Read what `to_files` wrote.

        Args:
            facts: Facts, as `to_files` wrote them.
            files: Files, as `to_files` wrote them.
            read: Reads a member.

        Raises:
            ZooError, KeyError, TypeError, ValueError: It is something else.
        """
        members = []
        for number, of_member in enumerate(facts["members"]):
            prefix = _member_file(number, "")
            mine = {name.removeprefix(prefix): data for name, data in files.items() if name.startswith(prefix)}
            members.append(read(of_member, mine))
        return cls.of(members, [float(weight) for weight in facts["weights"]])

    @property
    def parts(self) -> dict[str, object]:
        """The parts that have learning curves; see `curves_of`."""
        return {f"member {number}": member for number, member in enumerate(self.members)}

    def factors(
        self, operations: Sequence[Operation], gpu: GPU, *, capped: bool = True
    ) -> tuple[FloatArray, FloatArray]:
        """See `ResidualModel.factors`."""
        time, energy = self._mean(lambda member: np.array(member.factors(operations, gpu, capped=capped)))
        return time, energy

    def prefetch(self, operations: OperationList, gpus: Iterable[GPU]) -> None:
        """See `ResidualModel.prefetch`."""
        asked = tuple(gpus)
        for member in self.members:
            member.prefetch(operations, asked)

    @property
    def same_in_all_networks(self) -> bool:
        """See `ResidualModel.same_in_all_networks`."""
        return all(member.same_in_all_networks for member in self.members)

    def in_network(self, operations: Sequence[Operation], counts: FloatArray, gpu: GPU) -> tuple[float, float]:
        """See `ResidualModel.in_network`."""
        time, energy = self._mean(lambda member: np.array(member.in_network(operations, counts, gpu))).tolist()
        return time, energy

    def _mean(self, of: Callable[[ResidualModel], FloatArray]) -> FloatArray:
        logs = [weight * np.log(of(member)) for weight, member in zip(self.weights, self.members, strict=True)]
        mean: FloatArray = np.exp(np.sum(logs, axis=0))
        return mean


def _member_file(number: int, name: str) -> str:
    return f"member-{number}-{name}"
