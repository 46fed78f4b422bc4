"""`joulecast account`: measured energy by module, from a model that runs here or from a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError
from ..operations.inputs import parse_shapes
from ..units import si
from .account_arguments import Device, RunModel, Sensors, Training, chosen_sensors, module_and_shapes
from .account_evaluation import evaluate
from .account_study import merge, repeats_text, study
from .options import AsJson, ModelOptions, ModeOption, Predictor, Shapes, mode_of
from .printing import table
from .reading import model_and_options

if TYPE_CHECKING:
    from ..accounting.result import Accounting
    from ..predictors.networks.prediction import Prediction

_RUN, _EVALUATE, _MERGE, _STUDY = "run", "evaluate", "merge", "study"
_LEAST_SHARE = 0.001  # Of the whole; parts below it are not listed, so that a tree stays readable.


class _AccountGroup(typer.core.TyperGroup):
    """`joulecast account MODEL SHAPE` accounts for a model; `joulecast account evaluate` is a subcommand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (_RUN, _EVALUATE, _MERGE, _STUDY, "--help"):
            args = [_RUN, *args]
        return list(super().parse_args(ctx, args))


app = typer.Typer(
    cls=_AccountGroup,
    no_args_is_help=True,
    help="Account measured energy to modules: joulecast account MODEL SHAPE [OPTIONS]. See `joulecast account run "
    "--help`.",
)

app.command(_EVALUATE)(evaluate)
app.command(_MERGE)(merge)
app.command(_STUDY)(study)

Loop = Annotated[
    float, typer.Option("--loop", help="Shortest length in seconds of the undisturbed loop, which gives the joules.")
]
Save = Annotated[
    Path | None, typer.Option("--save", help="Write plots: one page (.html), or PNG files into an existing folder.")
]


@app.command(_RUN)
def run(
    model: RunModel = None,
    input_shape: Shapes = None,
    training: Training = False,
    mode: ModeOption = None,
    device: Device = "cpu",
    optimizer: Annotated[
        str | None, typer.Option(help="sgd, adam or adamw, or adamw_fused: step after each backward.")
    ] = None,
    model_option: ModelOptions = None,
    loop: Loop = 3.0,
    iterations: Annotated[int, typer.Option(min=1, help="Iterations under the profiler, which give the shares.")] = 5,
    sensors: Sensors = None,
    trace: Annotated[
        Path | None, typer.Option(help="Account for this trace of torch.profiler (JSON, also .gz) instead of a model.")
    ] = None,
    recording: Annotated[
        Path | None, typer.Option(help="What `joulecast measure --out` wrote while the trace was taken.")
    ] = None,
    clock_offset: Annotated[
        float, typer.Option(help="Seconds by which the clock of the trace is ahead of the recording's.")
    ] = 0.0,
    gpu: Annotated[
        str | None, typer.Option(help="Predict the model on this GPU, and compare module by module.")
    ] = None,
    predictor: Predictor = None,
    static_power: Annotated[
        float | None,
        typer.Option(help="With --gpu: static power in watts; joules above it are divided by the prediction."),
    ] = None,
    depth: Annotated[int, typer.Option(min=0, help="Levels of the tree to show; 0 for all.")] = 3,
    summarized: Annotated[bool, typer.Option("--summarized", help="Add up repeated layers.")] = False,
    top: Annotated[int, typer.Option(min=0, help="How many of the largest parts to list; 0 for none.")] = 10,
    own: Annotated[
        bool, typer.Option("--own", help="Leave out the joules of the machine's other programs, by their shares.")
    ] = False,
    repeat: Annotated[int, typer.Option(min=1, help="Runs whose mean and standard deviation are printed.")] = 1,
    bars: Annotated[Path | None, typer.Option(help="With --repeat: draw the largest parts into this SVG file.")] = None,
    graph: Annotated[
        Path | None,
        typer.Option(help="Write the graph of modules, joules and tensors between them: .graphml, .json or .svg."),
    ] = None,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Run a model or read a trace, and attribute the measured joules to modules and operators."""
    if static_power is not None and gpu is None:
        raise InputError(
            "static power is only used to divide joules by a prediction",
            given="--static-power without --gpu",
            allowed="both or neither",
            hint="add --gpu",
        )
    asked_mode = mode_of(training, mode)
    accounting = (
        _of_trace(trace, recording, clock_offset, model)
        if trace is not None
        else _of_model(
            model, input_shape, asked_mode, device, optimizer, model_option, loop, iterations, sensors, recording
        )
    )
    several = (
        [accounting]
        if trace is not None
        else [
            _of_model(
                model, input_shape, asked_mode, device, optimizer, model_option, loop, iterations, sensors, recording
            )
            for _ in range(repeat - 1)
        ]
        + [accounting]
    )
    if own:
        several = [each.of_program() for each in several]
        accounting = several[-1]
    prediction = None
    if gpu is not None:
        prediction = _predicted(model, input_shape, gpu, asked_mode, predictor, model_option)
        if static_power is not None:
            accounting = accounting.by_model(prediction, static_power)
    if save is not None:
        accounting.save(save)
    if graph is not None:
        from ..accounting.graph import energy_graph

        module, shapes = module_and_shapes(model, input_shape, model_option)
        energy_graph(module, shapes, accounting).save(graph)
    if as_json:
        typer.echo(json.dumps(accounting.to_dict(), indent=1))
        return
    typer.echo(_text(accounting, depth, summarized, top))
    if len(several) > 1:
        typer.echo(
            f"\n{repeats_text([each.summarized() if summarized else each.tree() for each in several], top, bars)}"
        )
    if prediction is not None:
        typer.echo(f"\n{_comparison(accounting, prediction)}")


def _of_trace(trace: Path, recording: Path | None, clock_offset: float, model: str | None) -> Accounting:
    from ..accounting.account import account_trace

    if model is not None:
        raise InputError(
            "give either a model or a trace",
            given=f"--trace and {model}",
            allowed="a model to run here, or a trace of a run",
            hint="leave one of them out",
        )
    return account_trace(trace, recording, clock_offset_s=clock_offset)


def _of_model(
    model: str | None,
    input_shape: list[str] | None,
    mode: str,
    device: str,
    optimizer: str | None,
    model_option: list[str] | None,
    loop: float,
    iterations: int,
    sensors: str | None,
    recording: Path | None,
) -> Accounting:
    from ..accounting.account import account

    if recording is not None:
        raise InputError(
            "a recording can only be used with a trace",
            given=f"--recording {recording} without --trace",
            hint="a model that runs here is measured while it runs: leave the recording out",
        )
    module, shapes = module_and_shapes(model, input_shape, model_option)
    return account(
        module,
        shapes,
        mode=mode,
        device=device,
        optimizer=optimizer,
        sensors=chosen_sensors(sensors),
        loop_s=loop,
        profiled_iterations=iterations,
    )


def _predicted(
    model: str | None,
    input_shape: list[str] | None,
    gpu: str,
    mode: str,
    predictor: str | None,
    model_option: list[str] | None,
) -> Prediction:
    from ..api import predict

    if model is None or input_shape is None:
        raise InputError(
            "a prediction needs the model and its shape",
            given="--gpu with --trace",
            hint="give both, such as resnet50 8,3,224,224, or leave out --gpu",
        )
    made, options = model_and_options(model, model_option)
    return predict(made, parse_shapes(input_shape), gpu, mode=mode, predictor=predictor, model_options=options)


def _comparison(found: Accounting, prediction: Prediction) -> str:
    """The predicted joules of modules against the accounted ones, where joules were measured."""
    on = f"predicted on {prediction.gpu}"
    if found.measured:
        return f"{on} against accounted joules of modules:\n{found.compare(prediction)}"
    return f"{on}: {si(prediction.energy_j, 'J')}; without joules of this machine there is nothing to compare"


def _text(found: Accounting, depth: int, summarized: bool, top: int) -> str:
    from ..accounting.text import energy_text, table_text

    tree = found.summarized() if summarized else found.tree()
    parts = [str(found), found.basis, "", table_text(tree, found.duration_s, depth, _LEAST_SHARE)]
    if top:
        rows = [
            [
                *(node.path or "(model)", node.name, node.phase or "", energy_text(node.own), si(node.own.time_s, "s")),
                si(node.own.energy_j / node.own.time_s, "W") if found.known and node.own.time_s else "-",
            ]
            for node in found.top(top, summarized=summarized)
        ]
        parts += ["", table(["module", "operator", "phase", "energy", "time", "power"], rows, frozenset({3, 4, 5}))]
    left_out = f"parts below {100 * _LEAST_SHARE:g} % are not in the tree above; --save and --json have them all"
    parts += ["", *(f"note: {note}" for note in (left_out, *found.notes))]
    return "\n".join(parts)
