"""`joulecast account evaluate`: how reliable the accounting of a model is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..units import si
from .account_arguments import Device, RunModel, Sensors, Training, chosen_sensors, module_and_shapes
from .options import AsJson, ModelOptions, ModeOption, Shapes, mode_of
from .printing import table

if TYPE_CHECKING:
    from ..accounting.evaluation import Evaluation


def evaluate(
    model: RunModel,
    input_shape: Shapes = None,
    training: Training = False,
    mode: ModeOption = None,
    device: Device = "cpu",
    model_option: ModelOptions = None,
    experiments: Annotated[int, typer.Option(min=2, help="Equal runs that are compared.")] = 4,
    iterations: Annotated[int, typer.Option(min=2, help="Iterations of each run.")] = 25,
    pairs: Annotated[int, typer.Option(min=1, help="Blocks with and without the profiler, for its overhead.")] = 5,
    sensors: Sensors = None,
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

    module, shapes = module_and_shapes(model, input_shape, model_option)
    asked_mode = mode_of(training, mode)
    with steps_of(module, shapes, asked_mode, find_device(device), None) as steps:
        evaluation = evaluate_model(
            steps, experiments=experiments, iterations=iterations, pairs=pairs, sensors=chosen_sensors(sensors)
        )
    if save is not None:
        evaluation.save(save)
    typer.echo(json.dumps(evaluation.to_dict(), indent=1) if as_json else _evaluation_text(evaluation))


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
