"""`joulecast account`: measured energy by module, of a model that runs here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import InputError
from ..units import si
from .options import Asked, module_to_run
from .printing import Column, listing, table, tell

if TYPE_CHECKING:
    from ..accounting.result import Accounting
    from ..energy import EnergyTree
    from ..predictors.networks.prediction import Prediction


_LEAST_SHARE = 0.001  # Of the whole; parts below it are not listed, so that a tree stays readable.


def run(
    asked: Asked,
    gpu: str | None = None,
    static_power: float | None = None,
    depth: int = 3,
    summarized: bool = False,
    top: int = 10,
    own: bool = False,
    repeat: int = 1,
    bars: Path | None = None,
    plot: Path | None = None,
    as_json: bool = False,
) -> None:
    """Run a model, and attribute the measured joules to modules and operators."""
    if static_power is not None and gpu is None:
        raise InputError(
            "static power is only used to divide joules by a prediction",
            given="--static-power without --gpu",
            allowed="both or neither",
            hint="add --gpu",
        )
    if bars is not None and repeat == 1:
        raise InputError(
            "bars are drawn of repeated accountings",
            given=f"--bars {bars} without --repeat",
            hint="add --repeat 5; --plot page.html draws one accounting",
        )
    predictor = asked.pop("predictor")
    accountings = [_accounting(asked) for _ in range(repeat)]
    if own:
        accountings = [each.of_program() for each in accountings]
    accounting, prediction = accountings[-1], None
    if gpu is not None:
        prediction = _predicted(asked, gpu, predictor)
        if static_power is not None:
            accounting = accounting.by_model(prediction, static_power)
    repeats = ""
    if len(accountings) > 1:
        trees = [each.summarized() if summarized else each.tree() for each in accountings]
        repeats = f"\n{repeats_text(trees, top, bars)}"
    if plot is not None:
        (accounting.summarized() if summarized else accounting.tree()).plot(plot)
    tell(accounting, as_json, False, lambda: _text(accounting, depth, summarized, top))
    if as_json:
        return
    if repeats:
        typer.echo(repeats)
    if prediction is not None:
        typer.echo(f"\n{_comparison(accounting, prediction)}")


def _accounting(asked: Asked) -> Accounting:
    from ..accounting.account import account

    how: dict[str, Any] = {
        name: asked[name] for name in ("mode", "device", "optimizer", "sensors", "loop_s", "profiled_iterations")
    }
    accounting: Accounting = account(*module_to_run(asked), **how)
    return accounting


def _predicted(asked: Asked, gpu: str, predictor: str | None) -> Prediction:
    from ..api import predict

    model = {name: asked[name] for name in ("model", "input_shape", "mode", "model_options")}
    return predict(**model, gpu=gpu, predictor=predictor)


def _comparison(found: Accounting, prediction: Prediction) -> str:
    """The predicted joules of modules against the accounted ones, where joules were measured."""
    on = f"predicted on {prediction.gpu}"
    if found.measured:
        return f"{on} against accounted joules of modules:\n{found.compare(prediction)}"
    return f"{on}: {si(prediction.energy_j, 'J')}; without joules of this machine there is nothing to compare"


def _text(found: Accounting, depth: int, summarized: bool, top: int) -> str:
    from ..energy.tree import joules_text

    def watts(node: Any) -> str:
        return si(node.own.energy_j / node.own.time_s, "W") if found.known and node.own.time_s else "-"

    parts = [str(found), found.basis, "", found.to_text(depth, _LEAST_SHARE, summarized=summarized)]
    if top:
        columns = [
            Column("module", lambda node: node.path or "(model)", right=False),
            Column("operator", lambda node: node.name, right=False),
            Column("phase", lambda node: node.phase or "", right=False),
            Column("energy", lambda node: joules_text(node.own)),
            Column("time", lambda node: si(node.own.time_s, "s")),
            Column("power", watts),
        ]
        parts += ["", listing(found.top(top, summarized=summarized), columns)]
    left_out = f"parts below {100 * _LEAST_SHARE:g} % are not in the tree above; --json has them all"
    parts += ["", *(f"note: {note}" for note in (left_out, *found.notes))]
    return "\n".join(parts)


# `joulecast account merge` and `study`: the ranks of a parallel training, and variants of a model.


def merge(accounts: list[Path], depth: int = 3, as_json: bool = False) -> None:
    """Merge the accountings of the ranks of a parallel training: joules are added, the longest time counts."""
    from ..energy.tree import EnergyTree, merged

    trees = {}
    for path in accounts:
        try:
            trees[path.stem] = EnergyTree.from_dict(json.loads(path.read_text("utf-8"))["tree"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                "this file is not an accounting",
                given=f"{path}: {error}",
                allowed="what `joulecast account ... --json` prints",
                hint="write the output of each rank to a file of its own",
            ) from error
    tree = merged(f"{len(trees)} ranks", trees)
    typer.echo(json.dumps(tree.to_dict(), indent=1) if as_json else tree.to_text(depth))


def repeats_text(trees: Sequence[EnergyTree], top: int, bars_file: Path | None) -> str:
    """The largest parts of several equal runs, with mean and standard deviation."""
    from ..energy.comparison import repeated
    from ..rendering.notebook import Bar, Picture, bars

    parts = repeated([tree.root for tree in trees])[:top]
    unit = "J" if parts and parts[0].energy_j else "s"
    rows, drawn = [], []
    for part in parts:
        text = f"{si(part.mean, unit)} +- {si(part.deviation, unit)}"
        rows.append([part.path or "(model)", part.name, part.phase, text])
        ends = max(0.0, part.mean - part.deviation), part.mean + part.deviation
        drawn.append(Bar(f"{part.path} {part.name} {part.phase}", part.mean, text, ends))
    title = f"{len(trees)} runs, mean and standard deviation"
    if bars_file is not None:
        Picture(bars(drawn, title)).save(bars_file)
    return f"{title}\n\n" + table(["module", "operator", "phase", "energy" if unit == "J" else "time"], rows)
