"""One table of all published runs that predictions are compared with: a row for each source, GPU and task.

    python benchmarks/scoreboard.py [--data ../shared/data]

Takes what the other benchmarks compute, and what their reports and the zoo's cards hold already, and computes nothing
of its own. Every row names the commit whose predictions it shows, and what was predicted when it was scored for the
first time, which git keeps: the first version of zoo/scoreboard.json that has the row. So commit the predictors, import
results, and run this before anything is changed: a prediction that was made before its measurement is the fairest test.
Measurements of our own (datasets/) are compared with predictions that were committed before them (least_sure.py).
Writes benchmarks/SCOREBOARD.md and zoo/scoreboard.json. Takes two minutes on one core.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import images
import least_sure
import numpy as np
import serving
import serving_energy
from commits import ROOT, commit_of, versions_of

from joulecast.datasets import load
from joulecast.hardware import find_gpu
from joulecast.predictors.evaluation.any_gpu import NOTHING_KNOWN
from joulecast.units import si

HERE = Path(__file__).parent
SERVED = ROOT / "zoo" / "scoreboard.json"
"""The same rows, which the service answers and its page shows."""

CARD = ROOT / "zoo" / "any-gpu" / "forest" / "card.json"
_QUANTITIES = ("time", "power", "energy")
_ROW = re.compile(
    r"\| (?P<network>\S+) (?P<size>\d+ x \d+), (?P<gpu>[^,]+), (?P<precision>\w+) \| (?P<ms>\d+) \| (\d+) \|"
)


class Score(NamedTuple):
    """A run with its prediction.

    Args:
        source: Who measured it.
        gpu: Name of the GPU, with their number.
        task: What ran.
        measured_s: Measured seconds, of what the source states: a token, a batch or a step; None where only the error
            is at hand.
        logs: Quantity -> log ratio of predicted over measured.
        within: Quantity -> whether the measured value lies in the 90 % interval; empty where that is not at hand.
        commit: The commit that predicted it.
    """

    source: str
    gpu: str
    task: str
    measured_s: float | None
    logs: dict[str, float]
    within: dict[str, bool]
    commit: str


def _short(gpu: str) -> str:
    return find_gpu(gpu).aliases[0]


def served() -> Iterator[Score]:
    """Published runs of engines."""
    commit = commit_of()
    for each in map(serving.outcome, serving.runs()):
        row = each.run.row
        seconds = (
            float(row["latency_s"])
            if row["latency_s"]
            else 1 / float(row["tokens_per_s"])
            if row["tokens_per_s"]
            else 1e-3 * float(row["token_ms"])
        )
        task = f"{row['model']} {row['precision']}, {row['engine']}"
        yield Score(
            row["source"], f"{row['gpus']}x {_short(row['gpu'])}", task, seconds, each.logs, each.within, commit
        )


def energy(data: Path) -> Iterator[Score]:
    """ML.ENERGY's runs of vLLM, and of images and videos."""
    commit = commit_of()
    for each, _ in serving_energy.outcomes(data):
        run = each.run
        seconds = 1 / run.number("output_throughput_tokens_per_sec")
        gpu = f"{run['gpus']}x {_short(run['gpu'])}"
        yield Score("ML.ENERGY", gpu, f"{run.model}, vllm", seconds, each.logs, each.within, commit)
    for (name, gpu, gpus), runs in images.errors(data, tuple(images._NAMES.values())).items():
        for run in runs:
            logs = {quantity: math.log1p(error) for quantity, error in run.error._asdict().items()}
            within = dict(zip(logs, run.held, strict=True))
            yield Score("ML.ENERGY", f"{gpus}x {_short(gpu)}", f"{name}, diffusers", run.time_s, logs, within, commit)


def trained() -> Iterator[Score]:
    """Training steps that NVIDIA published, as benchmarks/training/REPORT.md has them."""
    path = HERE / "training" / "REPORT.md"
    commit = commit_of(path)
    for row in _ROW.finditer(path.read_text(encoding="utf-8")):
        measured, predicted = float(row["ms"]), float(row[6])
        logs = {"time": math.log(predicted / measured)}
        task = f"{row['network']} {row['precision']}, training"
        yield Score("NVIDIA", f"1x {_short(row['gpu'])}", task, 1e-3 * measured, logs, {}, commit)


def left_out() -> Iterator[Score]:
    """Networks on chips that were left out of training, as the card of the predictor for any GPU has them."""
    card = json.loads(CARD.read_text(encoding="utf-8"))
    commit = card["provenance"]["git_commit"][:8]
    for case in card["networks"]:
        if case["split"].startswith(NOTHING_KNOWN):
            source = "nicolai2025" if "A30" in case["where"] else "energaizer2026"
            task = f"{case['network']} {case['precision']}, {case['mode']}"
            logs = {quantity: case[quantity] for quantity in _QUANTITIES}
            yield Score(f"{source}, chip left out", f"1x {_short(case['where'])}", task, None, logs, {}, commit)


def ours(datasets: Path = ROOT / "datasets", predicted: Path = least_sure.FOLDER) -> Iterator[Score]:
    """What joulecast measured itself, beside what was predicted and committed before."""
    for path, card in itertools.product(
        sorted(predicted.glob("predicted-*.json")), sorted(datasets.rglob("card.json"))
    ):
        dataset = load(card.parent)
        for each in least_sure.outcomes(path, dataset):
            task, gpu = f"{each.what} {each.precision}, {each.mode}", f"1x {_short(dataset.card.gpu)}"
            yield Score("joulecast", gpu, task, each.measured_s, each.logs, each.within, commit_of(path))


def _errors(some: list[Score], quantity: str) -> dict[str, float] | None:
    """Bias and mean absolute error of a quantity, as ratios; None where nothing of it was published."""
    logs = np.array([each.logs[quantity] for each in some if quantity in each.logs])
    if not len(logs):
        return None
    return {"bias": float(np.expm1(logs.mean())), "error": float(np.abs(np.expm1(logs)).mean())}


def rows(scores: Iterable[Score], before: Iterable[str] = ()) -> Iterator[dict[str, Any]]:
    """A row for each source, GPU and task. `before` are earlier versions of zoo/scoreboard.json, the oldest first."""
    firsts: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in itertools.chain.from_iterable(map(json.loads, before)):
        firsts.setdefault((row["source"], row["gpu"], row["task"]), row)
    groups: dict[tuple[str, str, str], list[Score]] = defaultdict(list)
    for each in scores:
        groups[each.source, each.gpu, each.task].append(each)
    for (source, gpu, task), some in sorted(groups.items()):
        known = [each for each in some if each.measured_s is not None]
        measured = predicted = None
        if known:
            log = float(np.mean([math.log(each.measured_s or 1.0) for each in known]))
            measured, predicted = math.exp(log), math.exp(log + float(np.mean([each.logs["time"] for each in known])))
        inside = [held for each in some for held in each.within.values()]
        row = {
            "source": source,
            "gpu": gpu,
            "task": task,
            "runs": len(some),
            "measured_s": measured,
            "predicted_s": predicted,
            **{quantity: _errors(some, quantity) for quantity in _QUANTITIES},
            "inside": sum(inside),
            "of": len(inside),
            "commit": some[0].commit,
        }
        first = firsts.get((source, gpu, task), row)
        yield row | {"first": {name: first[name] for name in (*_QUANTITIES, "commit")}}


def table(scored: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The rows as a table in Markdown."""
    titles = ("source", "GPU", "task", "runs", "measured", "predicted")
    titles = (*titles, *_QUANTITIES, "in the interval", "commit", "at first")
    yield f"| {' | '.join(titles)} |"
    yield "| --- " * len(titles) + "|"
    for row in scored:
        times = ["" if row[name] is None else si(row[name], "s") for name in ("measured_s", "predicted_s")]
        errors = [
            "" if row[quantity] is None else f"{100 * row[quantity]['bias']:+.0f}, {100 * row[quantity]['error']:.0f} %"
            for quantity in _QUANTITIES
        ]
        held = f"{row['inside']} of {row['of']}" if row["of"] else ""
        first = row["first"]
        of_first = ", ".join(f"{name} {100 * first[name]['error']:.0f} %" for name in _QUANTITIES if first[name])
        cells = [row["source"], row["gpu"], row["task"], str(row["runs"]), *times, *errors, held, row["commit"]]
        cells.append(f"{of_first} ({first['commit']})")
        yield f"| {' | '.join(cells)} |"


_NOTES = """# Scoreboard

Made by `python benchmarks/scoreboard.py`; do not edit. A row for each source, GPU and task. `measured` and `predicted`
are geometric means over the runs of a row: seconds of a token, a batch or a step, as the source states them. Then
bias and mean absolute error of time, power and energy in percent, and how many measured values lie in their 90 %
intervals. `commit` made the predictions. `at first` has the errors of a row when it was scored for the first time, and
the commit that predicted it then; it is never made anew. Which runs were looked at when constants were chosen is said
in the report of each benchmark ([serving](serving/REPORT.md), [energy](serving/ENERGY.md), [images](IMAGES.md),
[training](training/REPORT.md)) and on the [card](../zoo/any-gpu/forest/README.md) of the predictor for any GPU, for
whose networks "chip left out" holds: it was trained without their chip.

"""


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Numbers of a row with four digits, so that its file changes only where predictions do."""

    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: rounded(each) for name, each in value.items()}
        return float(f"{value:.4g}") if isinstance(value, float) else value

    return {name: rounded(value) for name, value in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/data"), help="folder of the published measurements"
    )
    arguments = parser.parse_args()
    scores = [*served(), *energy(arguments.data / "mlenergy2026"), *trained(), *left_out(), *ours()]
    scored = list(rows(scores, versions_of(SERVED)))
    (HERE / "SCOREBOARD.md").write_text(_NOTES + "\n".join(table(scored)) + "\n", encoding="utf-8")
    lines = ",\n".join(json.dumps({**row, **_rounded(row)}) for row in scored)
    SERVED.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
