"""The one model of an operation's device time: physics, what holds on all GPUs, and what a generation adds.

    ln t = ln physics(work) + what trees of this generation learned, or trust x trees over all GPUs

The trees of a measured generation learn all that physics leaves there. The trees over all GPUs are shallow, so that
they learn what carries over. How far they are trusted on a generation that was not measured is found for each part by
leaving generations out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray, grouped, summed_by
from ...hardware import GPU, Boards, each_of, find_gpu, per_gpu
from ...operations.operation_list import OperationList
from ..intervals.calibration import Calibration
from ..physics.cached import cached
from ..physics.energy import static_power_w
from ..physics.roofline import READ_SHARE, chosen_clock_mhz, kernel_floor_s
from .basis import ALL, Basis, Key, PartTrees, boards_of, generation_of, is_like_measured, is_measured, stands_for
from .features import NAMES, features, first_kernels
from .in_networks import NetworkFactors, cached_products, loaded_elements
from .machine import Machine
from .parts import CONVOLUTION, FLASH_GENERATION, Parts, parts_of, runs_alike
from .physics import costs
from .power import Burst, PowerDemand
from .work import GROUPS, Work

NetworkBasis = Literal["networks of the chip", "networks of other chips"]
"""The basis of predictions of networks in half precision: measured networks of this chip, or of others."""

NETWORK_BASES: tuple[NetworkBasis, ...] = get_args(NetworkBasis)

_POWER_READ_S = 60e-6  # Shortest kernels whose power was read (importers/aiconfigurator2026.py).
LEAST_S = 1e-6
"""No kernel takes less than a microsecond."""


class KernelCosts(NamedTuple):
    """What is known of operations; arrays of shape (operations,), read-only, with NaN for those that are not known.

    Args:
        device_s: Device seconds at the default clock. What was measured of a board holds under its cap; on others, no
            cap has lowered the clock (`OneModel.under_cap`).
        demand_w: Board power in watts without a cap, at the default clock. It is that of a working GPU; while it waits
            for a launch, the board draws less.
        power_share: How far `demand_w` applies, from 0 to 1. Power was read of kernels of 60 us and more. Shorter ones
            hardly fill the board: by what whole runs show (generation/run_energy.py), bert_base with one sequence takes
            140 mJ on an H200 where the power of long kernels would take 490. So the share falls with the logarithm of
            the time, to 0 at the shortest kernels.
        read_s: Least seconds inside a network, to read weights and caches of keys from the memory. Loops may find them
            in the L2 cache. In a network, other kernels ran in between.
    """

    device_s: FloatArray
    demand_w: FloatArray
    power_share: FloatArray
    read_s: FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class OneModel(PartTrees):
    """The one model, learned over all measured GPUs: its trees predict the log ratio of device time to physics.

    Args:
        constants: Constants of physics, shape (groups, ways, widths, constants).
        trust: Part -> weight of the trees over all GPUs on generations that were not measured, from 0 to 1.
        power: The power that kernels demand.
        network_factors: How much longer operations in half precision take inside measured networks.
        network_errors: Basis -> quantity -> sorted absolute log errors on networks in half precision that were left
            out.
    """

    constants: FloatArray
    trust: Mapping[str, float]
    power: PowerDemand = PowerDemand()
    network_factors: NetworkFactors = NetworkFactors()
    network_errors: Mapping[NetworkBasis, Mapping[str, Sequence[float]]] = field(default_factory=dict)

    def known(self, parts: Parts, gpu: GPU) -> NDArray[np.bool_]:
        """Whether this can predict each kernel on a GPU, shape (kernels,)."""
        return np.array([name in self.measured for name in parts.names.tolist()], dtype=bool) & parts.runs_on(gpu)

    def covers(self, operations: OperationList, gpu: GPU) -> NDArray[np.bool_]:
        """Whether this can predict kernels of each operation on a GPU, shape (operations,)."""
        parts, covered = parts_of(operations), np.zeros(len(operations), dtype=bool)
        covered[parts.places[self.known(parts, gpu)]] = True
        return covered

    def measured_on(self, part: str, *, flash: bool = False) -> frozenset[str]:
        """Names of the GPUs on which the kernels of a part were measured."""
        names = self.measured[part]
        same = frozenset(board.name for board in boards_of(names) if generation_of(board) == FLASH_GENERATION)
        return same if flash and same else names

    def burst(self, parts: Parts, gpu: GPU) -> Burst:
        """Kernels that this knows, in a short loop on a GPU."""
        burst = self._by_physics(parts, gpu)
        kinds = {}
        for part, flash, place in zip(parts.names.tolist(), parts.flash.tolist(), burst.group.tolist(), strict=True):
            if (part, flash, place) not in kinds:
                kinds[part, flash, place] = (parts.names == part) & (parts.flash == flash) & (burst.group == place)
        logs = np.zeros((len(each_of(gpu)), len(parts.kernels)))
        asked = [
            (row, mine, *known)
            for row, one in enumerate(each_of(gpu))
            for (part, flash, place), mine in kinds.items()
            if (known := self._learned(part, flash, GROUPS[place], one))
        ]
        seen = burst.features.reshape(len(logs), -1, len(NAMES))
        said = self.ask([key for _, _, key, _ in asked], [seen[row, mine] for row, mine, _, _ in asked])
        for (row, mine, _, trust), values in zip(asked, said, strict=True):
            logs[row, mine] = trust * values
        ratio = np.exp(logs).reshape(burst.physics_s.shape)
        device_s, uncapped_s = (np.maximum(each * ratio, LEAST_S) for each in (burst.device_s, burst.uncapped_s))
        return burst._replace(device_s=device_s, uncapped_s=uncapped_s)

    def _by_physics(self, parts: Parts, gpu: GPU) -> Burst:
        """The same before trees correct it."""
        work, machine, count = Work.of(parts.kernels), Machine.of(gpu), len(parts.kernels)
        found = costs(work, machine, self.constants)
        seconds = (each.time_s for each in (found, found.under(per_gpu(self._free_power_w)(gpu))))
        physics_s, uncapped_s = (np.maximum(summed_by(work.place, each, count), LEAST_S) for each in seconds)
        rows = np.empty((*physics_s.shape, len(NAMES)), np.float32)
        alike = {part: tuple(self._like(part, one) for one in each_of(gpu)) for part in set(parts.names.tolist())}
        for boards, named in grouped((boards, part) for part, boards in alike.items()).items():
            board = Boards.of(boards) if isinstance(gpu, Boards) else boards[0]
            mine, other = np.isin(parts.names, named), Machine.of(board)
            its = found if board == gpu else costs(work, other, self.constants)
            rows[..., mine, :] = features(parts.kernels, work, its, other)[..., mine, :]
        return Burst(physics_s, rows, work.group[first_kernels(work, count)], physics_s, uncapped_s)

    def _like(self, part: str, gpu: GPU) -> GPU:
        """The board whose features stand for those of a GPU: what physics leaves belongs to a chip, not to a board.

        If all its figures are better than those of another board of its chip, it is not slower then.
        """
        measured = self.measured[part]
        return gpu if is_measured(gpu, measured) else stands_for(gpu, boards_of(measured))

    def under_cap(self, gpu: GPU) -> bool:
        """Whether device times on a GPU hold under its default cap: loops of its chip ran under the same cap."""
        return any(each.chip == gpu.chip and each.power_limit_w == gpu.power_limit_w for each in boards_of(self.gpus))

    def _free_power_w(self, gpu: GPU) -> float:
        """Watts for work on a GPU where the cap is left to the clock law; on measured boards, those of their loops.

        Another board of a measured generation has another cap. As far as it is lower, its loops would take longer by
        physics; without it, the board is like the measured one. Of other generations, nothing is known of a cap.
        """
        machine = Machine.of(gpu)
        if self.under_cap(gpu):
            return machine.logic_power_w
        boards = [Machine.of(each) for each in boards_of(self.gpus) if generation_of(each) == generation_of(gpu)]
        cycles = machine.sms * machine.clock_hz
        of_others = max((other.logic_power_w / (other.sms * other.clock_hz) for other in boards), default=np.inf)
        return max(machine.logic_power_w, of_others * cycles)

    def _learned(self, part: str, flash: bool, group: str, gpu: GPU) -> tuple[Key, float] | None:
        """The trees that predict kernels of a part and a group, and how far they are trusted; None without any."""
        generation = FLASH_GENERATION if flash else generation_of(gpu)
        of_this = {generation_of(board) for board in boards_of(self.measured[part])}
        if generation in of_this and (generation, group) in self.trees:
            elsewhere = self.basis(part, gpu, flash=flash) == "other generations"
            return (generation, group), self.trust[part] if elsewhere else 1.0
        return ((ALL, group), self.trust[part]) if (ALL, group) in self.trees else None

    def over_forward(self, parts: Parts, operations: OperationList, gpu: GPU) -> FloatArray:
        """Time of the passes that are meant over that of the forward pass, by physics, shape (kernels,)."""
        if not parts.backward.any():
            return np.ones(len(parts.kernels))
        forward = parts.some(parts.backward).kernels
        both = OperationList(operations[place] for place in parts.places[parts.backward].tolist())
        whole, one = (
            summed_by(work.place, costs(work, Machine.of(gpu), self.constants).time_s, len(forward))
            for work in map(Work.of, (both, forward))
        )
        ratio = np.ones((*whole.shape[:-1], len(parts.kernels)))
        ratio[..., parts.backward] = whole / one
        return ratio

    def costs(self, operations: OperationList, gpu: GPU) -> KernelCosts:
        """What is known of operations on a GPU."""
        return _costs(operations, self, gpu)

    def device_s(self, operations: OperationList, gpu: GPU) -> FloatArray:
        """Device seconds at the default clock, shape (operations,), read-only; NaN for operations it does not know."""
        return self.costs(operations, gpu).device_s

    def in_network(self, operations: OperationList, gpu: GPU) -> tuple[FloatArray, FloatArray]:
        """What operations take inside a network beyond what is predicted without networks.

        If kernels predict neither linear layers nor attention on a GPU, nothing is known about the others: no longer.

        Returns:
            Time over that without networks, and cycles in which all multiprocessors load the elements of each operation
            besides, shape (operations,) each.
        """
        known, factors = ~np.isnan(self.device_s(operations, gpu)), self.network_factors
        predicted = per_gpu(lambda one: is_like_measured(one, "fp16"))(gpu)
        slower = (np.where(predicted, factors.products, 1.0) - 1.0) * cached_products(operations, gpu, known)
        clock = gpu.boost_clock_mhz / np.maximum(chosen_clock_mhz(gpu), gpu.boost_clock_mhz)
        cycles = clock * np.where(predicted, factors.cycles, 0.0) * loaded_elements(operations, known) / gpu.sms
        return 1.0 + slower, cycles

    def network_basis(self, gpu: GPU) -> NetworkBasis:
        """The basis of predictions of networks in half precision on a GPU."""
        return "networks of the chip" if gpu.chip in self.network_factors.chips else "networks of other chips"

    def calibrations(self, operations: OperationList, gpu: GPU) -> tuple[tuple[Calibration, NDArray[np.bool_]], ...]:
        """Calibrations of the parts on a GPU, each with a mask of its operations, shape (operations,)."""
        return _calibrations(operations, self, gpu)

    def remarks(self, operations: OperationList, gpu: GPU) -> tuple[str, ...]:
        """Sentences that name the measurements behind the device times, one for each part."""
        return _remarks(operations, self, gpu)

    def remark(self, part: str, gpu: GPU, *, flash: bool = False) -> str:
        """The sentence that names the measurements behind predictions of a part for a GPU."""
        names = sorted(self.measured_on(part, flash=flash))
        family, _, width = part.partition(", ")
        match self.basis(part, gpu, flash=flash):
            case "measured":
                said = f"measured on {gpu.name}"
            case "same generation":
                same = [name for name in names if generation_of(find_gpu(name)) == generation_of(gpu)]
                said = f"not measured on {gpu.name}, predicted from {', '.join(same)}, which are of its generation"
            case _:
                said = f"not measured on {gpu.name} nor its generation, predicted from {', '.join(names)}"
        return f"{family}{' by PyTorch' if flash else ''} in {width}: {said}"

    def coverage(self, gpu: GPU) -> tuple[str, ...]:
        """The parts that this can predict on a GPU, in words."""
        return tuple(part.replace(", ", " in ", 1) for part in self.measured if _runs(part, gpu))

    def calibration(self, part: str, gpu: GPU, *, flash: bool = False) -> Calibration | None:
        """Errors of predictions for a GPU, or those of the next less similar basis whose errors are known."""
        basis = self.basis_of_errors(part, gpu, flash=flash)
        return None if basis is None else _calibration(self, part, basis, self.power.basis_of_errors(part, gpu))


_NEEDED = {"half": "bf16", "half with fp8 cache": "bf16", "fp8": "fp8", "fp8 in blocks": "fp8", "nvfp4": "nvfp4"}


def _runs(part: str, gpu: GPU) -> bool:
    family, _, width = part.partition(", ")
    return runs_alike(family == CONVOLUTION, _NEEDED.get(width, width), gpu)


def _kinds(parts: Parts, known: NDArray[np.bool_]) -> list[tuple[str, bool]]:
    return [*dict.fromkeys(zip(parts.names[known].tolist(), parts.flash[known].tolist(), strict=True))]


@cached
def _remarks(operations: OperationList, model: OneModel, gpu: GPU) -> tuple[str, ...]:
    parts = parts_of(operations)
    return tuple(model.remark(part, gpu, flash=flash) for part, flash in _kinds(parts, model.known(parts, gpu)))


@cached
def _calibrations(
    operations: OperationList, model: OneModel, gpu: GPU
) -> tuple[tuple[Calibration, NDArray[np.bool_]], ...]:
    found, parts = [], parts_of(operations)
    known = model.known(parts, gpu)
    for part, flash in _kinds(parts, known):
        calibration = model.calibration(part, gpu, flash=flash)
        if calibration is not None:
            mask = np.zeros(len(operations), dtype=bool)
            mask[parts.places[known & (parts.names == part) & (parts.flash == flash)]] = True
            mask.flags.writeable = False
            found.append((calibration, mask))
    return tuple(found)


@cache  # Intervals cache results for each calibration object, so the same object is returned every time.
def _calibration(model: OneModel, part: str, basis: Basis, of_power: Basis | None) -> Calibration:
    power = {} if of_power is None else model.power.errors[part][of_power]
    return Calibration.of_device_errors(
        {"": model.errors[part][basis]["time"].tolist()},
        {quantity: {"": errors.tolist()} for quantity, errors in power.items()},
    )


@cached
def _costs(operations: OperationList, model: OneModel, gpu: GPU) -> KernelCosts:
    parts, boards = parts_of(operations), each_of(gpu)
    alike = grouped((model.known(parts, board).tobytes(), row) for row, board in enumerate(boards))
    table = np.full((4, len(boards), len(operations)), np.nan)
    for mask, rows in alike.items():
        known = np.frombuffer(mask, dtype=bool)
        if known.any():
            mine = parts if known.all() else parts.some(known)
            table[:, rows] = _of_parts(operations, model, mine, tuple(boards[row] for row in rows))
    table.flags.writeable = False
    return KernelCosts(*(table if isinstance(gpu, Boards) else table[:, 0]))


def _of_parts(operations: OperationList, model: OneModel, parts: Parts, gpus: tuple[GPU, ...]) -> FloatArray:
    """`KernelCosts` of the kernels that are known on each of some GPUs, shape (4, gpus, operations).

    Device times and power demands together, because both follow from the same physics and features.
    """
    gpu = Boards.of(gpus)
    burst, passes = model.burst(parts, gpu), model.over_forward(parts, operations, gpu)
    bursts = dict(zip(gpus, burst.on_each(), strict=True))
    # The power of some boards follows from that of another with the same die.
    alike = {each: model.power.measured_like(each) for each in gpus if model.power.covers(each)}
    if more := tuple(dict.fromkeys(other for other in alike.values() if other not in bursts)):
        bursts |= zip(more, model.burst(parts, Boards.of(more)).on_each(), strict=True)
    demands_w = model.power.demands_w(parts, bursts, alike)
    demand_w = np.array([demands_w.get(each, np.full(len(parts.kernels), np.nan)) for each in gpus])
    # What was learned of power is relative to the burst, in which the board's cap may have counted.
    static_w = per_gpu(lambda each: static_power_w(each, float(each.boost_clock_mhz)))(gpu)
    demand_w = static_w + (demand_w - static_w) * burst.device_s / burst.uncapped_s
    floor_s, work = kernel_floor_s(gpu), Work.of(parts.kernels)
    share = np.clip(np.log(burst.device_s / floor_s) / np.log(_POWER_READ_S / floor_s), 0.0, 1.0)
    read_s = summed_by(work.place, work.held_bytes, len(parts.kernels)) / (READ_SHARE * gpu.memory_bandwidth)
    columns = (burst.uncapped_s, demand_w * burst.uncapped_s, share * burst.uncapped_s)
    table = summed_by(parts.places, np.array([*(passes * column for column in columns), read_s]), len(operations))
    table[..., ~np.isin(np.arange(len(operations)), parts.places)] = np.nan
    table[1:3] /= table[0]
    return table
