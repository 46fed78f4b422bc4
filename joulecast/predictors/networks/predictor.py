"""What predicts networks on one GPU, and what is said of one of them at one clock: intervals, notes, each operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any, Self

import numpy as np

from ...arrays import total
from ...hardware import find_gpu
from ...hardware.host import REFERENCE, USUAL, Host
from ...operations.network import Network
from ...units import si
from ..board.calibrated import calibrated
from ..board.profile import launches_in
from ..chip import ChipPart
from ..contract import INPUT_NAMES, Files, Regressor, Shared
from ..formats.numbers import number, require_features
from ..intervals.calibration import Calibration
from ..intervals.conformal import power_range_w
from ..intervals.network_calibration import FAR_SHARE, STEP_BASIS, Interval, NetworkCalibration, NetworkSpread
from ..operation_predictions import OperationPredictions
from ..physics.baseline import Baseline
from ..physics.energy import static_power_w
from ..physics.roofline import roofline
from ..predictor import OperationPredictor
from .composition import (
    COMPILED_LAUNCH_S,
    EAGER,
    GRAPH_LAUNCH_S,
    MOST_NETWORK_STATIC_W,
    TF32_FACTORS,
    Execution,
    HostModel,
)
from .costs import OperationCost
from .parts import unconfirmed_share
from .prediction import Prediction
from .prepared import NetworkKnowledge, OverClocks, PreparedNetwork, over_gpus

_SHOWN_KINDS = 4
_LEAST_S = 1e-15  # Instead of a division by zero.
_LEAST = 1e-300


class AtClock:
    """A network at one of the clocks that its totals are known at.

    Args:
        over: The totals at all clocks.
        place: Index of the clock.
    """

    def __init__(self, over: OverClocks, place: int) -> None:
        self.over, self.place, on = over, place, over.prepared
        self.knowledge, self.network, self.counts, self.coverage = on.knowledge, on.network, on.counts, on.coverage
        self.gpu, self.host, self.cap_w = on.knowledge.operations.gpu, on.knowledge.host, on.power_limit_w
        columns = over.clocks_mhz, over.held_clocks_mhz, over.time_s, over.energy_j, over.device_time_s
        self.clock_mhz, self.held_mhz, self.time_s, self.energy_j, self.device_s = (float(c[place]) for c in columns)

    @cached_property
    def operations(self) -> OperationPredictions:
        """The operations at the clock that they share.

        Time, power and energy of measurement loops stay those at the default clock, because networks do not use them.
        """
        found = self.over.loops[self.place] if self.over.loops else self.over.prepared.at_default
        work = found.work
        if self.over.loops or work is None:
            return found
        held_mhz, boost_mhz = float(self.over.shared_mhz[self.place]), float(work.gpu.boost_clock_mhz)
        device_s, dynamic_j = work.at(held_mhz)
        source = found.source
        if self.clock_mhz != boost_mhz and "measured" in source:
            source = tuple("modelled" if each == "measured" else each for each in source)
        return replace(
            found,
            device_time_s=device_s,
            dynamic_energy_j=dynamic_j,
            held_clock_mhz=np.minimum(held_mhz, work.most_mhz) + np.zeros(len(device_s)),
            source=source,
            static_power_w=found.static_power_w
            * (static_power_w(work.gpu, held_mhz) / static_power_w(work.gpu, boost_mhz)),
        )

    def prediction(self, *, strict: bool = False) -> Prediction:
        """Put a prediction together.

        Raises InputError: no operation is covered. Raises UncoveredError: too much is not covered for a total; or
        strict mode, and anything is not.
        """
        self.over.prepared.refuse_uncovered(strict=strict)
        network = self.network
        return Prediction(
            network=network.name,
            input_shape=network.input_shape,
            mode=network.mode,
            gpu=self.gpu.name,
            clock_mhz=self.clock_mhz,
            predictor=self.knowledge.name,
            composition=self.over.composition,
            time_s=self.time_s,
            energy_j=self.energy_j,
            device_time_s=self.device_s,
            host_time_s=self.over.host_time_s,
            power_limit_w=self.cap_w,
            held_clock_mhz=self.held_mhz,
            operations=tuple(self._costs()),
            spread=self.spread,
            notes=tuple(self.notes()),
            coverage=self.coverage,
            execution=self.host.execution.name,
            host=self.host.launcher.name,
            idle_power_w=power_range_w(self.gpu, self.cap_w)[0],
            memory_bytes=self.over.prepared.memory_bytes,
            board=self.gpu,
        )

    def interval(self, level: float) -> Interval | None:
        """The interval around the totals, if enough errors are known."""
        if self.spread is None or not self.spread.supports(level):
            return None
        totals = self.time_s, self.energy_j, self.held_mhz, power_range_w(self.gpu, self.cap_w)
        return self.spread.interval(level, *totals)

    @cached_property
    def spread(self) -> NetworkSpread | None:
        """The spread of errors on networks like this one; None where no errors are known."""
        coverage, host_s = self.coverage, self.over.host_time_s
        if coverage.share is None:
            return None  # It is not known how much time the uncovered operations add.
        errors = self.knowledge.errors_on(self.counts, self.operations)
        if errors is None or self.over.composition not in errors.scores:
            return None
        if self.host.execution.name == "compiled":
            # Compiled training in half precision is as far off as eager one (benchmarks/training/MEGATRON.md).
            if errors.basis != STEP_BASIS or self.device_s <= 2 * host_s:
                return None
        elif self.host.execution != EAGER:
            # The known errors come from eager runs on the hosts on which networks were measured. They hold where the
            # device needs twice as long as such a run would make it wait.
            eager = replace(self.host, execution=EAGER, host=REFERENCE)
            eager_s = eager.total_s(self.counts, self.operations) * max(1.0, self.host.launcher.factor)
            if eager.device_s(self.counts, self.operations) <= 2 * eager_s:
                return None
        # Some errors come from GPUs and clocks that were not measured.
        elsewhere = self.knowledge.any_gpu or bool(self.knowledge.operations.not_of_chip(self.network.operations))
        as_measured = elsewhere or self._holds_measured_settings
        return NetworkSpread.of(
            errors,
            self.over.composition,
            self.operations.spread if errors.difficulties else None,
            self.counts,
            self.operations,
            missing_share=coverage.share,
            measured_mhz=None if as_measured else float(self.gpu.boost_clock_mhz),
            unconfirmed_share=unconfirmed_share(self.network, self.gpu, self.counts, self.operations),
        )

    @property
    def _holds_measured_settings(self) -> bool:
        """Whether a GPU's own measurements were made at this clock and under this power cap."""
        return self.clock_mhz == self.gpu.boost_clock_mhz and self.cap_w == self.gpu.power_limit_w

    def notes(self) -> Iterator[str]:
        """Warnings that a prediction carries: work that its totals lack, the basis of its numbers, how it is run."""
        knowledge, network, coverage, spread = self.knowledge, self.network, self.coverage, self.spread
        if coverage:
            yield str(coverage)
        yield from (f"assumed: {assumption}" for assumption in network.assumptions)
        if self.host.execution.profile is not None:
            yield from self.host.execution.profile.notes(knowledge.name, network.mode)
        remarks = knowledge.operations.remarks(network.operations)
        if knowledge.any_gpu:
            what = "what the next notes do not name is predicted" if remarks else "predicted"
            yield f"{self.gpu.name} has no predictor of its own: {what} from its data sheet by what other GPUs showed"
        elif not self._holds_measured_settings:
            yield "no other clock or cap was measured: time and energy are scaled by physics, the interval is wider"
        if kinds := knowledge.operations.not_of_chip(network.operations):
            shown = _first(kinds)
            yield f"not measured on {self.gpu.name}, predicted from its data sheet by what other GPUs showed: {shown}"
            if spread is not None:
                its = f"{self.gpu.name}'s own"
                yield f"the interval is that of networks on GPUs of which nothing was measured, not of {its}"
        yield from remarks
        if spread is not None and (unmeasured := spread.never_measured_kinds):
            yield f"no dataset has measured {_first(unmeasured)}: the interval is wider"
        if not self.host.learned:
            yield "no network was measured on this GPU: host cost taken from the A30"
        if coverage.share is None:
            yield "no interval: it is not known how much work is not covered; extract the network again"
        elif spread is None:
            why = "errors are known of eager runs on the hosts of the measurements alone"
            if self.host.execution.name == "compiled":
                why = "no compiled network was measured, so its error is not known"
            elif self.host.execution == EAGER:
                why = "no errors on networks are known"
            yield f"no interval: {why}"
        elif spread.far_outside:
            yield f"far outside the training data: over {100 * FAR_SHARE:.0f} % of the device time"
        yield from self._execution_notes()
        at_cap = self.cap_w < self.gpu.power_limit_w and self.energy_j > 0.999 * self.cap_w * self.time_s
        if at_cap and self.held_mhz < 1.01 * self.gpu.min_clock_mhz:  # It has to pause, which no law here models.
            lowest = f"at its lowest clock, {self.gpu.min_clock_mhz} MHz"
            yield f"{lowest}, it would draw more than this cap: it takes longer"

    def _execution_notes(self) -> Iterator[str]:
        """Warnings about how the network is run: whether the host decides its time, and what is assumed."""
        execution, launcher, host_s = self.host.execution, self.host.launcher, self.over.host_time_s
        if launcher.note:
            yield launcher.note
        if execution.name == "graph":
            yield f"run as a CUDA graph: that the host launches it in {1e6 * GRAPH_LAUNCH_S:g} us is an assumption"
        elif execution.name == "compiled":
            yield (
                "run by torch.compile: rules say which operations share a kernel, and that the host launches one in "
                f"{1e6 * COMPILED_LAUNCH_S:g} us is an assumption; no compiled network was measured"
            )
        elif host_s > self.device_s:
            assumed = f"it is taken to be {launcher.name}, " if execution.host is USUAL else ""
            does = f"it launches in {si(host_s, 's')} what the GPU does in {si(self.device_s, 's')}"
            yield (
                f"the host decides the time: {does}; {assumed}hosts differ by factors of 2 to 3 "
                "(`joulecast host` measures yours)"
            )

    def _costs(self) -> Iterator[OperationCost]:
        """Distribute time and energy over the operations, all calls of each together.

        Dynamic energy belongs to the operation that causes it. Static energy is distributed in proportion to device
        time, so that the parts add up to the whole.
        """
        found, counts = self.operations, self.counts
        device_s, dynamic_j = counts * found.device_time_s, counts * found.dynamic_energy_j
        power_w = found.static_power_w + found.dynamic_energy_j / np.maximum(found.device_time_s, _LEAST_S)
        power_w = np.minimum(power_w, self.cap_w)
        dynamic_sum_j = float(total(dynamic_j))
        # Under a power cap operations draw less than they would without it, so their dynamic energies are scaled down.
        scale = min(1.0, self.energy_j / max(dynamic_sum_j, _LEAST))
        shared_j = self.energy_j - scale * dynamic_sum_j
        energy_j = scale * dynamic_j + shared_j * device_s / max(float(total(device_s)), _LEAST)
        known = [source != "missing" for source in found.source]
        some = found.operations if all(known) else [*compress(found.operations, known)]
        by_line = iter(roofline(some, self.gpu, self.clock_mhz).bounds)
        on_device = (found.device_time_s >= self.host.calls_s(found)).tolist()
        columns = (each.tolist() for each in (device_s, power_w, energy_j, scale * dynamic_j))
        for entry, source, longer, *values in zip(self.network, found.source, on_device, *columns, strict=True):
            if source == "missing":  # It has no device time, so its bound is not known; "launch" is a placeholder.
                yield OperationCost(entry, None, None, None, source, "launch")
            else:
                bound, (seconds, watts, joules, dynamic) = next(by_line), values
                yield OperationCost(entry, seconds, watts, joules, source, bound if longer else "launch", dynamic)


def _first(kinds: Sequence[str]) -> str:
    more = f" and {len(kinds) - _SHOWN_KINDS} more" if len(kinds) > _SHOWN_KINDS else ""
    return ", ".join(kinds[:_SHOWN_KINDS]) + more


def at_clock(prepared: PreparedNetwork, clock_mhz: float | None = None, composition: str | None = None) -> AtClock:
    """A prepared network at a graphics clock, None for the GPU's default; see `over_gpus`."""
    clock = prepared.knowledge.operations.gpu.checked_clock_mhz(clock_mhz)
    (over,) = over_gpus([(prepared, np.array([clock]))], composition=composition)
    return AtClock(over, 0)


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
        return at_clock(self.prepared(network, power_limit_w), clock_mhz, composition).prediction(strict=strict)

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
