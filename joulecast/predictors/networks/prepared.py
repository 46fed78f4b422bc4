"""A network on a GPU under a power cap, with everything computed that does not depend on the clock; what predicts it.

Most of the work of a prediction is the cost of operations at the default clock, which needs features and regressors.
The clock law (physics/clock.py) then derives the cost at any other clock with a few array operations, for all networks,
GPUs and clocks that are asked for together. A single network at one clock is a batch of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ...arrays import FloatArray
from ...hardware import find_gpu
from ...hardware.host import USUAL, Host
from ...operations.network import Network
from ...operations.operation_list import OperationList
from ...progress import paced
from ..board.calibrated import calibrated
from ..board.profile import launches_in
from ..chip import ChipPart
from ..contract import INPUT_NAMES, Files, Regressor, Shared
from ..formats.numbers import number, require_features
from ..intervals.calibration import Calibration
from ..intervals.network_calibration import NetworkCalibration
from ..operation_predictions import OperationPredictions
from ..physics.baseline import Baseline
from ..physics.cached import cached
from ..physics.energy import static_power_w
from ..physics.power_cap import Jobs
from ..predictor import OperationPredictor
from .composition import MOST_NETWORK_STATIC_W, TF32_FACTORS, Execution, HostModel, composed, counts_of, plain_sum
from .knowledge import NetworkKnowledge, OverClocks
from .memory import MemoryNeed, memory_need
from .parts import as_compiled, as_parts
from .prediction import Prediction, checked_composition


@dataclass(frozen=True)
class PreparedNetwork:
    """A network that can be predicted at one clock after the other.

    Args:
        knowledge: Predicts operations and composes them, on one GPU in one mode.
        network: Operations of that mode.
        power_limit_w: Power cap in watts.
        notes: Warnings about the network on this GPU, in addition to those that every prediction carries.
        known: Its operations at the default clock, as they are inside networks, if these are predicted already.
    """

    knowledge: NetworkKnowledge
    network: Network
    power_limit_w: float
    notes: tuple[str, ...] = ()
    known: OperationPredictions | None = None

    @cached_property
    def counts(self) -> FloatArray:
        """Calls of each operation per iteration, shape (operations,)."""
        return self.network.derived(counts_of)

    @cached_property
    def memory(self) -> MemoryNeed | None:
        """Device memory that the network needs, estimated; None for a list of operations.

        The tensors of a list of operations need not be in memory at the same time.
        """
        return None if self.network.input_shape is None else self.network.derived(memory_need)

    @cached_property
    def at_default(self) -> OperationPredictions:
        """The operations as parts of this network, in the way in which it is run, at the default clock."""
        predictor, network = self.knowledge.operations, self.network
        found = self.known or _in_networks(network.operations, predictor, self.power_limit_w)
        parts = as_parts(network, found, predictor.gpu)
        is_compiled = self.knowledge.host.execution.name == "compiled"
        return as_compiled(network, parts, predictor.gpu) if is_compiled else parts

    @cached_property
    def facts(self) -> tuple[float, float, float]:
        """Host seconds, relative static power and cap, see `Jobs`."""
        gpu, found = self.knowledge.operations.gpu, self.at_default
        static = found.static_power_w / float(static_power_w(gpu, float(gpu.boost_clock_mhz)))
        return self.knowledge.host.total_s(self.counts, found), static, self.power_limit_w

    def at(self, clock_mhz: float | None = None, *, composition: str | None = None, strict: bool = False) -> Prediction:
        """Predict one iteration at a graphics clock; see `NetworkPredictor.predict`.

        Raises InputError, UncoveredError: see `NetworkPredictor.predict`.
        """
        clock = self.knowledge.operations.gpu.checked_clock_mhz(clock_mhz)
        need_bytes = None if self.memory is None else self.memory.total_bytes
        return over_clocks(self, [clock], composition=composition).at(0).prediction(strict, need_bytes, self.notes)


def over_clocks(
    prepared: PreparedNetwork, clocks_mhz: Iterable[float], *, composition: str | None = None
) -> OverClocks:
    """Predict a prepared network at many clocks, at least one; see `over_gpus`."""
    (found,) = over_gpus([(prepared, np.array(list(clocks_mhz), dtype=float))], composition=composition)
    return found


def over_gpus(
    asked: Sequence[tuple[PreparedNetwork, FloatArray]], *, composition: str | None = None
) -> list[OverClocks]:
    """Predict prepared networks, each at clocks of its own GPU.

    Raises InputError: another mode, an unknown composition, or a clock or a cap that a GPU cannot hold.

    Args:
        asked: Networks and clocks in MHz. All of them are computed together.
        composition: "overlap" or "sum"; None for overlap.
    """
    way, together = checked_composition(composition or "overlap"), dict[bool, list[int]]()
    found: list[OverClocks | None] = []
    for place, (prepared, clocks_mhz) in enumerate(paced(asked)):
        gpu, operations = prepared.knowledge.operations.gpu, prepared.at_default
        for clock in (clocks_mhz.min(), clocks_mhz.max()):
            gpu.checked_clock_mhz(float(clock))
        if operations.work is None:
            found.append(_over_clocks(prepared, clocks_mhz, np.full((5, len(clocks_mhz)), np.nan)))
        elif way == "sum":
            found.append(_summed(prepared, clocks_mhz))
        else:
            # Operations that have highest clocks of their own would cost the others an array of voltages.
            together.setdefault(bool(np.isfinite(operations.work.most_mhz).any()), []).append(place)
            found.append(None)
    for places in paced(together.values()):
        some = [asked[place] for place in places]
        for place, values in zip(places, _composed(some), strict=True):
            found[place] = _over_clocks(*asked[place], values)
    return [each for each in found if each is not None]


def _composed(asked: Sequence[tuple[PreparedNetwork, FloatArray]]) -> list[FloatArray]:
    """Totals of prepared networks whose host and device overlap, each at clocks of its own; see `composed`."""
    each = [prepared for prepared, _ in asked]
    most_mhz = [prepared.knowledge.host.execution.most_clock_mhz for prepared in each]
    places = np.arange(max(len(clocks_mhz) for _, clocks_mhz in asked))
    wanted = np.array([clocks_mhz[np.minimum(places, len(clocks_mhz) - 1)] for _, clocks_mhz in asked])
    wanted = np.minimum(wanted, np.array(most_mhz)[:, None])
    works = [work for prepared in each if (work := prepared.at_default.work) is not None]
    jobs = Jobs.of(works, [prepared.counts for prepared in each], [prepared.facts for prepared in each])
    gaps_s = [prepared.knowledge.host.execution.gap_s * prepared.counts.sum() for prepared in each]
    values = composed(jobs, wanted, np.array(gaps_s)[:, None])
    return [values[:, place, : len(clocks_mhz)] for place, (_, clocks_mhz) in enumerate(asked)]


def _over_clocks(
    prepared: PreparedNetwork, clocks_mhz: FloatArray, values: FloatArray, loops: Sequence[OperationPredictions] = ()
) -> OverClocks:
    shared_mhz, held_mhz, time_s, energy_j, device_s = values
    return OverClocks(
        knowledge=prepared.knowledge,
        network=prepared.network,
        operations=loops[0] if loops else prepared.at_default,
        power_limit_w=prepared.power_limit_w,
        composition="sum" if loops else "overlap",
        clocks_mhz=clocks_mhz,
        shared_mhz=shared_mhz,
        held_clocks_mhz=held_mhz,
        time_s=time_s,
        energy_j=energy_j,
        device_time_s=device_s,
        host_time_s=plain_sum(prepared.counts, loops[0]).host_time_s if loops else prepared.facts[0],
        loops=tuple(loops),
    )


def _summed(prepared: PreparedNetwork, clocks_mhz: FloatArray) -> OverClocks:
    """Plain sums of loops, each of which settles at a clock of its own."""
    operations, cap_w, values, loops = prepared.network.operations, prepared.power_limit_w, [], []
    for clock in paced(clocks_mhz.tolist()):
        found = prepared.knowledge.operations.predict(operations, clock, cap_w)
        totals, busy_s = plain_sum(prepared.counts, found), np.nan_to_num(prepared.counts * found.device_time_s)
        mean = float(busy_s @ np.nan_to_num(found.held_clock_mhz)) / busy_s.sum() if busy_s.any() else clock
        values.append((clock, round(mean, 6), totals.time_s, totals.energy_j, totals.device_time_s))
        loops.append(found)
    return _over_clocks(prepared, clocks_mhz, np.array(values).T, loops)


@cached
def _in_networks(
    operations: OperationList, predictor: OperationPredictor, power_limit_w: float
) -> OperationPredictions:
    """Operations at the default clock, as they are inside any network."""
    return predictor.in_network(predictor.predict_for_network(operations, power_limit_w))


@dataclass(frozen=True, eq=False)
class NetworkPredictor(NetworkKnowledge):
    """Predicts networks by what is known of their operations; see `NetworkKnowledge` for the arguments."""

    def under(self, execution: Execution) -> Self:
        """The same predictor for networks that are run in another way, by another host, or on a board of its own.

        Raises InputError: the board's profile is of another GPU.
        """
        profile, host = execution.profile, execution.host.of(self.operations.gpu)
        operations = self.operations if profile is None else calibrated(self.operations, profile)
        launches = launches_in(self.operations.mode)
        if profile is not None and execution.host is USUAL and launches in profile.factors:
            host = Host("the calibrated host", profile.factors[launches], "measured by joulecast calibrate")
        return replace(self, operations=operations, host=replace(self.host, execution=execution, host=host))

    def predict(
        self,
        network: Network,
        clock_mhz: float | None = None,
        power_limit_w: float | None = None,
        *,
        composition: str | None = None,
        strict: bool = False,
    ) -> Prediction:
        """Predict one iteration of a network in this predictor's mode; see `joulecast.predict` for the arguments.

        Raises InputError: another mode, a clock or a cap that the GPU cannot hold, an unknown composition, or a network
        of which nothing is covered. Raises UncoveredError: strict, and some operations are not covered.
        """
        return self.prepared(network, power_limit_w).at(clock_mhz, composition=composition, strict=strict)

    def prepared(self, network: Network, power_limit_w: float | None = None) -> PreparedNetwork:
        """Compute everything that does not depend on the clock. Raises InputError: a cap that the GPU cannot hold."""
        return PreparedNetwork(self, network, self.operations.gpu.checked_power_limit_w(power_limit_w))

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """How the predictor of a measured chip is stored: facts, and the files of its regressors."""
        chip = self.operations.chips[self.operations.mode]
        networks = None if self.network_errors is None else self.network_errors.to_dict()
        facts = {**chip.facts(), "host": self.host.to_dict(), "network_errors": networks}
        return facts, {**chip.time.to_files("time"), **chip.power.to_files("power")}

    @classmethod
    def from_files(
        cls,
        name: str,
        facts: Mapping[str, Any],
        files: Files,
        regressor: Callable[[Files, str], Regressor],
        find_shared: Callable[[], Shared],
    ) -> Self:
        """Read what `to_files` wrote; `regressor` reads what was learned of a quantity, see `OneGpuForm.from_files`.

        For what was not measured on the chip, `find_shared` gives what all GPUs share. Raises ZooError, InputError,
        LookupError, TypeError, ValueError: it is something else.
        """
        require_features(facts["inputs"], INPUT_NAMES, name)
        chip = ChipPart(
            gpu=find_gpu(facts["gpu"]),
            mode=facts["mode"],
            baseline=Baseline.from_dict(facts["baseline"]),
            time=regressor(files, "time"),
            power=regressor(files, "power"),
            measured=frozenset(facts["measured"]),
            transferred=tuple(facts["transferred"]),
            calibration=None if facts.get("calibration") is None else Calibration.from_dict(facts["calibration"]),
            # Entries of GPUs without measured networks may lack what these teach.
            network_static_w=number(facts.get("network_static_w", 0.0), 0.0, MOST_NETWORK_STATIC_W),
            network_tf32_factor=number(facts.get("network_tf32_factor", 1.0), *TF32_FACTORS),
        )
        errors = facts.get("network_errors")
        return cls(
            name,
            OperationPredictor(chip.gpu, chip.mode, find_shared, {chip.mode: chip}),
            HostModel.from_dict(facts["host"]),
            network_errors=None if errors is None else NetworkCalibration.from_dict(errors),
        )
