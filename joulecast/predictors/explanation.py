"""Why an operation costs what it costs: the factors of its time, what bounds it, similar ones, and what inputs did."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, needing, with_extra
from ..hardware import GPU
from ..operations.operation import Operation
from ..operations.operation_list import OperationList, operation_text
from ..rendering.answers import Answer, Plain, Table
from ..rendering.described import Description, Grid
from ..rendering.pictures import Bar, Picture, bars
from ..units import si
from .contract import INPUT_NAMES
from .intervals.calibration import coordinates
from .intervals.operation_spread import OperationIntervals
from .operation_predictions import OperationPredictions, known_si
from .physics.least_times import LeastTimes
from .physics.roofline import roofline
from .physics.variants import measured_operations
from .predictor import OperationPredictor

NEIGHBOURS = 5
_CAUSES = 8  # Inputs in a table, by their effect.
_QUANTITIES = {"time_s": "s", "power_w": "W", "energy_j": "J"}  # What is told of loops, with units.
_NUMBERS = frozenset({1, 2, 3, 4})  # Columns of its tables that are right-aligned.
_ALIKE = 0.005  # Factors that differ by less from 1 are none.


@dataclass(frozen=True)
class Neighbour(Plain):
    """A measured operation, with what the predictor says of it. The predictor has seen its measurement.

    Args:
        operation: The operation that was measured.
        distance: Distance to the operation that is explained; one size doubled is 1 (see `Closeness`).
        time_s, power_w, energy_j: Predicted seconds, watts and joules of its loop at the clock that is asked for.
    """

    operation: Operation
    distance: float
    time_s: float
    power_w: float
    energy_j: float


@dataclass(frozen=True)
class Factor(Plain):
    """One of the factors whose product is the time that the GPU works on an operation.

    Args:
        name: "physics", whose value is in seconds; "learned" over many GPUs or a generation, "this chip", "this board",
            "clock and cap"; and apart from the product, "inside networks".
        value: The factor.
        rests_on: The measurements or figures behind it.
    """

    name: str
    value: float
    rests_on: str


@dataclass(frozen=True)
class Contribution:
    """What one input did to a prediction.

    Args:
        name: Name of the input; "(mean)" is what the trees predict without knowing any input.
        value: Value of the input; NaN for the mean.
        effect: The factor by which it changed time, or the watts that it added to power.
    """

    name: str
    value: float
    effect: float

    def to_dict(self) -> dict[str, Any]:
        """The contribution as a dictionary."""
        return {**vars(self), "value": None if math.isnan(self.value) else self.value}


@dataclass(frozen=True, repr=False)
class Explanation(Answer):
    """Why an operation costs what it costs on a GPU.

    Args:
        operation: The operation that is explained.
        gpu: Full name of the GPU.
        clock_mhz: Graphics clock of the prediction.
        predictor: Name of the zoo entry that made the prediction.
        source: measured, modelled or missing.
        bound_by: compute or memory, whichever takes longer by the data sheet; launch, if the host takes longer than
            both.
        compute_s: Least time of its arithmetic by the data sheet.
        memory_s: Least time of its memory traffic by the data sheet.
        device_time_s: Predicted seconds that the GPU works.
        host_time_s: Predicted seconds of its launch in a loop.
        time_s, power_w, energy_j: Predicted seconds, watts and joules of its loop.
        interval: 90 % interval of time, power and energy; None if no errors are known.
        far_outside: Whether the operation is far from all measured ones.
        nearest: The nearest measured operations; empty if the predictor does not store them.
        remarks: Notes on the measurements behind the device time; empty if there are none.
        factors: What `device_time_s` is the product of.
        inside_networks: How much longer the GPU works on it inside a network than in its loop.
        calibration: Part of the cost -> the factor that a measurement of this board gives it; None without one.
        contributions: Quantity ("time", "power") -> contributions of features by TreeSHAP, largest first; empty unless
            the predictor is XGBoost.
    """

    operation: Operation
    gpu: str
    clock_mhz: float
    predictor: str
    source: str
    bound_by: Literal["compute", "memory", "launch"]
    compute_s: float
    memory_s: float
    device_time_s: float
    host_time_s: float
    time_s: float
    power_w: float
    energy_j: float
    interval: OperationIntervals | None
    far_outside: bool
    nearest: tuple[Neighbour, ...] = ()
    remarks: tuple[str, ...] = ()
    factors: tuple[Factor, ...] = ()
    inside_networks: Factor | None = None
    calibration: Mapping[str, float] | None = None
    contributions: Mapping[str, tuple[Contribution, ...]] | None = None

    @property
    def efficiency(self) -> float:
        """Least time by the data sheet over predicted time of the GPU; above 1 where Winograd saves FLOPs."""
        return max(self.compute_s, self.memory_s) / max(self.device_time_s, 1e-15)

    def __str__(self) -> str:
        return (
            f"{operation_text(self.operation)} on {self.gpu} at {self.clock_mhz:g} MHz: {si(self.time_s, 's')}, "
            f"bound by {self.bound_by}, {self.source}"
        )

    @property
    def title(self) -> str:
        """What is explained, where, and by what."""
        where = f"on {self.gpu} at {self.clock_mhz:g} MHz; predictor {self.predictor}, {self.source}"
        return f"{operation_text(self.operation)}, {self.operation.mode}, {where}"

    @property
    def _all_factors(self) -> list[Factor]:
        return [*self.factors, *([self.inside_networks] if self.inside_networks else [])]

    def _table(self) -> Table:
        """The factors of the time of the GPU; that of physics is in seconds."""
        return Table(
            ("factor", "value", "rests_on"), [(each.name, each.value, each.rests_on) for each in self._all_factors]
        )

    def described(self) -> Description:
        """What a terminal and a notebook show: what bounds it, factors, similar operations, effects of inputs."""
        return Description(self.title, [*(each for each in self.tables() if each.rows), *self.sentences()])

    def tables(self) -> Iterator[Grid]:
        """Its tables, of which some may have no rows."""
        rows = []
        for name, unit in _QUANTITIES.items():
            ends = self._ends(name)
            between = "" if ends is None else " to ".join(si(end, unit) for end in ends)
            rows.append([name.split("_")[0], known_si(getattr(self, name), unit), between])
        yield Grid(["in a loop", "predicted", "90 % interval" if self.interval else ""], rows, _NUMBERS)
        yield Grid(["what", "time"], [[name, si(value, "s")] for name, value in self._times().items()], _NUMBERS)
        factors = self._all_factors
        values = [si(each.value, "s") if each.name == "physics" else f"x {each.value:.3f}" for each in factors]
        product = [[each.name, value, each.rests_on] for each, value in zip(factors, values, strict=True)]
        yield Grid(["the time of the GPU is", "factor", "which rests on"], product, {1})
        near = []
        for n in self.nearest:
            costs = (si(getattr(n, name), unit) for name, unit in _QUANTITIES.items())
            near.append([operation_text(n.operation), f"{n.distance:.2f}", *costs])
        yield Grid(["nearest measured, as predicted", "distance", "time", "power", "energy"], near, _NUMBERS)
        for quantity, found in (self.contributions or {}).items():
            effect = "x {:.3f}" if quantity == "time" else "{:+.1f} W"
            moved = [[c.name, "" if math.isnan(c.value) else f"{c.value:.3g}", effect.format(c.effect)] for c in found]
            yield Grid([f"input of the trees for {quantity}", "value", "effect"], moved[:_CAUSES], _NUMBERS)

    def sentences(self) -> list[str]:
        """What bounds the operation, and what to know of its prediction."""
        longer = {"compute": "arithmetic", "memory": "memory traffic", "launch": "its launch"}[self.bound_by]
        said = [f"bound by {longer}; the GPU reaches {100 * self.efficiency:.0f} % of its data sheet", *self.remarks]
        if self.calibration:
            factors = ", ".join(f"{name} x {factor:.3f}" for name, factor in self.calibration.items())
            said.append(f"calibrated: {factors}")
        return [*said, "far outside of all measurements"] if self.far_outside else said

    def _times(self) -> dict[str, float]:
        return {
            "arithmetic, least time by the data sheet": self.compute_s,
            "memory traffic, least time by the data sheet": self.memory_s,
            "GPU, predicted": self.device_time_s,
            "launch in a loop, predicted": self.host_time_s,
        }

    def _picture(self) -> Picture:
        """Bars: the least times by the data sheet beside the predicted times."""
        shown = (
            Bar(name, value, si(value, "s"), colour=place)
            for place, (name, value) in enumerate(self._times().items())
            if not math.isnan(value)
        )
        return Picture(bars([*shown], f"Times of {operation_text(self.operation)}"))

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain lists and dictionaries; quantities in SI units."""
        told: dict[str, Any] = {**super().to_dict(), "efficiency": self.efficiency, "interval": None}
        if self.interval is not None:
            ends = {name: self._ends(name) for name in _QUANTITIES}
            told["interval"] = {"level": self.interval.level, **{name: each and [*each] for name, each in ends.items()}}
        return told

    def _ends(self, name: str) -> tuple[float, float] | None:
        """Low and high of a quantity; None if no errors of it are known."""
        if self.interval is None:
            return None
        low, high = (float(end[0]) for end in getattr(self.interval, name))
        return None if math.isnan(low) else (low, high)


def explain_operation(
    predictor: OperationPredictor,
    name: str,
    operation: Operation,
    clock_mhz: float | None = None,
    trained_on: Sequence[Operation] = (),
    native: Mapping[str, bytes] | None = None,
    board: tuple[Mapping[str, float], str] | None = None,
) -> Explanation:
    """Explain one operation.

    Raises InputError: another mode, a clock that the GPU cannot hold, or nothing covers the operation. Raises
    MissingDependencyError: there are boosted trees, and xgboost is not installed.

    Args:
        predictor: The predictor of a GPU and mode.
        name: Name of its zoo entry.
        operation: The operation, in the mode of the predictor.
        clock_mhz: Graphics clock; None for the GPU's default.
        trained_on: Operations that the predictor was trained on.
        native: "time" and "power" -> boosted trees as XGBoost stores them (UBJ); None for other predictors.
        board: Factors of a calibrated board that act on the operation, and what it was calibrated by; None for any.
    """
    gpu = predictor.gpu
    clock = gpu.checked_clock_mhz(clock_mhz)
    found = predictor.predict([operation], clock)
    if found.source[0] == "missing":
        raise InputError("nothing covers this operation", given=repr(operation), allowed=", ".join(predictor.coverage))
    line = roofline([operation], gpu, clock)
    on_device = found.device_time_s[0] >= found.host_time_s[0]
    inputs = predictor.regressor_inputs(operation) if native else None
    return Explanation(
        operation=operation,
        gpu=gpu.name,
        clock_mhz=clock,
        predictor=name,
        source=found.source[0],
        bound_by=line.bounds[0] if on_device else "launch",
        compute_s=float(line.compute_s[0]),
        memory_s=float(line.memory_s[0]),
        **{name: float(getattr(found, name)[0]) for name in ("device_time_s", "host_time_s", *_QUANTITIES)},
        interval=found.interval(0.9),
        far_outside=bool(found.far_outside[0]),
        nearest=nearest(predictor, operation, trained_on, clock),
        remarks=predictor.remarks([operation]),
        factors=tuple(factors_of(predictor, operation, found, board and board[1])),
        inside_networks=_inside_networks(predictor, operation),
        calibration=board and board[0],
        contributions=None if inputs is None or not native else contributions(inputs, native, gpu),
    )


def factors_of(
    predictor: OperationPredictor, operation: Operation, found: OperationPredictions, board: str | None
) -> Iterator[Factor]:
    """The factors of the device time that was found for an operation, in the order in which they act."""
    gpu, one = predictor.gpu, OperationList([operation])
    if operation.is_identity:
        yield Factor("physics", 0.0, "no kernel runs")
        return
    shared, chip, whole = predictor.find_shared(), predictor.chip, one.derived(measured_operations)
    at_s = float(LeastTimes.of(one, gpu).time_s[0])
    yield Factor("physics", at_s, f"the data sheet of {gpu.name}")
    stages = []
    if shared.covered(one, gpu)[0] and whole is one:
        basis = "; ".join(shared.remarks(one, gpu)) or "what other GPUs showed of such operations"
        stages.append(("learned", shared.work(one, gpu, True).device_s, basis))
    if chip is not None and chip.covered(one)[0]:
        alike = f"{len(chip.measured)} operations measured on {chip.gpu.name}"
        mine = f"this operation, measured on {chip.gpu.name}"
        basis = mine if operation.digest in chip.measured else alike
        stages.append(("this chip", OperationPredictor.work(predictor, one, capped=True).device_s, basis))
    if board is not None:
        stages.append(("this board", predictor.work(one, capped=True).device_s, board))
    held = f"the clock law, at {found.held_clock_mhz[0]:.0f} MHz under {found.power_range_w[1]:g} W"
    stages.append(("clock and cap", found.device_time_s, held))
    for name, seconds, basis in stages:
        factor, at_s = float(seconds[0]) / at_s, float(seconds[0])
        if factor != 1:
            yield Factor(name, factor, basis)


def _inside_networks(predictor: OperationPredictor, operation: Operation) -> Factor | None:
    """How much longer the GPU works on an operation in a network than in a loop; None where it works as long."""
    loop, cap_w = predictor.predict([operation]), predictor.gpu.power_limit_w
    inside = predictor.in_network(predictor.predict_for_network([operation], cap_w))
    in_network_s, in_loop_s = float(inside.device_time_s[0]), float(loop.device_time_s[0])
    if abs(in_network_s - in_loop_s) <= _ALIKE * in_loop_s:
        return None
    longer = in_network_s / in_loop_s
    return Factor("inside networks", longer, "measured networks, whose effects docs/how-it-works.md lists; no cap")


def nearest(
    predictor: OperationPredictor, operation: Operation, trained_on: Sequence[Operation], clock_mhz: float
) -> tuple[Neighbour, ...]:
    """The nearest operations of the same kind, with what the predictor says of them at a clock; nearest first."""
    alike = [other for other in trained_on if other.kind == operation.kind]
    if not alike:
        return ()
    here, there = coordinates([operation]), coordinates(alike)
    distances = np.sqrt(((there - here) ** 2).sum(axis=1))
    order = np.argsort(distances, kind="stable")[:NEIGHBOURS]
    chosen = [alike[i] for i in order]
    found = predictor.predict(chosen, clock_mhz)
    costs = (getattr(found, name).tolist() for name in _QUANTITIES)
    return tuple(map(Neighbour, chosen, distances[order].tolist(), *costs))


def contributions(
    inputs: NDArray[np.float32], native: Mapping[str, bytes], gpu: GPU
) -> dict[str, tuple[Contribution, ...]]:
    """TreeSHAP (Lundberg et al., 2020), as XGBoost computes it from its own trees.

    The trees correct the logarithm of the baseline's time, so what an input adds there is a factor of the time. Power
    is learned as a share of the board's cap, so there it is watts. The mean comes first, then the largest effects.

    Raises MissingDependencyError: xgboost is not installed.
    """
    what_else = f"{with_extra('train')}; or explain with another predictor"
    with needing("feature contributions of boosted trees need xgboost", what_else):
        import xgboost
    found = {}
    for quantity in ("time", "power"):
        booster = xgboost.Booster()
        booster.load_model(bytearray(native[quantity]))
        *added, mean = booster.predict(xgboost.DMatrix(inputs), pred_contribs=True)[0].tolist()
        order = sorted(range(len(added)), key=lambda i: -abs(added[i]))
        entries = [("(mean)", float("nan"), mean)]
        entries += [(INPUT_NAMES[i], float(inputs[0, i]), added[i]) for i in order if added[i]]
        found[quantity] = tuple(
            Contribution(name, value, math.exp(log) if quantity == "time" else log * gpu.power_limit_w)
            for name, value, log in entries
        )
    return found
