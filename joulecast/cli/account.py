"""`joulecast account`: measured energy by module, of a model that runs here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import InputError
from ..units import si
from .options import Asked
from .printing import Shown, table

if TYPE_CHECKING:
    from ..energy import EnergyTree


def run(
    asked: Asked,
    shown: Shown,
    gpu: str | None = None,
    static_power: float | None = None,
    depth: int = 3,
    summarized: bool = False,
    top: int = 10,
    own: bool = False,
    repeat: int = 1,
    bars: Path | None = None,
) -> None:
    """Run a model, and attribute the measured joules to modules and operators."""
    from ..accounting.account import account
    from ..api import predict

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
    how = {name: asked[name] for name in ("mode", "device", "optimizer", "sensors", "loop_s", "profiled_iterations")}
    accountings = [account(*_module_to_run(asked), **how) for _ in range(repeat)]
    if own:
        accountings = [each.of_program() for each in accountings]
    accounting, prediction = accountings[-1], None
    if gpu is not None:
        model = {name: asked[name] for name in ("model", "input_shape", "mode", "model_options")}
        prediction = predict(**model, gpu=gpu, predictor=predictor)
        if static_power is not None:
            accounting = accounting.by_model(prediction, static_power)
    repeats = ""
    if len(accountings) > 1:
        trees = [each.summarized() if summarized else each.tree() for each in accountings]
        repeats = f"\n{repeats_text(trees, top, bars)}"
    tree = accounting.summarized() if summarized else accounting.tree()
    shown.tell(accounting, lambda: accounting.described(depth, top, summarized=summarized), drawn=tree)
    if shown.as_json:
        return
    if repeats:
        typer.echo(repeats)
    if prediction is not None:
        nothing = f": {si(prediction.energy_j, 'J')}; without joules of this machine there is nothing to compare"
        compared = (
            f" against accounted joules of modules:\n{accounting.compare(prediction)}"
            if accounting.measured
            else nothing
        )
        typer.echo(f"\npredicted on {prediction.gpu}{compared}")


def _module_to_run(asked: Asked) -> tuple[Any, Any]:
    """The module of a command line, with weights, and the shapes of its inputs."""
    from ..accounting.account import needs_torch

    needs_torch()
    from ..extraction.models.named_models import build_to_run

    model, shapes = asked["model"], asked["input_shape"]
    if model is None:
        hint = "give a model and its shape, such as resnet50 8,3,224,224"
        raise InputError("there is nothing to account for", given="no model", hint=hint)
    if shapes is None:
        raise InputError("a model needs the shape of its input", given="none", allowed="such as 8,3,224,224")
    return build_to_run(model, asked["model_options"]) if isinstance(model, str) else model, shapes


# `joulecast account merge` and `study`: the ranks of a parallel training, and variants of a model.


def merge(shown: Shown, accounts: list[Path], depth: int = 3) -> None:
    """Merge the accountings of the ranks of a parallel training: joules are added, the longest time counts."""
    from ..energy.tree import EnergyTree, merged

    trees, stems = {}, [path.stem for path in accounts]
    for path in accounts:
        # Nodes may name the files of their ranks alike, in folders of their own.
        name = path.stem if stems.count(path.stem) == 1 else str(path.with_suffix(""))
        try:
            trees[name] = EnergyTree.from_dict(json.loads(path.read_text("utf-8"))["tree"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                "this file is not an accounting",
                given=f"{path}: {error}",
                allowed="what `joulecast account ... --json` prints",
                hint="write the output of each rank to a file of its own",
            ) from error
    tree = merged(f"{len(trees)} ranks", trees)
    shown.tell(tree, lambda: tree.to_text(depth))


def repeats_text(trees: Sequence[EnergyTree], top: int, bars_file: Path | None) -> str:
    """The largest parts of several equal runs, with mean and standard deviation."""
    from ..energy.comparison import repeated
    from ..rendering.pictures import Bar, Picture, bars

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
