"""Searches for the best way to run a job within limits, and compares all ways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..checked import in_range
from ..errors import InputError
from ..hardware import GPU, same_boards
from ..predictors.intervals.network_calibration import Interval
from ..predictors.networks.costs import Coverage
from ..predictors.networks.memory import memory_need, shortage, usable_bytes
from ..predictors.networks.prediction import energy_not_measured
from ..predictors.networks.predictor import AtClock, NetworkPredictor
from ..predictors.networks.prepared import OverClocks, PreparedNetwork, over_gpus
from ..progress import paced
from ..rendering.described import LEVEL
from ..units import si
from ..zoo import find_predictor
from ..zoo.cards import measured_gpus
from ..zoo.store import pulled
from .choice import Choice, Choices, LeftOut, left_out_lines
from .evaluation import Question, Variant, held_clocks_mhz
from .objectives import Tariff, find_objective
from .sweep import Sweep


@dataclass(frozen=True)
class Curve:
    """The predictions of one job on one GPU, over ascending clocks."""

    variant: Variant  # The job in one precision and batch size
    over: OverClocks  # The predictions, as arrays with one value per clock

    @property
    def gpu(self) -> GPU:
        """The GPU."""
        return self.over.prepared.knowledge.operations.gpu


class _Limit(NamedTuple):
    """The most that a choice may need of something."""

    name: str  # "deadline"
    broken: str  # What a GPU does that needs more: "misses the deadline"
    most: float
    unit: str

    def of(self, curve: Curve) -> FloatArray:
        return curve.over.time_s if self.unit == "s" else curve.over.energy_j / curve.over.time_s


@dataclass(frozen=True)
class Constraints:
    """Limits on a choice. None stands for no limit."""

    max_time_s: float | None = None
    max_power_w: float | None = None  # Mean board power over an iteration

    def __post_init__(self) -> None:
        for name in ("max_time_s", "max_power_w"):
            if getattr(self, name) is not None:
                in_range(name, getattr(self, name), above=True)

    @property
    def limits(self) -> list[_Limit]:
        """The limits that are given."""
        asked = (
            ("deadline", "misses the deadline", self.max_time_s, "s"),
            ("power budget", "exceeds the power budget", self.max_power_w, "W"),
        )
        return [_Limit(name, broken, most, unit) for name, broken, most, unit in asked if most is not None]

    def none_satisfied(self, curves: Sequence[Curve], left_out: int) -> InputError:
        """The error when no clock of any curve satisfies the limits. It names what binds, and the nearest choice."""
        limits, clocks = self.limits, [(curve, place) for curve in curves for place in range(len(curve.over.time_s))]
        needs = [np.concatenate([limit.of(curve) for curve in curves]) for limit in limits]
        # How far each choice exceeds the limit that it misses most, as a ratio.
        beyond = np.max([need / limit.most for need, limit in zip(needs, limits, strict=True)], axis=0)
        curve, place = clocks[int(np.argmin(beyond))]
        time_s, energy_j = curve.over.time_s[place], curve.over.energy_j[place]
        alone = [limit.name for need, limit in zip(needs, limits, strict=True) if need.min() > limit.most]
        binding = " and the ".join(alone or [limit.name for limit in limits]) + ("" if alone else " together")
        least = (f"{limit.name} of {si(need.min(), limit.unit)}" for need, limit in zip(needs, limits, strict=True))
        more = f"; {left_out} more cannot run the job at all, and `joulecast sweep` lists the reasons"
        batch = "" if curve.variant.batch_size is None else f", batch {curve.variant.batch_size}"
        name = f"{curve.gpu.aliases[0]} ({curve.variant.precision}{batch})"
        return InputError(
            f"no choice satisfies the {binding}",
            given=", ".join(f"{limit.name} {si(limit.most, limit.unit)}" for limit in limits),
            allowed=f"at least a {', '.join(least)}",
            hint=f"nearest: {name} at {curve.over.clocks_mhz[place]:g} MHz with {si(time_s, 's')} and "
            f"{si(energy_j / time_s, 'W')}{more if left_out else ''}",
        )


def best(question: Question, objective: str, tariff: Tariff, constraints: Constraints) -> Choices:
    """Find the best clock of each GPU, precision and batch size; the best choice comes first."""
    compared, limits = _Compared(question, objective, tariff), constraints.limits
    points, missed = [], []
    for curve in compared.curves:
        satisfied = np.all([limit.of(curve) <= limit.most for limit in limits], axis=0)
        allowed = np.where(satisfied, compared.values(curve), np.inf)
        place = int(np.argmin(allowed))
        if np.isfinite(allowed[place]):
            points.append((float(allowed[place]), curve, place))
        else:
            alone = [limit.broken for limit in limits if limit.of(curve).min() > limit.most]
            broken = " or ".join(alone or [limit.broken for limit in limits])
            missed.append(_left_out(curve.gpu, curve.variant, f"{broken} at every clock"))
    if not points:
        raise constraints.none_satisfied(compared.curves, len(compared.left_out))
    points.sort(key=lambda point: point[0])
    ordered = [(curve, place) for _, curve, place in points]
    return Choices(compared.choices(ordered, *ordered[0]), (*compared.left_out, *missed))


def sweep(question: Question, objective: str, tariff: Tariff) -> Sweep:
    """Predict the job at all clocks of each GPU, precision and batch size.

    Raises InputError: no GPU can run the job. Raises UncoveredError: too large a part of the job is not covered. Raises
    ZooError: a predictor is missing or damaged.
    """
    compared = _Compared(question, objective, tariff)
    points = [(curve, place) for curve in compared.curves for place in range(len(curve.over.time_s))]
    lowest = int(np.argmin(np.concatenate([compared.values(curve) for curve in compared.curves])))
    first = question.variants[0].network
    return Sweep(
        network=first.name,
        input_shape=first.input_shape,
        mode=first.mode,
        objective=objective,
        rows=compared.choices(points, *points[lowest]),
        tariff=tariff,
        left_out=compared.left_out,
    )


def _left_out(gpu: GPU, variant: Variant, reason: str) -> LeftOut:
    return LeftOut(gpu.aliases[0], variant.precision, variant.batch_size, reason)


class _Compared:
    """A job on all GPUs of a question that can run it, with the values of the objective."""

    def __init__(self, question: Question, objective: str, tariff: Tariff) -> None:
        self.objective = find_objective(objective, tariff, None not in question.batch_sizes)
        self.tariff = tariff
        self.curves: list[Curve] = []
        self._per_sample = len(question.batch_sizes) > 1 or self.objective.per_sample
        left_out: list[LeftOut] = []
        for variant in question.variants:
            Coverage.of(variant.network).refuse_too_much(variant.network.name)
        mode, cap_w = question.variants[0].network.mode, question.job.power_limit_w
        variants: list[Variant] = []
        asked: list[tuple[PreparedNetwork, FloatArray]] = []
        rows = pulled()
        for gpu in paced(question.gpus):
            clocks = held_clocks_mhz(gpu, question.clocks, refuse=question.named)
            # A calibration is that of a single GPU.
            profile = question.execution.profile
            run = replace(question.execution, profile=profile and profile.of_gpu(gpu.name))
            predictor: NetworkPredictor | None = None
            for variant in question.variants:
                if reason := _reason_against(gpu, clocks, variant, question, tariff):
                    left_out.append(_left_out(gpu, variant, reason))
                else:
                    predictor = predictor or find_predictor(gpu, mode, question.job.predictor, listed=rows).under(run)
                    asked.append((predictor.prepared(variant.network, cap_w), clocks))
                    variants.append(variant)
        for variant, found in zip(variants, over_gpus(asked), strict=True):
            if missing := found.prepared.missing:
                # Its totals lack something, so it could win because it is incomplete.
                name, gpu = found.prepared.knowledge.name, found.prepared.knowledge.operations.gpu
                reason = f"{name} does not cover {missing} of {len(variant.network)} operations"
                left_out.append(_left_out(gpu, variant, reason))
            else:
                self.curves.append(Curve(variant, found))
        if not self.curves:
            raise _nothing_runs(question, left_out)
        self.left_out = tuple(left_out)

    def values(self, curve: Curve) -> FloatArray:
        found: FloatArray = self._value(curve, curve.over.time_s, curve.over.energy_j)
        return found

    def choices(self, points: Iterable[tuple[Curve, int]], best: Curve, at: int) -> tuple[Choice, ...]:
        """Curves with indices into their clocks as choices, which are tied with the best one or not."""
        least = float(self.values(best)[at])
        of_best = AtClock(best.over, at).interval(LEVEL)
        high = None if of_best is None else self._end(of_best, 1, best)
        measured = measured_gpus()

        found = []
        for curve, place in paced(points):
            over, gpu, network, coverage = curve.over, curve.gpu, curve.variant.network, curve.over.prepared.coverage
            there = AtClock(over, place)
            interval = there.interval(LEVEL)
            time_s, energy_j = float(over.time_s[place]), float(over.energy_j[place])
            value = float(self._value(curve, time_s, energy_j))
            tied = (
                value <= high if high is not None else interval is not None and self._end(interval, 0, curve) <= least
            )
            choice = Choice(
                gpu=gpu.name,
                alias=gpu.aliases[0],
                clock_mhz=float(over.clocks_mhz[place]),
                default_clock_mhz=float(gpu.boost_clock_mhz),
                held_clock_mhz=float(over.held_clocks_mhz[place]),
                power_limit_w=over.prepared.power_limit_w,
                precision=curve.variant.precision,
                mode=network.mode,
                batch_size=curve.variant.batch_size,
                time_s=time_s,
                energy_j=energy_j,
                interval=interval,
                objective=self.objective.name,
                value=value,
                # Two clocks of one GPU are never tied: their errors are the same, and cancel when they are compared.
                tied=tied and curve is not best,
                memory_bytes=network.derived(memory_need).total_bytes,
                predictor=over.prepared.knowledge.name,
                measured=any(each.name in measured for each in same_boards(gpu)),
                cost=self.tariff.cost(time_s, energy_j, gpu.name),
                carbon_g=self.tariff.carbon_g(energy_j),
                notes=tuple(there.notes()),
                uncovered=tuple(map(str, coverage.uncovered)),
                uncovered_share=coverage.share,
            )
            found.append(choice)
        return tuple(found)

    def _samples(self, curve: Curve) -> int | None:
        return curve.variant.batch_size if self._per_sample else None

    def _value(self, curve: Curve, time_s: FloatArray | float, energy_j: FloatArray | float) -> Any:
        return self.objective.value(time_s, energy_j, self._samples(curve), self.tariff, curve.gpu.name)

    def _end(self, interval: Interval, end: int, curve: Curve) -> float:
        """The low (0) or high (1) end of the objective's interval."""
        if interval.energy_j is None or interval.edp_js is None:
            raise energy_not_measured(curve.gpu.name)
        if self.objective.name == "edp":
            # The interval of the EDP is narrower than the product of the intervals of energy and time.
            return interval.edp_js[end] / (self._samples(curve) or 1) ** 2
        return float(self._value(curve, interval.time_s[end], interval.energy_j[end]))


def _reason_against(gpu: GPU, clocks: FloatArray, variant: Variant, question: Question, tariff: Tariff) -> str | None:
    """Why a GPU cannot run a job, according to its data sheet; None where it can.

    Raises InputError: the GPU is the only one in the question, and lacks the precision or the power cap.
    """
    try:
        for precision in {operation.precision for operation in variant.network.operations}:
            gpu.running_precision(precision)
        gpu.checked_power_limit_w(question.job.power_limit_w)
    except InputError as error:
        if question.named and len(question.gpus) == 1 and len(question.variants) == 1:
            raise
        return error.what.removeprefix(gpu.name).strip()
    if not len(clocks):
        return f"holds {gpu.min_clock_mhz} to {gpu.max_clock_mhz} MHz"
    if lacking := shortage(variant.network.derived(memory_need), gpu):
        return lacking
    return "has no price per hour" if tariff.has_prices and tariff.hourly(gpu.name) is None else None


def _nothing_runs(question: Question, left_out: Iterable[LeftOut]) -> InputError:
    least = min(variant.network.derived(memory_need).total_bytes for variant in question.variants)
    largest = max(question.gpus, key=usable_bytes)
    if least > usable_bytes(largest):
        return InputError(
            "this job fits into the memory of no GPU",
            given=f"an estimated {si(least, 'B')}",
            allowed=f"at most {si(usable_bytes(largest), 'B')}, on the {largest.aliases[0]}",
            hint="try a smaller batch or a lower precision; joulecast does not split a job over several GPUs here",
        )
    return InputError(
        "no GPU can run this job",
        given="; ".join(left_out_lines(left_out)),
        hint="ask for other GPUs, clocks or precisions; `joulecast gpus` lists them",
    )
