"""`joulecast account evaluate`: how reliable the accounting of a model is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..units import si
from .options import RAN, AsJson, Asked, asking, module_to_run
from .printing import table, tell

if TYPE_CHECKING:
    from ..accounting.evaluation import Evaluation


@asking(**RAN)
def evaluate(
    asked: Asked,
    experiments: Annotated[int, typer.Option(min=2, help="Equal runs that are compared.")] = 4,
    iterations: Annotated[int, typer.Option(min=2, help="Iterations of each run.")] = 25,
    pairs: Annotated[int, typer.Option(min=1, help="Blocks with and without the profiler, for its overhead.")] = 5,
    save: Annotated[Path | None, typer.Option("--save", help="Draw the correlations into a PNG or SVG file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate how reliable the accounting of a model is, and compare it with what SMARAGDINE reported.

    Prints correlations of the joules of modules between runs with different sampling periods (ASSS), with different
    lengths (ASSW), and between equal runs, and the overhead of the profiler. Without an energy counter, power is
    simulated.
    """
    from ..accounting.experiments import evaluate_model
    from ..accounting.steps import steps_of
    from ..profiling.devices import find_device

    with steps_of(*module_to_run(asked), asked["mode"], find_device(asked["device"]), None) as steps:
        evaluation = evaluate_model(
            steps, experiments=experiments, iterations=iterations, pairs=pairs, sensors=asked["sensors"]
        )
    if save is not None:
        evaluation.save(save)
    tell(evaluation, as_json, False, lambda: _evaluation_text(evaluation))


def _evaluation_text(found: Evaluation) -> str:
    from ..accounting.evaluation import PUBLISHED, off_diagonal

    def correlations(matrix: Any) -> str:
        pairs = off_diagonal(matrix)
        return f"{pairs.min():.3f} to {pairs.max():.3f}"

    def percent(mean: float | None, std: float | None) -> str:
        return "not measured" if mean is None or std is None else f"{100 * mean:+.1f} +- {100 * std:.1f} %"

    shortest, *longer = (found.iterations * length_s / found.lengths_s[-1] for length_s in found.lengths_s)
    rows = [
        ["ASSS: correlation over sampling periods", correlations(found.by_period), PUBLISHED["ASSS"]],
        ["the same of operators instead of modules", correlations(found.by_period_of_operators), ""],
        [
            f"ASSW: {', '.join(f'{length:.0f}' for length in longer)} iterations against {shortest:.0f}",
            f"{found.assw.min():.3f} to {found.assw.max():.3f}",
            PUBLISHED["ASSW"],
        ],
        ["correlation of equal runs", correlations(found.by_experiment), ""],
    ]
    if found.overhead is not None:
        cost = found.overhead
        rows += [
            ["overhead in time of the profiler", percent(cost.time, cost.time_std), PUBLISHED["overhead in time"]],
            ["overhead in energy", percent(cost.energy, cost.energy_std), PUBLISHED["overhead in energy"]],
        ]
    rows += [
        [f"largest error of a module, sampled every {si(period_s, 's')}", f"{100 * error:.1f} %", ""]
        for period_s, error in found.errors.items()
    ]
    head = f"{found.title}: {found.experiments} runs of {found.iterations} iterations, {found.power} power"
    shown = table(["", "here", "SMARAGDINE"], rows, frozenset({1, 2}))
    notes = [
        "Only profiled iterations pay for the profiler; the joules of `joulecast account` come from a loop without it."
    ]
    if found.power == "simulated":
        notes.append(
            "No energy counter could be read: the operators ran, but their watts are made up, each operator its own. "
            "Errors are of modules with over 5 % of the joules."
        )
    return "\n".join([head, "", shown, "", *notes])
