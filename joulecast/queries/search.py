"""Searches for the best way to run a job within limits, and compares all ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray
from ..errors import InputError
from ..hardware import GPU, same_boards
from ..predictors.intervals.network_calibration import Interval
from ..predictors.networks.builder import caveats
from ..predictors.networks.memory import MemoryNeed, memory_need, shortage, usable_bytes
from ..predictors.networks.prediction import energy_not_measured
from ..predictors.networks.uncovered import Coverage
from ..progress import paced
from ..units import si
from ..zoo import find_predictor
from ..zoo.entries.cards import measured_gpus
from .choice import LEVEL, Choice, Choices, LeftOut
from .evaluation import ClockJob, Curve, Question, Variant, curves, held_clocks_mhz, prefetch
from .objectives import Job, Objective, Tariff, find_objective
from .sweep import Sweep


@dataclass(frozen=True)
class Constraints:
    """Limits on a choice. None stands for no limit."""

    max_time_s: float | None = None
    max_power_w: float | None = None  # Mean board power over an iteration

    def __post_init__(self) -> None:
        for name, value in (("max_time_s", self.max_time_s), ("max_power_w", self.max_power_w)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
                raise InputError(f"{name} is a positive number", given=repr(value), allowed="such as 0.05")

    def satisfied(self, curve: Curve) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Whether each clock of a curve satisfies the limits, shape (clocks,)."""
        keeps = np.ones(len(curve.clocks_mhz), dtype=bool)
        if self.max_time_s is not None:
            keeps &= curve.time_s <= self.max_time_s
        if self.max_power_w is not None:
            keeps &= curve.power_w <= self.max_power_w
        return keeps

    def violation(self, curve: Curve) -> str:
        """Why a GPU is excluded that satisfies the limits at none of its clocks."""
        late = self.max_time_s is not None and bool(np.min(curve.time_s) > self.max_time_s)
        hungry = self.max_power_w is not None and bool(np.min(curve.power_w) > self.max_power_w)
        if late == hungry:
            return "misses the deadline or exceeds the power budget at every clock"
        return f"{'misses the deadline' if late else 'exceeds the power budget'} at every clock"

    def none_satisfied(self, curves: Sequence[Curve], left_out: int) -> InputError:
        """The error when no clock of any curve satisfies the limits. It names what binds, and the nearest choice."""
        time_s = np.concatenate([curve.time_s for curve in curves])
        power_w = np.concatenate([curve.power_w for curve in curves])
        names = [f"{curve.name} at {clock:g} MHz" for curve in curves for clock in curve.clocks_mhz]
        limits = [
            (what, values, limit, unit)
            for what, values, limit, unit in (
                ("deadline", time_s, self.max_time_s, "s"),
                ("power budget", power_w, self.max_power_w, "W"),
            )
            if limit is not None
        ]
        # How far each choice exceeds the limit that it misses most, as a ratio.
        beyond = np.max([values / limit for _, values, limit, _ in limits], axis=0)
        nearest = int(np.argmin(beyond))
        alone = [what for what, values, limit, _ in limits if values.min() > limit]
        binding = " and the ".join(alone) if alone else " and the ".join(what for what, *_ in limits) + " together"
        return InputError(
            f"no choice satisfies the {binding}",
            given=", ".join(f"{what} {si(limit, unit)}" for what, _, limit, unit in limits),
            allowed="; ".join(f"least for the {what}: {si(values.min(), unit)}" for what, values, _, unit in limits),
            hint=f"nearest: {names[nearest]} with {si(time_s[nearest], 's')} and {si(power_w[nearest], 'W')}"
            + (
                f"; {left_out} more cannot run the job at all, and `joulecast sweep` lists the reasons"
                if left_out
                else ""
            ),
        )


_FREE = Tariff({})


def best(
    question: Question, objective: str = "energy", tariff: Tariff = _FREE, constraints: Constraints | None = None
) -> Choices:
    """Find the best clock of each GPU, precision and batch size; the best choice comes first."""
    wanted = find_objective(objective, tariff, question.has_batch)
    limits = constraints or Constraints()
    candidates = _Candidates.of(question, wanted, tariff)
    points, missed = [], []
    for each, values in zip(candidates.curves, candidates.values, strict=True):
        allowed = np.where(limits.satisfied(each), values, np.inf)
        place = int(np.argmin(allowed))
        if np.isfinite(allowed[place]):
            points.append((float(allowed[place]), each, place))
        else:
            variant = each.variant
            missed.append(LeftOut(each.gpu.aliases[0], variant.precision, variant.batch_size, limits.violation(each)))
    if not points:
        raise limits.none_satisfied(candidates.curves, len(candidates.left_out))
    points.sort(key=lambda point: point[0])
    make = candidates.maker(*points[0][1:])
    return Choices((make(each, place) for _, each, place in points), (*candidates.left_out, *missed))


def sweep(question: Question, objective: str = "energy", tariff: Tariff = _FREE) -> Sweep:
    """Predict the job at all clocks of each GPU, precision and batch size.

    Raises InputError: no GPU can run the job. Raises UncoveredError: too large a part of the job is not covered. Raises
    ZooError: a predictor is missing or damaged.
    """
    wanted = find_objective(objective, tariff, question.has_batch)
    candidates = _Candidates.of(question, wanted, tariff)
    lowest = min(range(len(candidates.curves)), key=lambda i: float(candidates.values[i].min()))
    make = candidates.maker(candidates.curves[lowest], int(np.argmin(candidates.values[lowest])))
    first = question.variants[0].network
    return Sweep(
        network=first.name,
        input_shape=first.input_shape,
        mode=first.mode,
        objective=objective,
        rows=tuple(make(each, place) for each in candidates.curves for place in paced(range(len(each.clocks_mhz)))),
        tariff=tariff,
        left_out=candidates.left_out,
    )


@dataclass(frozen=True)
class _Candidates:
    """All curves with the values of the objective."""

    curves: Sequence[Curve]
    values: Sequence[FloatArray]
    left_out: tuple[LeftOut, ...]
    objective: Objective
    tariff: Tariff
    per_sample: bool

    @classmethod
    def of(cls, question: Question, objective: Objective, tariff: Tariff) -> _Candidates:
        for variant in question.variants:
            Coverage.of(variant.network).refuse_too_much(variant.network.name)
        complete: list[Curve] = []
        left_out: list[LeftOut] = []
        needs = [variant.network.derived(memory_need) for variant in question.variants]
        mode = question.variants[0].network.mode
        jobs: list[ClockJob] = []
        for gpu in paced(question.gpus):
            clocks = held_clocks_mhz(gpu, question.clocks, refuse=question.named)
            predictor = None
            for variant, need in zip(question.variants, needs, strict=True):
                reason = _reason_against(gpu, clocks, variant, need, question, tariff)
                if reason is None:
                    predictor = predictor or find_predictor(gpu, mode, question.predictor).under(
                        question.execution_on(gpu)
                    )
                    jobs.append(ClockJob(predictor, variant, need, clocks))
                else:
                    left_out.append(LeftOut(gpu.aliases[0], variant.precision, variant.batch_size, reason))
        for variant in question.variants:
            prefetch([job.predictor for job in jobs if job.variant is variant], variant.network)
        for found in curves(jobs, question.power_limit_w):
            missing, variant = found.over.missing, found.variant
            if not missing:
                complete.append(found)
                continue
            # Its totals lack something, so it could win because it is incomplete.
            name = found.over.knowledge.name
            reason = f"{name} does not cover {missing} of {len(variant.network)} operations"
            left_out.append(LeftOut(found.gpu.aliases[0], variant.precision, variant.batch_size, reason))
        if not complete:
            raise _nothing_runs(question, left_out)
        per_sample = question.has_several_batches
        values = [
            objective.value(each.time_s, each.energy_j, Job(each.gpu.name, each.variant.batch_size, tariff, per_sample))
            for each in complete
        ]
        return cls(complete, values, tuple(left_out), objective, tariff, per_sample)

    def maker(self, best_curve: Curve, best_place: int) -> Callable[[Curve, int], Choice]:
        """A function from a curve and an index into its clocks to a Choice, marked as tied with the best or not."""
        best = best_curve.over
        times = float(best.time_s[best_place]), float(best.energy_j[best_place])
        least = float(self.objective.value(*times, self._job(best_curve)))
        of_best, _ = caveats(best, best_place, LEVEL)
        high = None if of_best is None else self._value_at(of_best, 1, best_curve)
        measured = measured_gpus()

        def ties(value: float, each: Curve, interval: Interval | None) -> bool:
            # Two clocks of one GPU are never tied: their errors are the same, and cancel when they are compared.
            if each is best_curve:
                return False
            if high is not None:
                return value <= high
            return interval is not None and self._value_at(interval, 0, each) <= least

        def make(each: Curve, place: int) -> Choice:
            over, gpu = each.over, each.gpu
            interval, notes = caveats(over, place, LEVEL)
            coverage = over.coverage
            time_s, energy_j = float(over.time_s[place]), float(over.energy_j[place])
            value = float(self.objective.value(time_s, energy_j, self._job(each)))
            return Choice(
                gpu=gpu.name,
                alias=gpu.aliases[0],
                clock_mhz=float(over.clocks_mhz[place]),
                default_clock_mhz=float(gpu.boost_clock_mhz),
                held_clock_mhz=float(over.held_clocks_mhz[place]),
                power_limit_w=over.power_limit_w,
                precision=each.variant.precision,
                mode=over.network.mode,
                batch_size=each.variant.batch_size,
                time_s=time_s,
                energy_j=energy_j,
                interval=interval,
                objective=self.objective.name,
                value=value,
                tied=ties(value, each, interval),
                memory_bytes=each.memory.total_bytes,
                predictor=over.knowledge.name,
                measured=any(each.name in measured for each in same_boards(gpu)),
                cost=self.tariff.cost(time_s, energy_j, gpu.name),
                carbon_g=self.tariff.carbon_g(energy_j),
                notes=notes,
                uncovered=tuple(map(str, coverage.uncovered)),
                uncovered_share=coverage.share,
            )

        return make

    def _value_at(self, interval: Interval, end: int, each: Curve) -> float:
        """The low (0) or high (1) end of the objective's interval."""
        job = self._job(each)
        if interval.energy_j is None or interval.edp_js is None:
            raise energy_not_measured(each.gpu.name)
        if self.objective.name == "edp":
            # The interval of the EDP is narrower than the product of the intervals of energy and time.
            per = (job.batch_size or 1) ** 2 if self.per_sample else 1
            return interval.edp_js[end] / per
        return float(self.objective.value(interval.time_s[end], interval.energy_j[end], job))

    def _job(self, each: Curve) -> Job:
        return Job(each.gpu.name, each.variant.batch_size, self.tariff, self.per_sample)


def _reason_against(
    gpu: GPU, clocks: FloatArray, variant: Variant, need: MemoryNeed, question: Question, tariff: Tariff
) -> str | None:
    """Why a GPU cannot run a job, according to its data sheet; None where it can.

    Raises InputError: the GPU is the only one in the question, and lacks the precision or the power cap.
    """
    try:
        for precision in variant.real_precisions:
            gpu.running_precision(precision)
        gpu.checked_power_limit_w(question.power_limit_w)
    except InputError as error:
        if question.named and len(question.gpus) == 1 and len(question.variants) == 1:
            raise
        return error.what.removeprefix(gpu.name).strip()
    if not len(clocks):
        return f"holds {gpu.min_clock_mhz} to {gpu.max_clock_mhz} MHz"
    if lacking := shortage(need, gpu):
        return lacking
    if tariff.has_prices and tariff.hourly(gpu.name) is None:
        return "has no price per hour"
    return None


def _nothing_runs(question: Question, left_out: Iterable[LeftOut]) -> InputError:
    by_reason: dict[str, list[str]] = {}
    for out in left_out:
        by_reason.setdefault(out.reason, []).append(out.gpu)
    needs = [memory_need(variant.network).total_bytes for variant in question.variants]
    largest = max(question.gpus, key=usable_bytes)
    reasons = [f"{gpus[0]}{f' and {len(gpus) - 1} more' if gpus[1:] else ''}: {why}" for why, gpus in by_reason.items()]
    if min(needs) > usable_bytes(largest):
        return InputError(
            "this job fits into the memory of no GPU",
            given=f"an estimated {si(min(needs), 'B')}",
            allowed=f"at most {si(usable_bytes(largest), 'B')}, on the {largest.aliases[0]}",
            hint="try a smaller batch or a lower precision; joulecast does not split a job over several GPUs here",
        )
    return InputError(
        "no GPU can run this job",
        given="; ".join(reasons[:4]) + (f"; and {len(reasons) - 4} more reasons" if len(reasons) > 4 else ""),
        hint="ask for other GPUs, clocks or precisions; `joulecast gpus` lists them",
    )
