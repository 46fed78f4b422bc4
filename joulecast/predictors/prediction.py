"""Prediction: the answer to what a network costs on a GPU at a clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..csv_tables import table_csv
from ..errors import InputError, UncoveredError
from ..hardware import GPU
from ..inputs import InputShape, shape_to_json
from ..networks import BOOKKEEPING, Network
from ..notebook import Picture
from ..operations import Operation
from .composition import HostModel, Totals
from .filled import FilledPredictor
from .intervals.calibration import NetworkCalibration
from .intervals.spread import FAR_SHARE, NetworkSpread, power_range_w, within_range
from .physics.features import roofline
from .predictor import OperationPredictions, PredictsOperations, Source

if TYPE_CHECKING:
    from .prepared import PreparedNetwork

Composition = Literal["overlap", "sum"]
COMPOSITIONS: tuple[str, ...] = ("overlap", "sum")
Bound = Literal["compute", "memory", "launch"]
_SHOWN = 4


@dataclass(frozen=True)
class OperationCost:
    """What one operation of a network costs, all its calls together; None where missing.

    Args:
        operation: Which.
        count: Calls per iteration.
        module_paths: Where in the model.
        device_time_s: Seconds that the GPU works on it.
        power_w: Board power while it does. Above the cap where others draw less: the cap holds for the network.
        energy_j: Joules, with its share of static energy; these sum up to the network's.
        source: measured, modelled or missing.
        bound_by: What decides its time: arithmetic or memory, whichever the data sheet gives longer for; or the launch,
            where the host needs longer for a call than the GPU. A network waits for launches only where their sum
            exceeds the device's.
    """

    operation: Operation
    count: int
    module_paths: tuple[str, ...]
    device_time_s: float | None
    power_w: float | None
    energy_j: float | None
    source: Source
    bound_by: Bound


@dataclass(frozen=True)
class Interval:
    """Low and high of each quantity, for a share `level` of networks like those that were left out."""

    level: float
    time_s: tuple[float, float]
    power_w: tuple[float, float]
    energy_j: tuple[float, float]
    edp_js: tuple[float, float]

    def to_json(self) -> dict[str, Any]:
        """The interval as plain lists; quantities in SI units."""
        return {
            "level": self.level,
            "time_s": list(self.time_s),
            "power_w": list(self.power_w),
            "energy_j": list(self.energy_j),
            "edp_js": list(self.edp_js),
        }


@dataclass(frozen=True)
class Prediction:
    """Time, power and energy of one iteration of a network.

    Args:
        network: Its name.
        input_shape: Of one iteration's input; None for a list of operations.
        mode: inference or training.
        gpu: Full name.
        clock_mhz: Graphics clock that was asked for.
        power_limit_w: Power cap that was asked for.
        predictor: Which zoo entry answered.
        composition: "overlap" of host and device, or plain "sum".
        time_s: Seconds per iteration.
        energy_j: Joules per iteration.
        device_time_s, host_time_s: What GPU and host need; the larger decides the time.
        held_clock_mhz: Graphics clock that the GPU settles at: clock_mhz, or less where it would draw more than its
            cap; where some operations throttle and others do not, the mean over device time.
        operations: Each with its share, in the order of the network.
        spread: What is known of errors on networks like this; None where nothing is.
        notes: What to keep in mind about this prediction.
        idle_power_w: What the board draws without any work; 0 where nobody knows.
    """

    network: str
    input_shape: InputShape | None
    mode: str
    gpu: str
    clock_mhz: float
    predictor: str
    composition: Composition
    time_s: float
    energy_j: float
    device_time_s: float
    host_time_s: float
    power_limit_w: float
    held_clock_mhz: float
    operations: tuple[OperationCost, ...]
    spread: NetworkSpread | None = field(repr=False)
    notes: tuple[str, ...] = ()
    idle_power_w: float = 0.0

    @property
    def power_w(self) -> float:
        """Mean board power over an iteration."""
        return self.energy_j / self.time_s

    @property
    def edp_js(self) -> float:
        """Energy-delay product."""
        return self.energy_j * self.time_s

    @property
    def uncovered(self) -> tuple[OperationCost, ...]:
        """Operations that the predictor cannot cost; they are not in the totals."""
        return tuple(cost for cost in self.operations if cost.source == "missing")

    @property
    def uncovered_flops_share(self) -> float:
        """Share of the network's FLOPs that is in no total, because nothing covers it."""
        flops = {True: 0, False: 0}
        for cost in self.operations:
            flops[cost.source == "missing"] += cost.count * cost.operation.flops
        return flops[True] / max(1, sum(flops.values()))

    def interval(self, level: float = 0.9) -> Interval | None:
        """The conformal interval from networks that were left out in training; None where no errors are known.

        Their errors count in units of their difficulty: what the errors of their operations add up to, which depends
        on how far those are from what was measured. At another clock or power cap than the one that was measured the
        interval is wider, and where operations are missing its upper end is higher; `interval_basis` says by what.

        Args:
            level: Share of such networks that should lie within, above 0 and below 1.

        Raises:
            InputError: The level is not between 0 and 1, or too high for the number of networks.
        """
        if not 0 < level < 1:
            raise InputError("the level of an interval lies between 0 and 1", given=level)
        if self.spread is None:
            return None
        values = {"time": self.time_s, "power": self.power_w, "energy": self.energy_j, "edp": self.edp_js}
        found = {name: self.spread.around(name, value, level, self.held_clock_mhz) for name, value in values.items()}
        low_w, high_w = found["power"]
        low_w, high_w = within_range(low_w, self.power_w, high_w, (self.idle_power_w, self.power_limit_w))
        return Interval(level, found["time"], (float(low_w), float(high_w)), found["energy"], found["edp"])

    @property
    def interval_basis(self) -> str:
        """Which errors the interval rests on; empty where there is none."""
        return "" if self.spread is None else self.spread.basis

    @property
    def far_outside(self) -> bool:
        """Whether much of the device time is in operations that are far from all that were measured."""
        return self.spread is not None and self.spread.far_outside

    def to_json(self, *, details: bool = True) -> dict[str, Any]:
        """The prediction as plain lists and dictionaries; quantities in SI units.

        Args:
            details: Whether to list the operations.
        """
        interval = self.interval() if self.supports(0.9) else None
        value = {
            "network": self.network,
            "input_shape": shape_to_json(self.input_shape),
            "mode": self.mode,
            "gpu": self.gpu,
            "clock_mhz": self.clock_mhz,
            "held_clock_mhz": self.held_clock_mhz,
            "power_limit_w": self.power_limit_w,
            "predictor": self.predictor,
            "composition": self.composition,
            "time_s": self.time_s,
            "power_w": self.power_w,
            "energy_j": self.energy_j,
            "edp_js": self.edp_js,
            "device_time_s": self.device_time_s,
            "host_time_s": self.host_time_s,
            "interval": None if interval is None else {**interval.to_json(), "basis": self.interval_basis},
            "far_outside": self.far_outside,
            "uncovered": [repr(cost.operation) for cost in self.uncovered],
            "notes": list(self.notes),
        }
        if details:
            value["operations"] = [
                {
                    **cost.operation.to_json(),
                    "count": cost.count,
                    "module_paths": list(cost.module_paths),
                    "device_time_s": cost.device_time_s,
                    "power_w": cost.power_w,
                    "energy_j": cost.energy_j,
                    "source": cost.source,
                    "bound_by": cost.bound_by,
                }
                for cost in self.operations
            ]
        return value

    def supports(self, level: float) -> bool:
        """Whether enough errors are known for an interval of this level."""
        return self.spread is not None and self.spread.supports(level)

    def _repr_html_(self) -> str:
        from .prediction_html import html

        return html(self)

    def plot(self) -> Picture:
        """The operations that cost most energy, as a picture that Jupyter shows and `save` writes."""
        from .prediction_html import plot

        return plot(self)

    def to_csv(self) -> str:
        """The operations as CSV, one line each, most energy first."""
        header = ["kind", "input_shapes", "precision", "count", "device_time_s", "power_w", "energy_j", "source"]
        rows = (
            [
                cost.operation.kind,
                " ".join("x".join(map(str, shape)) for shape in cost.operation.input_shapes),
                cost.operation.precision,
                cost.count,
                cost.device_time_s,
                cost.power_w,
                cost.energy_j,
                cost.source,
                cost.bound_by,
                " ".join(cost.module_paths),
            ]
            for cost in sorted(self.operations, key=lambda c: -(c.energy_j or 0.0))
        )
        return table_csv([*header, "bound_by", "module_paths"], rows)


@dataclass(frozen=True)
class NetworkPredictor:
    """An OperationPredictor with what it takes to compose networks.

    Args:
        name: Where it comes from, such as "a30/forest-inference".
        operations: Predicts single operations.
        host: Host cost inside a network.
        composition: Which composition was better on networks that were left out.
        network_errors: Errors on networks that were left out; None where none was measured.
        any_gpu: Whether it is one for GPUs and clocks that were not measured; its errors come from such.
    """

    name: str
    operations: PredictsOperations
    host: HostModel
    composition: Composition = "overlap"
    network_errors: NetworkCalibration | None = None
    any_gpu: bool = False

    def predict(
        self,
        network: Network,
        clock_mhz: float | None = None,
        power_limit_w: float | None = None,
        *,
        composition: str | None = None,
        strict: bool = False,
    ) -> Prediction:
        """Predict one iteration of a network.

        Args:
            network: Operations of this predictor's mode.
            clock_mhz: Graphics clock; None for the GPU's default.
            power_limit_w: Power cap; None for the board's default.
            composition: "overlap" or "sum"; None for the one that was better on networks left out.
            strict: Raise where an operation is not covered.

        Raises:
            InputError: Another mode, a clock or a cap that the GPU cannot hold, an unknown composition, or a network
                of which nothing is covered.
            UncoveredError: Strict, and some operations are not covered.
        """
        return self.prepared(network, power_limit_w).at(clock_mhz, composition=composition, strict=strict)

    def prepared(self, network: Network, power_limit_w: float | None = None) -> PreparedNetwork:
        """A network with everything found out that no clock changes: what to ask when several clocks are wanted.

        Args:
            network: Operations of this predictor's mode.
            power_limit_w: Power cap; None for the board's default.

        Raises:
            InputError: A cap that the GPU cannot hold.
        """
        from .prepared import PreparedNetwork

        return PreparedNetwork(self, network, self.operations.gpu.checked_power_limit_w(power_limit_w))

    def summary(
        self,
        network: Network,
        predictions: OperationPredictions,
        totals: Totals,
        clock_mhz: float,
        power_limit_w: float,
        composition: str,
    ) -> Prediction:
        """A prediction whose operations are left out, and which holds the clock that is asked for.

        Args:
            network: What was predicted.
            predictions: Its operations; for what is covered.
            totals: What they come to.
            clock_mhz: Asked for.
            power_limit_w: Power cap.
            composition: How the totals were made.
        """
        gpu = self.operations.gpu
        spread = self._spread(network, predictions, composition, clock_mhz, power_limit_w)
        return Prediction(
            network=network.name,
            input_shape=network.input_shape,
            mode=network.mode,
            gpu=gpu.name,
            clock_mhz=clock_mhz,
            predictor=self.name,
            composition="overlap" if composition == "overlap" else "sum",
            time_s=totals.time_s,
            energy_j=totals.energy_j,
            device_time_s=totals.device_time_s,
            host_time_s=totals.host_time_s,
            power_limit_w=power_limit_w,
            held_clock_mhz=clock_mhz,
            operations=(),
            spread=spread,
            notes=tuple(self._notes(network, gpu, clock_mhz, power_limit_w, spread)),
            idle_power_w=power_range_w(gpu, power_limit_w)[0],
        )

    def _spread(
        self,
        network: Network,
        predictions: OperationPredictions,
        composition: str,
        clock_mhz: float,
        power_limit_w: float,
    ) -> NetworkSpread | None:
        if self.network_errors is None or composition not in self.network_errors.scores:
            return None
        if self._filled(network):
            return None  # its errors are those of what was measured
        as_measured = self.any_gpu or self._is_default(clock_mhz, power_limit_w)
        return NetworkSpread(
            networks=self.network_errors,
            composition=composition,
            operations=predictions.spread if self.network_errors.difficulties else None,
            counts=np.array([entry.count for entry in network], dtype=float),
            predictions=predictions,
            measured_mhz=None if as_measured else float(self.operations.gpu.boost_clock_mhz),
        )

    def _is_default(self, clock_mhz: float, power_limit_w: float) -> bool:
        gpu = self.operations.gpu
        return clock_mhz == gpu.boost_clock_mhz and power_limit_w == gpu.power_limit_w

    def bounds(self, predictions: OperationPredictions, clock_mhz: float) -> Iterator[Bound]:
        """What decides the time of each operation; see `OperationCost.bound_by`."""
        known = [source != "missing" for source in predictions.source]
        some = predictions.operations if all(known) else [*compress(predictions.operations, known)]
        by_line = iter(roofline(some, self.operations.gpu, clock_mhz).bounds)
        # (a missing operation has no device time, and no bound that anybody could know)
        on_device = predictions.device_time_s >= predictions.host_time_s + self.host.offset_s
        for is_known, longer in zip(known, on_device.tolist(), strict=True):
            bound = next(by_line) if is_known else "launch"
            yield bound if longer else "launch"

    def refuse_uncovered(self, predictions: OperationPredictions, strict: bool) -> None:
        """Refuse a network of which nothing is covered; a strict one of which anything is not.

        Raises:
            InputError, UncoveredError: See `predict`.
        """
        missing = [
            operation
            for operation, source in zip(predictions.operations, predictions.source, strict=True)
            if source == "missing"
        ]
        shown = "; ".join(map(repr, missing[:3])) + (f"; and {len(missing) - 3} more" if len(missing) > 3 else "")
        if len(missing) == len(predictions.operations):
            raise InputError(
                f"{self.name} covers none of these operations",
                given=shown,
                allowed=self._coverage(),
                hint="choose another precision or GPU",
            )
        if missing and strict:
            raise UncoveredError(
                f"{len(missing)} operations are not covered by {self.name}",
                given=shown,
                allowed=self._coverage(),
                hint="without strict they are left out of the totals and listed",
            )

    def _coverage(self) -> str:
        return ", ".join(self.operations.coverage)

    def _filled(self, network: Network) -> tuple[str, ...]:
        """Kinds and precisions that the GPU's own predictor lacks."""
        if not isinstance(self.operations, FilledPredictor):
            return ()
        return self.operations.filled(network.operations)

    def _notes(
        self, network: Network, gpu: GPU, clock_mhz: float, power_limit_w: float, spread: NetworkSpread | None
    ) -> Iterator[str]:
        if self.any_gpu:
            yield f"{gpu.name} has no predictor of its own: predicted from its data sheet by what other GPUs showed"
        elif not self._is_default(clock_mhz, power_limit_w):
            yield "no other clock or cap was measured: time and energy are scaled by physics, the interval is wider"
        if filled := self._filled(network):
            more = f" and {len(filled) - _SHOWN} more" if len(filled) > _SHOWN else ""
            shown = ", ".join(filled[:_SHOWN]) + more
            yield f"not measured on {gpu.name}, predicted from its data sheet by what other GPUs showed: {shown}"
        if not self.host.learned:
            yield "no network was measured on this GPU: host cost taken from the A30"
        if spread is None:
            yield "no interval: no errors on networks are known"
        elif spread.far_outside:
            yield f"far outside the training data: over {100 * FAR_SHARE:.0f} % of the device time"
        dropped = [d for d in network.dropped if d.reason != BOOKKEEPING]
        if dropped:
            names = ", ".join(f"{d.count} x {d.name}" for d in dropped)
            yield f"left out by the extraction: {names}"
