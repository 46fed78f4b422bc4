"""How much ten minutes of measuring a board help: on a simulated board, and on chips of which nothing was learned.

    python benchmarks/calibration.py [--data ../shared/data] [--simulated]

The simulated board (simulated_board.py) is an H100 with known deviations, measured as `joulecast calibrate` would.
For real chips, a part of their published measurements stands for what was measured in ten minutes, and the rest is the
test; no operation is on both sides. Their predictor has seen no measurement of the chip: it is the zoo's where the zoo
has none, and otherwise one that is trained here on all other chips, with fewer trees.

Writes benchmarks/CALIBRATION.md. Takes seven minutes on one core; `--simulated` makes the tables of simulated boards
again and keeps those of real chips, in three.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import simulated_board
from simulated_board import AS_PREDICTED, Board

import joulecast
from joulecast import Operation
from joulecast.datasets import Card, Dataset, Measurement
from joulecast.datasets.importers.neusight2025 import import_neusight2025
from joulecast.datasets.importers.nicolai2025 import import_nicolai2025
from joulecast.errors import JoulecastError
from joulecast.extraction import network_of
from joulecast.hardware import GPU, find_gpu
from joulecast.predictors.board.calibrated import calibrated
from joulecast.predictors.board.fit import fit_profile
from joulecast.predictors.board.profile import QUANTITIES, VOLTAGE, BoardProfile, percent
from joulecast.predictors.contract import ResidualModel
from joulecast.predictors.fitting.fit import fit_operations
from joulecast.predictors.measured import device_rows
from joulecast.predictors.model.shared import SharedByAll
from joulecast.predictors.networks.composition import Execution, HostModel
from joulecast.predictors.networks.predictor import NetworkPredictor
from joulecast.predictors.predictor import OperationPredictor
from joulecast.predictors.recipes import SharedForestRecipe
from joulecast.queries.worth_measuring import common_networks, worth_measuring
from joulecast.zoo import find_predictor

REPORT = Path(__file__).with_name("CALIBRATION.md")
SIZES = (50, 100, 200)
MODES = ("inference", "training")
TEN_MINUTES = 245  # Operations; joulecast.cli.machine counts as many.
LEARNED_FROM = 40_000  # Rows of NeuSight's chips, sampled; Nicolai's are all used.
LOW_CLOCK = 0.6  # Of the boost clock.
VOLTAGES = {
    "the catalogue's": None,
    "falls to 0.6": simulated_board.deep,
    "falls to 0.9": simulated_board.shallow,
    "a parabola to 0.65": simulated_board.bent,
}
BOARDS = {
    "products compute at 0.8 of their rate": replace(AS_PREDICTED, products=0.8),
    "memory has 0.9 of its bandwidth": replace(AS_PREDICTED, bandwidth=0.9),
    "the waiting board draws 15 W more": replace(AS_PREDICTED, static_w=15.0),
    "never above 1500 MHz": replace(AS_PREDICTED, clock_mhz=1500.0),
    "launches take 1.3 of the time": replace(AS_PREDICTED, launch=1.3),
    "all of these but the clock": Board(),
    "all of these": Board(clock_mhz=1500.0),
}
LOOPS = ("forward_inference_mode", "forward_backward", "events")
SEEN = ("A30", "RTX 2080 Ti", "MI100", "MI210")
"""Chips whose errors were looked at when it was decided which factors a profile has; the others are a test of that."""

Predictors = Mapping[str, OperationPredictor]


def errors(
    predictors: Predictors, rows: Sequence[Measurement], clock_mhz: float | None = None
) -> dict[str, np.ndarray]:
    """Quantity -> absolute relative errors of operations. Time is that of the device where it was measured."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in QUANTITIES}
    for mode, predictor in predictors.items():
        mine = [each for each in rows if each.operation.mode == mode]
        if not mine:
            continue
        p = predictor.predict([each.operation for each in mine], clock_mhz)
        device = np.array([each.device_time_s or np.nan for each in mine], dtype=float)
        loop, watts = (
            np.array([getattr(each, name) or np.nan for each in mine], dtype=float) for name in ("time_s", "power_w")
        )
        watts[[not each.power_usable for each in mine]] = np.nan
        time_s, predicted_s = (
            np.where(np.isnan(device), loop, device),
            np.where(np.isnan(device), p.time_s, p.device_time_s),
        )
        for name, ratio in zip(
            QUANTITIES, (predicted_s / time_s, p.power_w / watts, p.energy_j / (watts * loop)), strict=True
        ):
            found[name].append(np.abs(ratio - 1))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def cell(before: np.ndarray, after: np.ndarray) -> str:
    """Mean (median) errors, before and after, in percent."""
    if np.isnan(before).all():
        return "-"
    texts = (f"{100 * np.nanmean(each):.1f} ({100 * np.nanmedian(each):.1f})" for each in (before, after))
    return " -> ".join(texts) + " %"


def row(
    name: str, predictors: Predictors, measured: Sequence[Dataset], test: Sequence[Measurement]
) -> tuple[str, BoardProfile]:
    """A row of a table: errors on the test, without a profile of what was measured and with it."""
    profile = fit_profile(measured, predictors, dict.fromkeys(predictors, ""))
    after = {mode: calibrated(each, profile) for mode, each in predictors.items()}
    old, new = errors(predictors, test), errors(after, test)
    within, used = _within(after, test), sum(len(each.measurements) for each in measured)
    cells = [cell(old[quantity], new[quantity]) for quantity in QUANTITIES]
    promised = f"{percent(profile.improvements['time'].after)} %"
    inside = "-" if np.isnan(within) else f"{100 * within:.0f} %"
    return f"| {name} | {used} | {len(test)} | {' | '.join(cells)} | {promised} | {inside} |", profile


def _within(predictors: Predictors, rows: Sequence[Measurement]) -> float:
    """Share of measured times within the 90 % interval."""
    found = []
    for mode, predictor in predictors.items():
        mine = [each for each in rows if each.operation.mode == mode]
        if not mine:
            continue
        p = predictor.predict([each.operation for each in mine])
        interval = p.interval(0.9)
        if interval is None:
            return float("nan")
        half = np.log(interval.time_s[1] / p.time_s)
        device = np.array([each.device_time_s or np.nan for each in mine], dtype=float)
        loop = np.array([each.time_s for each in mine])
        ratio = np.where(np.isnan(device), p.time_s / loop, p.device_time_s / device)
        found.append(np.abs(np.log(ratio)) <= half)
    return float(np.concatenate(found).mean())


class Simulated:
    """What ten minutes on a simulated board measure, and all other operations of common networks as the test."""

    def __init__(self, gpu: str) -> None:
        self.gpu = find_gpu(gpu)
        self.predictors = {mode: find_predictor(self.gpu, mode).operations for mode in MODES}
        self.chosen = worth_measuring(self.predictors, TEN_MINUTES)
        self.others = {
            mode: [
                operation
                for operation in dict.fromkeys(e.operation for n in common_networks(self.gpu, mode) for e in n)
                if not operation.is_identity and operation not in set(self.chosen[mode])
            ]
            for mode in MODES
        }

    def measured(self, asked: Mapping[str, Sequence[Operation]], seed: int, board: Board) -> list[Dataset]:
        """What a board shows, in one dataset for each mode."""
        return [
            simulated_board.measured(predictor, asked[mode], self.gpu, seed + number, board)
            for number, (mode, predictor) in enumerate(self.predictors.items())
        ]

    def test(self, board: Board, every: int = 1) -> list[Measurement]:
        """Measurements of the other operations, or of every second or third of them."""
        asked = {mode: others[::every] for mode, others in self.others.items()}
        return [each for dataset in self.measured(asked, 10, board) for each in dataset.measurements]


def simulated() -> Iterator[str]:
    """Rows of a table of boards with each deviation alone, and with all of them."""
    asked = Simulated("H100 SXM")
    for name, board in BOARDS.items():
        yield row(name, asked.predictors, asked.measured(asked.chosen, 0, board), asked.test(board))[0]


def voltages() -> Iterator[str]:
    """Rows of a table of boards whose voltage differs, by what was read of their clocks."""
    for name in ("H100 SXM", "L40S", "A10"):
        asked = Simulated(name)
        low_mhz = round(LOW_CLOCK * asked.gpu.boost_clock_mhz)
        first = {mode: chosen[: len(chosen) // 4] for mode, chosen in asked.chosen.items()}
        for label, voltage in VOLTAGES.items():
            board, slow = Board(voltage=voltage), Board(voltage=voltage, clock_mhz=low_mhz)
            read = asked.measured(asked.chosen, 0, board)
            unread = [
                replace(one, measurements=tuple(replace(each, clock_mhz=None) for each in one.measurements))
                for one in read
            ]
            test, low = (asked.test(each, every=6) for each in (board, slow))
            for how, measured in (
                ("not read", unread),
                ("read", read),
                ("read, and a quarter at 0.6", [*read, *asked.measured(first, 5, slow)]),
            ):
                profile = fit_profile(measured, asked.predictors, dict.fromkeys(asked.predictors, ""))
                after = {mode: calibrated(each, profile) for mode, each in asked.predictors.items()}
                cells = [cell(errors(asked.predictors, test)["energy"], errors(after, test)["energy"])]
                old, new = (errors(each, low, low_mhz) for each in (asked.predictors, after))
                cells += [cell(old[quantity], new[quantity]) for quantity in ("energy", "time")]
                curve = ", ".join(f"{profile.factors.get(each, 1.0):.2f}" for each in VOLTAGE)
                yield f"| {name} | {label} | {how} | {curve} | {' | '.join(cells)} |"


def _split(rows: Sequence[Measurement], count: int) -> tuple[list[Measurement], list[Measurement]]:
    """A measurement of so many operations, drawn at random, and one of every other operation."""
    first: dict[Operation, Measurement] = {}
    for each in rows:
        first.setdefault(each.operation, each)
    order = np.random.default_rng(0).permutation(len(first))
    listed = list(first.values())
    return [listed[place] for place in order[:count]], [listed[place] for place in order[count:]]


def _without(chip: str, datasets: Sequence[Dataset]) -> ResidualModel:
    """Trees over the measurements of all other chips."""
    others = [each for each in datasets if find_gpu(each.card.gpu).chip != chip]
    few = [each for one in others if "Constantin" in one.card.source for each in device_rows(one)]
    many = [each for one in others if "Constantin" not in one.card.source for each in device_rows(one)]
    order = np.random.default_rng(0).permutation(len(many))[:LEARNED_FROM]
    rows = [*few, *(many[place] for place in order)]
    return fit_operations(others, rows, SharedForestRecipe())


def real(data: Path) -> Iterator[tuple[str, list[str]]]:
    """Title and rows of each table of real chips."""
    nicolai, neusight = import_nicolai2025(data / "nicolai2025"), import_neusight2025(data / "neusight2025")
    datasets = [*nicolai, *neusight]
    sources: list[tuple[Dataset, GPU, list[Measurement]]] = []
    for dataset in datasets:
        rows = [
            # Times of NeuSight are those of events, which no loop has: only its device times are compared.
            replace(each, time_s=each.device_time_s) if each.method == "events" and each.device_time_s else each
            for each in dataset.measurements
            if each.usable and not each.operation.is_identity and each.method in LOOPS
        ]
        rows = [each for each in rows if each.method != "events" or each.device_time_s]
        sources.append((dataset, find_gpu(dataset.card.gpu), rows))
    networks: list[str] = []
    tables: dict[bool, list[str]] = {True: [], False: []}
    trained: dict[str, ResidualModel] = {}
    for dataset, gpu, rows in sources:
        name = gpu.aliases[0]
        modes = sorted({each.operation.mode for each in rows})
        if not gpu.is_nvidia:
            predictors: Predictors = {mode: find_predictor(gpu, mode).operations for mode in modes}
        else:
            learned = trained.setdefault(gpu.chip, trained.get(gpu.chip) or _without(gpu.chip, datasets))
            predictors = {mode: SharedByAll(learned).on(gpu, mode) for mode in modes}
        for count in SIZES:
            measured, test = _split(rows, count)
            found, profile = row(name, predictors, [_as_dataset(gpu, measured)], test)
            tables[name in SEEN].append(found)
            if dataset.networks and gpu.is_nvidia:
                networks += _networks(name, predictors, dataset, profile, count)
    yield "Chips that were looked at when it was decided which factors a profile has", tables[True]
    yield "Chips that were not looked at", tables[False]
    yield "networks", networks


def _as_dataset(gpu: GPU, rows: Sequence[Measurement]) -> Dataset:
    return Dataset(Card(gpu.name, None, "published", "none", {each.method: each.method for each in rows}), tuple(rows))


def _networks(name: str, predictors: Predictors, dataset: Dataset, profile: BoardProfile, count: int) -> Iterator[str]:
    """Errors on whole networks of the chip, of which no measurement was used."""
    found: dict[str, list[np.ndarray]] = {}
    for label, known in (("before", None), ("after", profile)):
        for m in dataset.networks:
            try:
                network = network_of(m.network, m.input_shape, mode=m.mode, precision=m.precision)
            except JoulecastError:
                continue
            own = NetworkPredictor("", predictors[m.mode], HostModel.prior(m.mode))
            p = own.under(Execution(profile=known)).predict(network)
            pairs = ((p.time_s, m.time_s), (p.power_w, m.power_w), (p.energy_j, m.energy_j))
            found.setdefault(label, []).append(np.array([abs(a / b - 1) for a, b in pairs]))
    old, new = (np.array(found[label]) for label in ("before", "after"))
    cells = " | ".join(cell(old[:, place], new[:, place]) for place in range(len(QUANTITIES)))
    yield f"| {name}, {len(old)} measurements of networks | {count} | {cells} |"


VOLTAGE_HEADER = """| board | voltage | clocks | lowest, slope | energy | energy at 0.6 | time at 0.6 |
| --- | --- | --- | --- | --- | --- | --- |"""


HEADER = """| board | measured | test | time | power | energy | time, as the profile says | within the 90 % interval |
| --- | --- | --- | --- | --- | --- | --- | --- |"""


_NOTES = """# Calibration

Made by `python benchmarks/calibration.py` (joulecast {version}); do not edit.

Errors are absolute and relative to what was measured: mean (median) without a calibration -> with it. `measured` is the
number of operations that were measured for it, `test` that of others, whose errors are shown. The last but one column
is the error that the profile states, from operations that were left out of its fit.

## Simulated H100

Each deviation alone, and together; noise of 2 %. `joulecast calibrate` chose what was measured in ten minutes.

{table}

### The voltage of the board

The catalogue's voltage is 0.78 of that at the boost clock below 0.69 of this clock. That of these boards is the same,
falls in a line from the boost clock to 0.45 of it, or in a parabola to 0.2 of it; they also have all other deviations
but the clock. A profile has two numbers of it, found where clocks were read: the lowest voltage, and how steeply it
falls from the boost clock on, both relative to the catalogue's curve. Errors are those at the default clock, and at 0.6
of it, of every sixth operation. An L40S and an A10 lower their clock under their caps; of an H100, few loops do. A
quarter of what is measured was then measured at 0.6, too.

{voltages}

"""

_REAL = """## Real chips

Their predictor was trained without measurements of the chip. That of MI100 and MI210 (point-wise operations, softmax
and layer norm, NeuSight) is the zoo's, which learned such operations on no chip of AMD. The others were trained here on
all other chips, with fewer trees than the zoo's; they have no intervals. A30 and RTX 2080 Ti
are loops with their launches (nicolai2025), which alone have power; A100 PCIe 80GB are convolutions only, and the rest
is NeuSight's. What was measured was drawn at random.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/data"), help="folder of the published measurements"
    )
    parser.add_argument("--simulated", action="store_true", help="keep the tables of real chips")
    arguments = parser.parse_args()
    table, of_voltages = "\n".join([HEADER, *simulated()]), "\n".join([VOLTAGE_HEADER, *voltages()])
    notes = _NOTES.format(version=joulecast.__version__, table=table, voltages=of_voltages)
    if arguments.simulated:
        kept = REPORT.read_text(encoding="utf-8").split(_REAL)[1]
    else:
        kept = "\n" + "\n".join(_tables(arguments.data))
    REPORT.write_text(notes + _REAL + kept, encoding="utf-8")


def _tables(data: Path) -> Iterator[str]:
    """The tables of real chips, and of their networks."""
    for title, rows in real(data):
        if title == "networks":
            head = "| chip | operations measured | time | power | energy |\n| --- | --- | --- | --- | --- |"
            text = "Only operations were measured for the calibration.\n\n" + "\n".join([head, *rows])
            yield f"### Whole networks\n\n{text}\n"
        else:
            yield f"### {title}\n\n" + "\n".join([HEADER, *rows]) + "\n"


if __name__ == "__main__":
    main()
