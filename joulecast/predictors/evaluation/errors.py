"""Errors on what was left out of training: of operations and of networks, and what is reported of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...datasets import NetworkMeasurement
from ...operations.operation import Operation
from ..intervals.network_calibration import Parts

Known = Literal["nothing", "networks"]
"""What was known of a network's chip: nothing, or other networks."""

_DECADES = ("below 1 us", "1 to 10 us", "10 to 100 us", "0.1 to 1 ms", "from 1 ms")


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
        operations: The measured operations.
        time_s, power_w: Measured seconds and watts; NaN without a usable power.
        predicted_time_s, predicted_power_w: Predicted seconds and watts; NaN for kinds without training data.
        roofline_s: Least time by the data sheet, a measure of an operation's size on this GPU. This and what follows is
            empty on CPUs.
        host_bound: Whether launching was predicted to take longer than the work of the GPU.
        distances: Distance to the nearest operations in the training data; see `Closeness`.
        reference: Whether a loop was run in the way that the predictor assumes; loops of older campaigns may differ.
    """

    campaign: str
    operations: tuple[Operation, ...]
    time_s: FloatArray
    predicted_time_s: FloatArray
    power_w: FloatArray
    predicted_power_w: FloatArray
    roofline_s: FloatArray = field(default_factory=lambda: np.empty(0))
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
        found = {}
        for kind, (time, power) in self._by([operation.kind for operation in self.operations]).items():
            found[kind] = {"count": time["count"], "time_median": time["median"], "time_mean": time["mean"]}
            if power:
                found[kind] |= {"power_median": power["median"], "power_mean": power["mean"]}
        return found

    def tables(self) -> dict[str, Mapping[str, tuple[dict[str, float], dict[str, float]]]]:
        """Errors of time and of power by kind, by size and by what bounds the loop; most measurements first."""
        decades = np.searchsorted([1e-6, 1e-5, 1e-4, 1e-3], self.roofline_s, side="right")
        by_size = self._by([_DECADES[i] for i in decades.tolist()])
        return {
            "kind": self._by([operation.kind for operation in self.operations]),
            "roofline time": {size: by_size[size] for size in _DECADES if size in by_size},  # in ascending order
            "bound by": self._by(["host" if host else "GPU" for host in self.host_bound.tolist()]),
        }

    def _by(self, labels: Sequence[str]) -> dict[str, tuple[dict[str, float], dict[str, float]]]:
        time = errors_by(labels, self.time_s, self.predicted_time_s)
        power = errors_by(labels, self.power_w, self.predicted_power_w)
        by_count = sorted(time, key=lambda label: -time[label]["count"])
        return {label: (time[label], power.get(label, {})) for label in by_count}


@dataclass(frozen=True)
class NetworkError:
    """One measured network, and its prediction by a predictor that was trained without it.

    Args:
        measurement: The measurement of the network.
        left_out: Number of operations of the dataset that were left out of training, because only it has them.
        time_s, energy_j: Predicted seconds and joules; NaN joules where none were measured.
    """

    measurement: NetworkMeasurement
    left_out: int
    time_s: float
    energy_j: float

    @property
    def label(self) -> str:
        """The network with its shape and precision."""
        m = self.measurement
        return f"{m.network} {'x'.join(map(str, m.input_shape))} {m.precision}"

    @property
    def time_error(self) -> float:
        """Relative error of time."""
        return self.time_s / self.measurement.time_s - 1

    @property
    def energy_error(self) -> float:
        """Relative error of energy; NaN where no energy was measured."""
        measured_j = self.measurement.energy_j
        return np.nan if measured_j is None else self.energy_j / measured_j - 1

    @property
    def power_error(self) -> float:
        """Relative error of power."""
        return (1 + self.energy_error) / (1 + self.time_error) - 1

    @property
    def errors(self) -> dict[str, float]:
        """Relative errors of time and, where it was measured, of energy."""
        known = {} if self.measurement.energy_j is None else {"energy": self.energy_error}
        return {"time": self.time_error, **known}


@dataclass(frozen=True)
class OwnNetworkError(NetworkError):
    """One measured network, and its prediction by a GPU's own predictor.

    Args:
        time_s, energy_j: Predicted seconds and joules, with host and device overlapping.
        sum_time_s, sum_energy_j: Predicted seconds and joules as plain sums of measurement loops.
        device_time_s, host_time_s: Predicted seconds of the GPU and of the host.
        unmeasured_share: Share of the device time in groups (kind and precision) without any measurement.
        parts: Its operations, from which its difficulty is computed.
    """

    sum_time_s: float
    sum_energy_j: float
    device_time_s: float
    host_time_s: float
    unmeasured_share: float
    parts: Parts

    @property
    def sum_time_error(self) -> float:
        """Relative error of the plain sum of loop times."""
        return self.sum_time_s / self.measurement.time_s - 1

    @property
    def sum_energy_error(self) -> float:
        """Relative error of the plain sum of loop energies."""
        return self.sum_energy_j / self.measurement.known_energy_j - 1

    @property
    def host_bound(self) -> bool:
        """Whether the host was predicted to need longer than the GPU."""
        return self.host_time_s > self.device_time_s


@dataclass(frozen=True)
class AnyNetworkError(NetworkError):
    """One measured network, and its prediction by a predictor for any GPU that was trained on other chips.

    Args:
        gpu: Full name of the GPU.
        known: What was known of its chip: "nothing", or other "networks".
        power_w: Predicted watts.
        sum_time_s: Predicted seconds as a plain sum of measurement loops.
    """

    gpu: str
    known: Known
    power_w: float
    sum_time_s: float

    @property
    def power_error(self) -> float:
        """Relative error of the mean power, which was measured by itself."""
        return self.power_w / self.measurement.known_power_w - 1

    @property
    def errors(self) -> dict[str, float]:
        """Relative errors of time, energy and power."""
        return {**super().errors, "power": self.power_error}

    @property
    def label(self) -> str:
        """What was measured, in a few words."""
        clock_mhz = self.measurement.clock_mhz
        clock = "" if clock_mhz is None else f" at {clock_mhz:.0f} MHz"
        return f"{self.gpu}: {super().label} {self.measurement.mode}{clock}"


def network_summary(errors: Sequence[NetworkError]) -> dict[str, float]:
    """Mean, median and 90th percentile of absolute errors on networks, of a GPU's own predictor also of plain sums."""
    summary: dict[str, float] = {}
    for name in ("time_error", "energy_error", "power_error", "sum_time_error", "sum_energy_error") if errors else ():
        values = [getattr(e, name) for e in errors if hasattr(e, name)]
        known = [value for value in values if not np.isnan(value)]
        if known:
            summary |= {f"{name}_{statistic}": value for statistic, value in absolute_errors(known).items()}
    return summary


def network_log_errors(errors: Sequence[NetworkError]) -> dict[str, tuple[float, ...]]:
    """Quantity -> sorted absolute log errors on networks, for intervals; only time unless every energy is known."""
    if not errors:
        return {}
    of_each = (np.log1p([getattr(e, f"{name}_error") for e in errors]) for name in ("time", "energy", "power"))
    time, energy, power = of_each
    found = {"time": time}
    if not np.isnan(energy).any():
        found |= {"energy": energy, "power": power, "edp": energy + time}
    return {quantity: tuple(np.sort(np.abs(logs)).tolist()) for quantity, logs in found.items()}
