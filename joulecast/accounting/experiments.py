"""Runs a model several times on this machine, to evaluate the accounting and the overhead of profiling."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from typing import Any

import numpy as np

from ..errors import InputError
from .evaluation import ITERATIONS, Evaluation, Experiment, Overhead, evaluate, known_power
from .passes import looped, meter_of, profiled_events, recording_of, runs_on_gpu
from .shares import counters_of
from .steps import Steps, profiled

_INTERVAL_S = 0.005
_WARM_UP = 2


def evaluate_model(
    steps: Steps,
    *,
    experiments: int = 4,
    iterations: int = ITERATIONS,
    pairs: int = 5,
    sensors: Collection[str] | None = None,
) -> Evaluation:
    """Evaluate how reliable the accounting of a model is, from several equal runs.

    If this machine has no energy counter, the power of the operators that ran is simulated (`simulated_power`). Raises
    InputError: a number is too small. Raises ExtractionError: the model raises an error.

    Args:
        pairs: Number of pairs of blocks with and without the profiler, whose comparison gives its overhead.
        sensors: Devices to measure; None for all that have a counter, empty for simulated power.
    """
    if experiments < 2 or iterations < 2 or pairs < 1:
        raise InputError(
            "there are too few runs to compare",
            given=f"{experiments} experiments of {iterations} iterations, {pairs} pairs of blocks",
            allowed="at least 2 experiments of at least 2 iterations, and at least 1 pair",
            hint="use the defaults: 4 experiments of 25 iterations, 5 pairs",
        )
    for _ in range(_WARM_UP):
        steps.run()
    runs = [_experiment(steps, iterations, sensors) for _ in range(experiments)]
    return evaluate(steps.title, runs, overhead=_overhead(steps, iterations, pairs, sensors))


def _experiment(steps: Steps, iterations: int, sensors: Collection[str] | None) -> Experiment:
    meter = meter_of(sensors, _INTERVAL_S)
    with meter or nullcontext():
        events = profiled_events(steps, iterations)
    recording = recording_of(meter)
    counters = () if recording is None else counters_of(recording, events.origin_ns)
    if counters and all(counter.device.method == "measured" for counter in counters):
        return Experiment(events, counters)
    known = [known_power(events, device) for device in events.devices]
    joules = np.sum([each.energy_j for each in known], axis=0)
    return Experiment(events, tuple(each.counter for each in known), joules)


def _overhead(steps: Steps, iterations: int, pairs: int, sensors: Collection[str] | None) -> Overhead:
    """Compare blocks with and without the profiler in pairs; the order alternates, so that a drift cancels."""
    longer, more = [], []
    for pair in range(pairs):
        found = {}
        for profile in (pair % 2 == 1, pair % 2 == 0):
            with profiled(steps.module, on_gpu=runs_on_gpu(steps)) if profile else nullcontext():
                found[profile] = _block(steps, iterations, sensors)
        (plain_s, plain_j), (profiled_s, profiled_j) = found[False], found[True]
        longer.append(profiled_s / plain_s - 1)
        if plain_j and profiled_j:
            more.append(profiled_j / plain_j - 1)
    energy: dict[str, Any] = {"energy": float(np.mean(more)), "energy_std": float(np.std(more))} if more else {}
    return Overhead(float(np.mean(longer)), float(np.std(longer)), **energy)


def _block(steps: Steps, iterations: int, sensors: Collection[str] | None) -> tuple[float, float | None]:
    """Seconds and joules of a block of iterations; None instead of joules that are not known."""
    meter = meter_of(sensors)
    with meter or nullcontext():
        start_s, end_s, _ = looped(steps, meter, iterations)
    found = meter.result() if meter is not None and meter.measures else None
    if found is None or found.source != "measured":
        return end_s - start_s, None
    return end_s - start_s, found.tree().at("loop").total.energy_j
