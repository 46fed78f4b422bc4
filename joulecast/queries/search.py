"""Every way to run a job, and the best of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from ..hardware import GPU
from ..predictors.features import FloatArray
from ..zoo import find_predictor
from .choice import Choice
from .clocks import held_clocks_mhz
from .constraints import Constraints
from .evaluation import Curve, curve
from .memory import memory_need
from .objectives import Job, Objective, Tariff, find_objective
from .question import Question, Variant
from .sweep import LeftOut, Sweep

_FREE = Tariff({})


def best(
    question: Question,
    objective: str = "energy",
    tariff: Tariff = _FREE,
    constraints: Constraints | None = None,
) -> list[Choice]:
    """The best clock of each GPU, precision and batch size, best first.

    Raises:
        InputError: Nothing can run the job, or nothing keeps the constraints.
        ZooError: A predictor is missing or damaged.
    """
    wanted = find_objective(objective, tariff, question.has_batch)
    limits = constraints or Constraints()
    found = _Candidates.of(question, wanted, tariff)
    points = []
    for each, values in zip(found.curves, found.values, strict=True):
        kept = np.where(limits.kept(each), values, np.inf)
        place = int(np.argmin(kept))
        if np.isfinite(kept[place]):
            points.append((float(kept[place]), each, place))
    if not points:
        raise limits.nothing_kept(found.curves)
    points.sort(key=lambda point: point[0])
    make = found.maker(*points[0][1:])
    return [make(each, place) for _, each, place in points]


def sweep(question: Question, objective: str = "energy", tariff: Tariff = _FREE) -> Sweep:
    """All clocks of each GPU, precision and batch size.

    Raises:
        InputError: Nothing can run the job.
        ZooError: A predictor is missing or damaged.
    """
    wanted = find_objective(objective, tariff, question.has_batch)
    found = _Candidates.of(question, wanted, tariff)
    lowest = min(range(len(found.curves)), key=lambda i: float(found.values[i].min()))
    make = found.maker(found.curves[lowest], int(np.argmin(found.values[lowest])))
    first = question.variants[0].network
    return Sweep(
        network=first.name,
        mode=first.mode,
        objective=objective,
        rows=tuple(make(each, place) for each in found.curves for place in range(len(each.clocks_mhz))),
        tariff=tariff,
        left_out=tuple(found.left_out),
    )


@dataclass(frozen=True)
class _Candidates:
    """All curves with their objective's values."""

    curves: Sequence[Curve]
    values: Sequence[FloatArray]
    left_out: Sequence[LeftOut]
    objective: Objective
    tariff: Tariff

    @classmethod
    def of(cls, question: Question, objective: Objective, tariff: Tariff) -> _Candidates:
        curves, left_out = [], []
        for variant in question.variants:
            need = memory_need(variant.network)
            for gpu in question.gpus:
                reason = _reason_against(gpu, variant)
                if reason is None and not need.fits(gpu):
                    reason = (
                        f"needs {need.total_bytes / 2**30:.1f} GiB of memory, has {gpu.memory_bytes / 2**30:.1f} GiB"
                    )
                if reason is None and tariff.has_prices and tariff.hourly(gpu.name) is None:
                    reason = "has no price per hour"
                clocks = held_clocks_mhz(gpu, question.clocks, refuse=question.named)
                if reason is None and not len(clocks):
                    reason = f"holds {gpu.min_clock_mhz} to {gpu.max_clock_mhz} MHz"
                if reason is None:
                    predictor = find_predictor(gpu, variant.network.mode, question.predictor)
                    curves.append(curve(predictor, gpu, variant, need, clocks))
                else:
                    left_out.append(LeftOut(gpu.name, variant.precision, variant.batch_size, reason))
        if not curves:
            raise _nothing_runs(left_out)
        values = [
            objective.of(each.time_s, each.energy_j, Job(each.gpu.name, each.variant.batch_size, tariff))
            for each in curves
        ]
        return cls(curves, values, left_out, objective, tariff)

    def maker(self, best_curve: Curve, best_place: int) -> Callable[[Curve, int], Choice]:
        """A function from curve and place to Choice, which knows the interval of the best."""
        high = self._interval_of_value(best_curve, best_place)[1]

        def make(each: Curve, place: int) -> Choice:
            time_s, energy_j = float(each.time_s[place]), float(each.energy_j[place])
            job = Job(each.gpu.name, each.variant.batch_size, self.tariff)
            value = float(self.objective.of(time_s, energy_j, job))
            return Choice(
                gpu=each.gpu.name,
                clock_mhz=float(each.clocks_mhz[place]),
                held_clock_mhz=float(each.held_clocks_mhz[place]),
                precision=each.variant.precision,
                mode=each.variant.network.mode,
                batch_size=each.variant.batch_size,
                time_s=time_s,
                energy_j=energy_j,
                interval=each.intervals[place],
                objective=self.objective.name,
                value=value,
                tied=value <= high and not (each is best_curve and place == best_place),
                memory_bytes=each.memory.total_bytes,
                predictor=each.predictor,
                measured=each.measured,
                cost=self.tariff.cost(time_s, energy_j, each.gpu.name),
                carbon_g=self.tariff.carbon_g(energy_j),
                notes=each.notes[place],
            )

        return make

    def _interval_of_value(self, each: Curve, place: int) -> tuple[float, float]:
        """Low and high of the objective; nothing is known to tie without an interval."""
        interval = each.intervals[place]
        if interval is None:
            return -np.inf, -np.inf
        job = Job(each.gpu.name, each.variant.batch_size, self.tariff)
        if self.objective.name == "edp":
            return interval.edp_js
        low, high = (self.objective.of(interval.time_s[i], interval.energy_j[i], job) for i in (0, 1))
        return float(low), float(high)


def _reason_against(gpu: GPU, variant: Variant) -> str | None:
    try:
        for precision in {entry.operation.precision for entry in variant.network}:
            gpu.running_precision(precision)
    except InputError as error:
        return error.what
    return None


def _nothing_runs(left_out: Iterable[LeftOut]) -> InputError:
    reasons = {f"{out.gpu}: {out.reason}" for out in left_out}
    return InputError("no GPU can run this job", given="; ".join(sorted(reasons)))
