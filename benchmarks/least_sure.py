"""Lists what should be measured first on a GPU, and predicts it, before there are measurements.

What is listed is what `joulecast calibrate` would measure, only more of it (joulecast/queries/worth_measuring.py); and
the whole networks of a campaign. Writes one list of operations for inference and one for training, which campaigns can
use as networks, and the predictions. --measured compares measurements with these predictions, which must have been
committed before the first of them was made.

    python benchmarks/least_sure.py "H100 SXM" --count 1500
    git add profiling/gpu-first && git commit -m "Predictions of the H100, before it is measured"
    python benchmarks/least_sure.py "H100 SXM" --measured OUT/times --measured OUT/networks
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from commits import ROOT, commit_of

import joulecast
from joulecast.datasets import Dataset, load
from joulecast.hardware import GPU, find_gpu
from joulecast.operations.operation import MODES, Operation
from joulecast.profiling.campaign import load_campaign
from joulecast.queries.worth_measuring import worth_measuring
from joulecast.zoo import find_predictor

FOLDER = ROOT / "profiling" / "gpu-first"
NETWORKS = ROOT / "profiling" / "networks.toml"
LEVEL = 0.9
_OF_OPERATION = ("kind", "input_shapes", "attributes", "precision", "mode")


class Outcome(NamedTuple):
    """A measurement beside its prediction.

    Args:
        what: Family of the operation, or name of the network.
        measured_s: Seconds of the device where they were measured, and of the loop elsewhere.
        logs: Quantity -> log ratio of predicted over measured.
        within: Quantity -> whether the measured value lies in the 90 % interval.
    """

    what: str
    mode: str
    precision: str
    measured_s: float
    logs: dict[str, float]
    within: dict[str, bool]


def predicted_networks(gpu: GPU) -> Iterator[dict[str, Any]]:
    """What is predicted of the whole networks of `NETWORKS`."""
    campaign = load_campaign(NETWORKS)
    for subject in campaign.subjects:
        for shape, mode, precision in itertools.product(subject.input_shapes, campaign.modes, campaign.precisions):
            found = joulecast.predict(subject.model, shape, gpu, mode=mode, precision=precision)
            named = {"network": subject.model, "input_shape": list(shape), "mode": mode, "precision": precision}
            edges = found.interval(LEVEL)
            yield named | _row(found.time_s, found.power_w, edges and edges.time_s, edges and edges.power_w)


def predicted_operations(gpu: GPU, mode: str, chosen: Sequence[Operation]) -> Iterator[dict[str, Any]]:
    """What is predicted of loops over operations."""
    found = find_predictor(gpu, mode).operations.predict(chosen)
    edges = found.interval(LEVEL)
    for n, operation in enumerate(chosen):
        of_time, of_power = (
            None if edges is None else (float(pair[0][n]), float(pair[1][n])) for pair in (edges.time_s, edges.power_w)
        )
        row = _row(float(found.time_s[n]), float(found.power_w[n]), of_time, of_power)
        yield {**operation.to_dict(), **row, "device_s": float(f"{found.device_time_s[n]:.5g}")}


def _row(time_s: float, power_w: float, of_time: Any, of_power: Any) -> dict[str, Any]:
    """Predicted seconds and watts, with their low and high."""
    values = {"time_s": (time_s, of_time), "power_w": (power_w, of_power)}
    return {name: [float(f"{each:.5g}") for each in (value, *(edges or ()))] for name, (value, edges) in values.items()}


def outcomes(path: Path, dataset: Dataset) -> Iterator[Outcome]:
    """Measurements beside the predictions of a file; none for another GPU, or of what was not predicted.

    Raises SystemExit: the predictions were not committed, or later than something was measured.
    """
    predicted = json.loads(path.read_text(encoding="utf-8"))
    if dataset.card.gpu != predicted["gpu"]:
        return
    frozen = datetime.datetime.fromisoformat(commit_of(path, "%cI"))
    started = [datetime.datetime.fromisoformat(each.started) for each in dataset.measurements if each.started]
    if started and min(started) < frozen:
        raise SystemExit(f"{path} was committed at {frozen}, after the first measurement at {min(started)}")
    rows = {_key(row): row for row in predicted["rows"]}
    for m in dataset.measurements:
        row = rows.get(m.operation)
        if row is not None and m.usable:
            by_device = {"time_s": [row["device_s"] * each / row["time_s"][0] for each in row["time_s"]]}
            row, seconds = (row | by_device, m.device_time_s) if m.device_time_s else (row, m.time_s)
            watts = m.power_w if m.power_usable else None
            yield _outcome(m.operation.row.family, m.operation.mode, m.operation.precision, row, seconds, watts)
    for n in dataset.networks:
        row = rows.get((n.network, n.input_shape, n.mode, n.precision))
        if row is not None and n.usable:
            yield _outcome(n.network, n.mode, n.precision, row, n.time_s, n.power_w)


def _key(row: Mapping[str, Any]) -> Operation | tuple[Any, ...]:
    if "network" in row:
        return row["network"], tuple(row["input_shape"]), row["mode"], row["precision"]
    return Operation.from_dict({name: row[name] for name in _OF_OPERATION})


def _outcome(
    what: str, mode: str, precision: str, row: Mapping[str, Any], seconds: float, watts: float | None
) -> Outcome:
    measured = {"time": (seconds, row["time_s"])} | ({} if watts is None else {"power": (watts, row["power_w"])})
    logs = {name: math.log(found[0] / value) for name, (value, found) in measured.items()}
    within = {name: found[1] <= value <= found[2] for name, (value, found) in measured.items() if len(found) == 3}
    return Outcome(what, mode, precision, seconds, logs, within)


def table(found: Iterable[Outcome]) -> Iterator[str]:
    """Errors by family, network and mode."""
    yield "| what | mode | measured | time | its bias | power | its bias | in the 90 % interval |"
    yield "| --- " * 8 + "|"
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for each in found:
        groups[each.what, each.mode].append(each)
    for (what, mode), some in groups.items():
        cells = []
        for quantity in ("time", "power"):
            logs = np.array([each.logs[quantity] for each in some if quantity in each.logs])
            errors = np.expm1(logs)
            cells += (
                [f"{100 * np.abs(errors).mean():.1f} %", f"{100 * np.median(errors):+.1f} %"] if len(logs) else ["", ""]
            )
        held = [inside for each in some for inside in each.within.values()]
        yield f"| {what} | {mode} | {len(some)} | {' | '.join(cells)} | {sum(held)} of {len(held)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpu", help="name of a GPU of the catalogue")
    parser.add_argument("--count", type=int, default=1500, help="operations in all, two thirds of them in inference")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for the lists and the predictions")
    parser.add_argument("--measured", type=Path, action="append", help="dataset to compare with what was predicted")
    arguments = parser.parse_args()
    board = find_gpu(arguments.gpu)
    path = arguments.out / f"predicted-{board.slug}.json"
    if arguments.measured:
        print("\n".join(table(each for folder in arguments.measured for each in outcomes(path, load(folder)))))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    predictors = {mode: find_predictor(board, mode).operations for mode in MODES}
    rows = list(predicted_networks(board))
    for mode, chosen in worth_measuring(predictors, arguments.count).items():
        joulecast.Network.of([(operation, 1) for operation in chosen]).save(arguments.out / f"{mode}.json")
        rows += predicted_operations(board, mode, chosen)
        print(f"{mode}: {len(chosen)} operations, {len({operation.kind for operation in chosen})} kinds")
    text = ",\n".join(json.dumps(row) for row in rows)
    path.write_text(f'{{"gpu": {json.dumps(board.name)}, "rows": [\n{text}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
