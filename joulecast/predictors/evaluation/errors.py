"""Errors on what was left out of training: of operations and of networks, and what is reported of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...datasets import NetworkMeasurement
from ...operations.operation import Operation
from ..intervals.calibration import Cases
from ..intervals.network_calibration import Parts

_NONE = np.empty(0, dtype=bool)
NO_PARTS = Parts(np.empty(0), Cases((), _NONE, _NONE, np.empty(0)))

Known = Literal["nothing", "networks"]
"""What was known of a network's chip: nothing, or other networks."""


def r2(measured: FloatArray, predicted: FloatArray) -> float:
    """Coefficient of determination. If all measured values are the same, it is 1 where they are predicted and else 0.

    scikit-learn's `r2_score` has the same rule (`force_finite`).
    """
    missed, spread = np.sum((measured - predicted) ** 2), np.sum((measured - np.mean(measured)) ** 2)
    return float(1 - missed / spread) if spread else float(not missed)


def absolute_errors(errors: Sequence[float] | FloatArray) -> dict[str, float]:
    """Median, mean (the MAPE) and 90th percentile of the absolute values of relative errors."""
    error = np.abs(np.asarray(errors, dtype=float))
    return {"median": float(np.median(error)), "mean": float(np.mean(error)), "p90": float(np.quantile(error, 0.9))}


def scores(name: str, measured: FloatArray, predicted: FloatArray) -> dict[str, float]:
    """R2, R2 of the logarithm and absolute relative errors, each called `name_...`; pairs with NaN do not count."""
    known = ~np.isnan(measured) & ~np.isnan(predicted)
    measured, predicted = measured[known], predicted[known]
    return {
        f"{name}_r2": r2(measured, predicted),
        f"{name}_r2_log": r2(np.log(measured), np.log(predicted)),
        **{f"{name}_{statistic}": v for statistic, v in absolute_errors(predicted / measured - 1).items()},
    }


def errors_by(labels: Sequence[str], measured: FloatArray, predicted: FloatArray) -> dict[str, dict[str, float]]:
    """Absolute relative errors of each group, in the order in which the labels first occur; "count" says how many."""
    known = ~np.isnan(measured) & ~np.isnan(predicted)
    named = np.array(labels)
    found = {}
    for label in dict.fromkeys(labels):
        mine = known & (named == label)
        if mine.any():
            error = predicted[mine] / measured[mine] - 1
            found[label] = {"count": float(mine.sum()), **absolute_errors(error)}
    return found


@dataclass(frozen=True)
class OperationErrors:
    """Measured and predicted loops of operations that were not in the training data; one value per measurement.

    Args:
        campaign: Name of the campaign that measured them, or of the way in which they were left out.
        time_s, power_w: Measured seconds and watts; NaN without a usable power.
        predicted_time_s, predicted_power_w: Predicted seconds and watts; NaN for kinds without training data.
        host_bound: Whether the host needs longer than the GPU. This and what follows is empty on CPUs.
        distances: Distance to the nearest operations in the training data; see `Closeness`.
        reference: Whether a loop was run in the way that the predictor assumes; loops of older campaigns may differ.
    """

    campaign: str
    operations: tuple[Operation, ...]
    time_s: FloatArray
    predicted_time_s: FloatArray
    power_w: FloatArray
    predicted_power_w: FloatArray
    host_bound: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=bool))
    distances: FloatArray = field(default_factory=lambda: np.empty(0))
    reference: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=bool))

    @classmethod
    def joined(cls, campaign: str, parts: Sequence[OperationErrors]) -> Self:
        """Join errors of at least one part."""
        arrays = {each.name: np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)[2:]}
        return cls(campaign, tuple(operation for part in parts for operation in part.operations), **arrays)

    def where(self, chosen: NDArray[np.bool_]) -> Self:
        """Select some of the measurements."""
        arrays = {each.name: getattr(self, each.name)[chosen] for each in fields(self)[2:]}
        return replace(self, operations=tuple(self.operations[i] for i in np.flatnonzero(chosen)), **arrays)

    def log_errors(self, quantity: str) -> FloatArray:
        """Log of predicted over measured time, power or energy; NaN where either is not known."""
        time = np.log(self.predicted_time_s / self.time_s)
        power = np.log(self.predicted_power_w / self.power_w)
        return {"time": time, "power": power, "energy": time + power}[quantity]

    def summary(self) -> dict[str, float]:
        """R2 and absolute relative errors (median, mean, 90th percentile) of time and, where measured, of power."""
        found = {
            "measurements": float(len(self.operations)),
            "unique_operations": float(len(set(self.operations))),
            # In a small campaign, a fold can contain all operations of a kind.
            "uncovered": float(np.isnan(self.predicted_time_s).sum()),
            **scores("time", self.time_s, self.predicted_time_s),
        }
        return found if np.isnan(self.power_w).all() else found | scores("power", self.power_w, self.predicted_power_w)

    def by_kind(self) -> dict[str, dict[str, float]]:
        """Kind -> count, and median and mean error of time and, where measured, of power; most measurements first."""
        kinds, found = [operation.kind for operation in self.operations], {}
        times = errors_by(kinds, self.time_s, self.predicted_time_s)
        powers = errors_by(kinds, self.power_w, self.predicted_power_w)
        for kind, time in sorted(times.items(), key=lambda item: -item[1]["count"]):
            found[kind] = {"count": time["count"], "time_median": time["median"], "time_mean": time["mean"]}
            if power := powers.get(kind):
                found[kind] |= {"power_median": power["median"], "power_mean": power["mean"]}
        return found


@dataclass(frozen=True)
class NetworkError:
    """One measured network, and its prediction by a predictor that was trained without it.

    Args:
        left_out: Number of operations of the dataset that were left out of training, because only it has them.
        time_s, energy_j: Predicted seconds and joules; NaN joules where none were measured.
        sum_time_s, sum_energy_j: The same as plain sums of measurement loops; NaN where that was not computed.
        device_time_s, host_time_s: Predicted seconds of the GPU and of the host, by a GPU's own predictor.
        unmeasured_share: Share of the device time in groups (kind and precision) without any measurement.
        parts: Its operations, from which its difficulty is computed; none if no intervals are made.
        power_w: Predicted watts, to be compared with a mean power that was measured by itself; None to compare energy
            over time.
    """

    measurement: NetworkMeasurement
    left_out: int
    time_s: float
    energy_j: float
    sum_time_s: float = np.nan
    sum_energy_j: float = np.nan
    device_time_s: float = np.nan
    host_time_s: float = np.nan
    unmeasured_share: float = np.nan
    parts: Parts = NO_PARTS
    gpu: str = ""
    known: Known | None = None
    power_w: float | None = None

    @property
    def label(self) -> str:
        """The network with its shape and precision; on any GPU also the GPU, the mode and the clock."""
        m = self.measurement
        network = f"{m.network} {'x'.join(map(str, m.input_shape))} {m.precision}"
        clock = "" if m.clock_mhz is None else f" at {m.clock_mhz:.0f} MHz"
        return f"{self.gpu}: {network} {m.mode}{clock}" if self.gpu else network

    def error(self, quantity: str) -> float:
        """Relative error of "time", "energy", "power", "sum_time" or "sum_energy"; NaN where it is not known."""
        m = self.measurement
        if quantity == "power" and self.power_w is not None:
            return self.power_w / m.known_power_w - 1
        if quantity == "power":
            return (1 + self.error("energy")) / (1 + self.error("time")) - 1
        measured = m.time_s if quantity.endswith("time") else m.energy_j
        predicted = {
            "time": self.time_s,
            "energy": self.energy_j,
            "sum_time": self.sum_time_s,
            "sum_energy": self.sum_energy_j,
        }[quantity]
        return np.nan if measured is None else predicted / measured - 1

    @property
    def errors(self) -> dict[str, float]:
        """Relative errors of time and, where they were measured, of energy and (any GPU) of power."""
        names = ["time"] + ["energy"] * (self.measurement.energy_j is not None) + ["power"] * (self.power_w is not None)
        return {name: self.error(name) for name in names}

    @property
    def host_bound(self) -> bool:
        """Whether the host was predicted to need longer than the GPU."""
        return self.host_time_s > self.device_time_s


def network_summary(errors: Sequence[NetworkError]) -> dict[str, float]:
    """Mean, median and 90th percentile of absolute errors on networks, of a GPU's own predictor also of plain sums."""
    summary: dict[str, float] = {}
    for name in ("time", "energy", "power", "sum_time", "sum_energy"):
        known = [value for value in (e.error(name) for e in errors) if not np.isnan(value)]
        if known:
            summary |= {f"{name}_error_{statistic}": value for statistic, value in absolute_errors(known).items()}
    return summary


def network_log_errors(errors: Sequence[NetworkError]) -> dict[str, tuple[float, ...]]:
    """Quantity -> sorted absolute log errors on networks, for intervals; only time unless every energy is known."""
    if not errors:
        return {}
    time, energy, power = (np.log1p([e.error(name) for e in errors]) for name in ("time", "energy", "power"))
    found = {"time": time}
    if not np.isnan(energy).any():
        found |= {"energy": energy, "power": power, "edp": energy + time}
    return {quantity: tuple(np.sort(np.abs(logs)).tolist()) for quantity, logs in found.items()}
