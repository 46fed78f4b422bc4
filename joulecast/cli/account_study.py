"""`joulecast account study`, `merge` and `evaluate`: variants of a model, several runs, and how reliable they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import InputError
from ..units import si
from .options import Asked, module_to_run
from .printing import table, tell
from .reading import model_and_options

if TYPE_CHECKING:
    from ..accounting.evaluation import Evaluation
    from ..accounting.result import Accounting
    from ..energy import EnergyTree


def merge(accounts: list[Path], depth: int = 3, as_json: bool = False) -> None:
    """Merge the accountings of the ranks of a parallel training: joules are added, the longest time counts."""
    from ..energy import EnergyTree
    from ..energy.several import merged

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
    from ..energy.several import repeated
    from ..rendering.notebook import Bar, Picture, bars

    parts = repeated(trees)[:top]
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


def study(asked: Asked, variant: list[str] | None = None, gpu: str | None = None, as_json: bool = False) -> None:
    """Compare variants of a model: joules by phase, and module by module with the first.

    Repeated layers are added up. Printed are Pearson's correlation (PCC) of the joules of the modules that both have,
    and the mean of their differences with its sign (MED), positive where the variant needs more.
    """
    from ..accounting.account import account
    from ..accounting.model_share import tree_by_module
    from ..api import predict

    def tree_of(named: str | None, options: list[str]) -> EnergyTree:
        model, rest = (None, None) if named is None else model_and_options(named, options)
        variant = {**asked, "model": model, "model_options": rest}
        if gpu is not None:
            job = {name: variant[name] for name in ("model", "input_shape", "mode", "predictor", "model_options")}
            return predict(**job, gpu=gpu).tree()
        how = {name: asked[name] for name in ("mode", "device", "sensors", "loop_s")}
        accounting: Accounting = account(*module_to_run(variant), **how)
        return accounting.tree()

    model, model_option = asked.given["model"], asked.given["model_option"]
    found: list[dict[str, Any]] = []
    first: dict[Any, float] = {}
    for text in ("", *(variant or ())):
        words = text.split()
        named = [word for word in words if "=" not in word]
        given = [word for word in words if "=" in word]
        tree = tree_of(named[0] if named else model, ([] if named else list(model_option or ())) + given).summarized()
        modules = tree_by_module(tree)
        first = first or modules
        found.append({"variant": text or str(model), **_compared(first, modules), **_by_phase(tree)})
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    rows = [
        [
            row["variant"],
            *(si(row[f"{phase}_j"], "J") for phase in ("forward", "backward")),
            si(row["energy_j"], "J"),
            str(row["shared_modules"]),
            "-" if row["pcc"] is None else f"{row['pcc']:.3f}",
            "-" if row["med_j"] is None else f"{'-' if row['med_j'] < 0 else '+'}{si(abs(row['med_j']), 'J')}",
        ]
        for row in found
    ]
    header = ["variant", "forward", "backward", "all", "shared modules", "PCC", "MED"]
    source = f"predicted on {gpu}" if gpu is not None else f"run on {asked['device']}"
    typer.echo(f"{source}, {asked['mode']}\n\n{table(header, rows, frozenset(range(1, 7)))}")


def _by_phase(tree: EnergyTree) -> dict[str, float | None]:
    """Joules of each phase and of everything; None where they are not known."""
    if tree.total.source == "missing":
        return {"forward_j": None, "backward_j": None, "energy_j": None}
    phases: dict[str | None, float] = {}
    for node in tree.root.walk():
        phases[node.phase] = phases.get(node.phase, 0.0) + node.own.energy_j
    return {"forward_j": phases.get("forward"), "backward_j": phases.get("backward"), "energy_j": tree.total.energy_j}


def _compared(first: dict[Any, float], other: dict[Any, float]) -> dict[str, Any]:
    """Pearson's correlation and the mean signed difference of the joules of shared modules; None without any."""
    from ..energy.comparison import comparison

    shared = [key for key in first if key in other]
    differences = [other[key] - first[key] for key in shared]
    keys = {key: (*key, "module", "") for key in shared}
    pcc = comparison({keys[k]: first[k] for k in shared}, {keys[k]: other[k] for k in shared}).pearson
    med = sum(differences) / len(differences) if differences else None
    return {"shared_modules": len(shared), "pcc": pcc, "med_j": med}


def evaluate(
    asked: Asked,
    experiments: int = 4,
    iterations: int = 25,
    pairs: int = 5,
    save: Path | None = None,
    as_json: bool = False,
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
