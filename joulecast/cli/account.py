"""`joulecast account`: measured energy by module, from a model that runs here or from a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError
from ..units import si
from .account_study import evaluate, merge, repeats_text, study
from .options import OPTIONS, RAN, AsJson, Asked, Option, asking, module_to_run, option
from .printing import Column, listing, tell

if TYPE_CHECKING:
    from ..accounting.result import Accounting
    from ..predictors.networks.prediction import Prediction

_RUN = "run"
_OTHERS: Mapping[str, Callable[..., None]] = {"evaluate": evaluate, "merge": merge, "study": study}
_LEAST_SHARE = 0.001  # Of the whole; parts below it are not listed, so that a tree stays readable.


class _AccountGroup(typer.core.TyperGroup):
    """`joulecast account MODEL SHAPE` accounts for a model; `joulecast account evaluate` is a subcommand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (_RUN, *_OTHERS, "--help"):
            args = [_RUN, *args]
        return list(super().parse_args(ctx, args))


app = typer.Typer(
    cls=_AccountGroup,
    no_args_is_help=True,
    help="Account measured energy to modules: joulecast account MODEL SHAPE [OPTIONS]. See `joulecast account run "
    "--help`.",
)


@app.command(_RUN)
@asking(
    **RAN,
    optimizer=Option(option(str | None, help="sgd, adam or adamw, or adamw_fused: step after each backward.")),
    loop=Option(
        option(float, help="Shortest length in seconds of the undisturbed loop, which gives the joules."), "loop_s", 3.0
    ),
    iterations=Option(
        Annotated[int, typer.Option(min=1, help="Iterations under the profiler, which give the shares.")],
        "profiled_iterations",
        5,
    ),
    predictor=OPTIONS["predictor"],
)
def run(
    asked: Asked,
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
    bars: Annotated[
        Path | None, typer.Option(help="With --repeat: draw the largest parts into this SVG, PNG or HTML file.")
    ] = None,
    graph: Annotated[
        Path | None,
        typer.Option(help="Write the graph of modules, joules and tensors between them: .graphml, .json or .svg."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write plots: one page (.html), or PNG files into an existing folder.")
    ] = None,
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
    predictor = asked.pop("predictor")
    accountings = [_accounting(asked, trace, recording, clock_offset) for _ in range(1 if trace else repeat)]
    if own:
        accountings = [each.of_program() for each in accountings]
    accounting, prediction = accountings[-1], None
    if gpu is not None:
        prediction = _predicted(asked, gpu, predictor)
        if static_power is not None:
            accounting = accounting.by_model(prediction, static_power)
    if save is not None:
        accounting.save(save)
    if graph is not None:
        from ..accounting.graph import energy_graph

        energy_graph(*module_to_run(asked), accounting).save(graph)
    repeats = ""
    if len(accountings) > 1:
        trees = [each.summarized() if summarized else each.tree() for each in accountings]
        repeats = f"\n{repeats_text(trees, top, bars)}"
    tell(accounting, as_json, False, lambda: _text(accounting, depth, summarized, top))
    if as_json:
        return
    if repeats:
        typer.echo(repeats)
    if prediction is not None:
        typer.echo(f"\n{_comparison(accounting, prediction)}")


for _name, _command in _OTHERS.items():
    app.command(_name)(_command)


def _accounting(asked: Asked, trace: Path | None, recording: Path | None, clock_offset: float) -> Accounting:
    from ..accounting.account import account, account_trace

    if trace is not None:
        if asked["model"] is not None:
            raise InputError(
                "give either a model or a trace",
                given=f"--trace and {asked.given['model']}",
                allowed="a model to run here, or a trace of a run",
                hint="leave one of them out",
            )
        return account_trace(trace, recording, clock_offset_s=clock_offset)
    if recording is not None:
        raise InputError(
            "a recording can only be used with a trace",
            given=f"--recording {recording} without --trace",
            hint="a model that runs here is measured while it runs: leave the recording out",
        )
    how: dict[str, Any] = {
        name: asked[name] for name in ("mode", "device", "optimizer", "sensors", "loop_s", "profiled_iterations")
    }
    accounting: Accounting = account(*module_to_run(asked), **how)
    return accounting


def _predicted(asked: Asked, gpu: str, predictor: str | None) -> Prediction:
    from ..api import predict

    if asked["model"] is None or asked["input_shape"] is None:
        raise InputError(
            "a prediction needs the model and its shape",
            given="--gpu with --trace",
            hint="give both, such as resnet50 8,3,224,224, or leave out --gpu",
        )
    model = {name: asked[name] for name in ("model", "input_shape", "mode", "model_options")}
    return predict(**model, gpu=gpu, predictor=predictor)


def _comparison(found: Accounting, prediction: Prediction) -> str:
    """The predicted joules of modules against the accounted ones, where joules were measured."""
    on = f"predicted on {prediction.gpu}"
    if found.measured:
        return f"{on} against accounted joules of modules:\n{found.compare(prediction)}"
    return f"{on}: {si(prediction.energy_j, 'J')}; without joules of this machine there is nothing to compare"


def _text(found: Accounting, depth: int, summarized: bool, top: int) -> str:
    from ..accounting.text import energy_text, table_text

    def watts(node: Any) -> str:
        return si(node.own.energy_j / node.own.time_s, "W") if found.known and node.own.time_s else "-"

    tree = found.summarized() if summarized else found.tree()
    parts = [str(found), found.basis, "", table_text(tree, found.duration_s, depth, _LEAST_SHARE)]
    if top:
        columns = [
            Column("module", lambda node: node.path or "(model)", right=False),
            Column("operator", lambda node: node.name, right=False),
            Column("phase", lambda node: node.phase or "", right=False),
            Column("energy", lambda node: energy_text(node.own)),
            Column("time", lambda node: si(node.own.time_s, "s")),
            Column("power", watts),
        ]
        parts += ["", listing(found.top(top, summarized=summarized), columns)]
    left_out = f"parts below {100 * _LEAST_SHARE:g} % are not in the tree above; --save and --json have them all"
    parts += ["", *(f"note: {note}" for note in (left_out, *found.notes))]
    return "\n".join(parts)
