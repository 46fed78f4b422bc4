"""Why an operation costs what it costs: what bounds it, similar measured operations, and the effect of each input."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, needing, with_extra
from ..hardware import GPU
from ..operations.operation import Operation
from ..operations.operation_list import operation_text
from ..rendering.answers import Drawn, Plain
from ..rendering.notebook import Bar, Picture, bars, document, notes, table
from ..units import si
from .contract import INPUT_NAMES, PredictsOperations
from .intervals.closeness import coordinates
from .intervals.operation_spread import OperationIntervals
from .operation_predictions import OperationPredictions, known_si
from .physics.roofline import roofline

NEIGHBOURS = 5
_CAUSES = 8  # Inputs in a notebook, by their effect.


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
class Explanation(Plain, Drawn):
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

    def __repr__(self) -> str:
        return f"<Explanation: {self}>"

    def _repr_html_(self) -> str:
        """What bounds the operation, what it costs, similar measured operations, and the effect of each input."""
        e, interval = self, self.interval
        rows = []
        for title, value, unit, low_high in (
            ("time", e.time_s, "s", interval and interval.time_s),
            ("power", e.power_w, "W", interval and interval.power_w),
            ("energy", e.energy_j, "J", interval and interval.energy_j),
        ):
            between = f"{si(float(low_high[0][0]), unit)} to {si(float(low_high[1][0]), unit)}" if low_high else ""
            rows.append([title, known_si(value, unit), "" if "nan" in between else between])
        parts = [
            table(
                ["in a loop", "predicted", f"{100 * interval.level:.0f} % interval" if interval else ""],
                rows,
                frozenset({1}),
            )
        ]
        if e.nearest:
            near = [
                [operation_text(n.operation), f"{n.distance:.2f}", si(n.time_s, "s"), si(n.energy_j, "J")]
                for n in e.nearest
            ]
            parts.append(
                table(["nearest that were measured", "distance", "time", "energy"], near, frozenset({1, 2, 3}))
            )
        for quantity, found in (e.contributions or {}).items():
            effect = "x {:.2f}" if quantity == "time" else "{:+.1f} W"
            moved = [[c.name, "" if math.isnan(c.value) else f"{c.value:.3g}", effect.format(c.effect)] for c in found]
            parts.append(table([f"what moved {quantity}", "value", "effect"], moved[:_CAUSES], frozenset({1, 2})))
        busy, least = si(e.device_time_s, "s"), si(max(e.compute_s, e.memory_s), "s")
        said = [f"bound by {e.bound_by}; the GPU is busy for {busy}, by the data sheet for {least}"]
        said += ["far from all that were measured"] if e.far_outside else []
        said += [f"calibrated: {name} x {factor:.3f}" for name, factor in (e.calibration or {}).items()]
        headline = f"{operation_text(e.operation)}, {e.operation.mode}, on {e.gpu} at {e.clock_mhz:g} MHz"
        return document(headline, *parts, notes([*said, f"predicted by {e.predictor}, {e.source}"]))

    def _picture(self) -> Picture:
        """Bars: the least times by the data sheet beside the predicted times."""
        times = {
            "arithmetic, by the data sheet": self.compute_s,
            "memory, by the data sheet": self.memory_s,
            "GPU, predicted": self.device_time_s,
            "launch, predicted": self.host_time_s,
        }
        shown = (
            Bar(name, value, si(value, "s"), colour=place)
            for place, (name, value) in enumerate(times.items())
            if not math.isnan(value)
        )
        return Picture(bars([*shown], f"Times of {operation_text(self.operation)}"))

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain lists and dictionaries; quantities in SI units."""
        interval = None if self.interval is None else _interval_json(self.interval)
        return {**super().to_dict(), "efficiency": self.efficiency, "interval": interval}


def _interval_json(interval: OperationIntervals) -> dict[str, Any]:
    """Low and high of the one operation; None where no error of the quantity is known."""
    quantities = {"time_s": interval.time_s, "power_w": interval.power_w, "energy_j": interval.energy_j}
    known = {
        name: None if np.isnan(low[0]) else [float(low[0]), float(high[0])] for name, (low, high) in quantities.items()
    }
    return {"level": interval.level, **known}


def explain_operation(
    predictor: PredictsOperations,
    name: str,
    operation: Operation,
    clock_mhz: float | None = None,
    trained_on: Sequence[Operation] = (),
    native: Mapping[str, bytes] | None = None,
) -> Explanation:
    """Explain one operation.

    Args:
        predictor: The predictor of a GPU and mode.
        name: Name of its zoo entry.
        operation: The operation, in the mode of the predictor.
        clock_mhz: Graphics clock; None for the GPU's default.
        trained_on: Operations that the predictor was trained on.
        native: "time" and "power" -> boosted trees as XGBoost stores them (UBJ); None for other predictors.

    Raises:
        InputError: Another mode, a clock that the GPU cannot hold, or nothing covers the operation.
        MissingDependencyError: There are boosted trees, and xgboost is not installed.
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
        device_time_s=float(found.device_time_s[0]),
        host_time_s=float(found.host_time_s[0]),
        time_s=float(found.time_s[0]),
        power_w=float(found.power_w[0]),
        energy_j=float(found.energy_j[0]),
        interval=found.interval(0.9),
        far_outside=bool(found.far_outside[0]),
        nearest=nearest(predictor, operation, trained_on, clock),
        remarks=predictor.remarks([operation]),
        contributions=None if inputs is None or not native else contributions(inputs, native, gpu),
    )


def nearest(
    predictor: PredictsOperations, operation: Operation, trained_on: Sequence[Operation], clock_mhz: float
) -> tuple[Neighbour, ...]:
    """The nearest operations of the same kind, with what the predictor says of them at a clock; nearest first."""
    alike = [other for other in trained_on if other.kind == operation.kind]
    if not alike:
        return ()
    here, there = coordinates([operation]), coordinates(alike)
    distances = np.sqrt(((there - here) ** 2).sum(axis=1))
    order = np.argsort(distances, kind="stable")[:NEIGHBOURS]
    chosen = [alike[i] for i in order]
    p: OperationPredictions = predictor.predict(chosen, clock_mhz)
    return tuple(
        Neighbour(other, float(distances[i]), *(float(values[place]) for values in (p.time_s, p.power_w, p.energy_j)))
        for place, (i, other) in enumerate(zip(order.tolist(), chosen, strict=True))
    )


def contributions(
    inputs: NDArray[np.float32], native: Mapping[str, bytes], gpu: GPU
) -> dict[str, tuple[Contribution, ...]]:
    """TreeSHAP (Lundberg et al., 2020), as XGBoost computes it from its own trees.

    The trees correct the logarithm of the baseline's time, so what an input adds there is a factor of the time. Power
    is learned as a share of the board's cap, so there it is watts. The mean comes first, then the largest effects.

    Raises:
        MissingDependencyError: xgboost is not installed.
    """
    found = {}
    for quantity in ("time", "power"):
        *added, mean = _tree_shap(native[quantity], inputs).tolist()
        order = sorted(range(len(added)), key=lambda i: -abs(added[i]))
        entries = [("(mean)", float("nan"), mean)]
        entries += [(INPUT_NAMES[i], float(inputs[0, i]), added[i]) for i in order if added[i]]
        found[quantity] = tuple(
            Contribution(name, value, math.exp(log) if quantity == "time" else log * gpu.power_limit_w)
            for name, value, log in entries
        )
    return found


def _tree_shap(native: bytes, inputs: Any) -> Any:
    with needing(
        "feature contributions of boosted trees need xgboost",
        f"{with_extra('train')}; or explain with another predictor",
    ):
        import xgboost
    booster = xgboost.Booster()
    booster.load_model(bytearray(native))
    return booster.predict(xgboost.DMatrix(inputs), pred_contribs=True)[0]
