"""What measures this machine: `joulecast host`, `collect` and `calibrate`; and scripts of the repository.

These need sources, or papers, that a package does not have.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import InputError
from .options import TABLES
from .printing import table

if TYPE_CHECKING:
    from ..datasets import Dataset
    from ..hardware import GPU
    from ..predictors.board.profile import BoardProfile
    from ..predictors.networks.predictor import NetworkPredictor


def host(out: Path | None = None, device: str = "cpu", listed: bool = False) -> None:
    """Measure how fast this machine launches PyTorch operations. Takes seconds and needs no GPU."""
    from ..hardware.host import USUAL, hosts, write_profile

    if listed:
        rows = [[known.name, f"{known.factor:g}", known.source] for known in (USUAL, *hosts().values())]
        typer.echo(table(["host", "factor", "source"], rows, frozenset({1})))
        return
    from ..profiling.devices import LAUNCH_S, find_device, measure_host

    machine = find_device(device)
    factor, facts = measure_host(machine)
    launch = f" and {1e6 * LAUNCH_S:g} us for a typical launch" if facts["launch_s"] else ""
    typer.echo(f"{facts['processor']}: {1e6 * facts['call_s']:.2f} us per call on the {facts['device']}{launch}")
    typer.echo(f"factor {factor:.2f}: launching takes {factor:.2f} times as long as on the reference host")
    if out is not None:
        write_profile(out, factor, facts)
        typer.echo(f"wrote {out}; use it with --host {out}")


_SECONDS = 1.2  # Of each measurement: power sensors average over a second.
_START_S = 30.0  # Idle power, probing the sensor, and loading PyTorch, in each of two modes.
_NEEDS = "an idle NVIDIA GPU with its driver, PyTorch with CUDA, and NVML or nvidia-smi for power"


def calibrate(
    minutes: float = 10.0,
    out: Path = Path("calibration.json"),
    device: str = "cuda",
    gpu: str | None = None,
    measured: list[Path] | None = None,
    predictor: str | None = None,
) -> None:
    """Measure this GPU for some minutes, for predictions of this very board. Killed and repeated, it resumes."""
    from ..hardware import find_gpu
    from ..operations.operation import MODES
    from ..predictors.board.fit import fit_profile
    from ..zoo import find_predictor

    if out.is_dir() or not out.parent.is_dir():
        raise InputError(
            "the calibration needs a file",
            given=str(out),
            allowed="a file in a folder that exists",
            hint="make the folder, or choose another --out",
        )
    name = gpu if measured else _name_of(device, gpu)
    board = find_gpu(_datasets(measured)[0].card.gpu if name is None and measured else name or "")
    found = {mode: find_predictor(board, mode, predictor) for mode in MODES}
    folders = measured or _measure(found, minutes, device, out.with_name(f"{out.stem}-measurements"))
    datasets = _datasets(folders)
    operations, names = ({mode: getattr(each, of) for mode, each in found.items()} for of in ("operations", "name"))
    profile = fit_profile(datasets, operations, names)
    profile.write(out)
    typer.echo(_text(profile, board))
    typer.echo(f"wrote {out}; use it with --calibration {out}")


def _name_of(device: str, gpu: str | None) -> str:
    """Name of the GPU to measure. Raises InputError: there is none here."""
    try:
        import torch

        from ..profiling.devices import find_device

        board = find_device(device)
        name = torch.cuda.get_device_name(board) if board.type == "cuda" else ""
    except (ImportError, InputError):
        name = ""
    if not name:
        raise InputError(
            "calibrating measures a GPU, and there is none here",
            given=device,
            allowed=_NEEDS,
            hint="run it on the machine with the GPU; or use measurements: joulecast calibrate --measured FOLDER",
        )
    return gpu or name


def _measure(found: dict[str, NetworkPredictor], minutes: float, device: str, folder: Path) -> list[Path]:
    """Measure the operations that say most, or continue, and return the folders of the measurements."""
    from ..operations.network import Network
    from ..profiling.campaign import Campaign, Subject, duration_s, operations_of
    from ..profiling.journal import Journal
    from ..profiling.session import JOURNAL, run, say
    from ..queries.worth_measuring import worth_measuring

    lists = {mode: folder / f"{mode}.json" for mode in found}
    campaigns = {
        mode: Campaign((Subject(str(path)),), f"calibration-{mode}", modes=(mode,), seconds=_SECONDS)
        for mode, path in lists.items()
    }
    if not all(path.is_file() for path in lists.values()):
        each_s = duration_s(campaigns["inference"], 1)
        count = max(20, int((60 * minutes - len(found) * _START_S) / each_s))
        say(f"choosing {count} operations to measure\n")
        folder.mkdir(exist_ok=True)
        operations = {mode: each.operations for mode, each in found.items()}
        for mode, chosen in worth_measuring(operations, count).items():
            Network.of([(operation, 1) for operation in chosen]).save(lists[mode])
    # A calibration that was killed goes on with the same operations: its journal has what was measured.
    for mode, campaign in campaigns.items():
        say(run(campaign, folder / mode, device, resume=True) + "\n")
        wanted = len(operations_of(campaign))
        with Journal(folder / mode / JOURNAL, None) as journal:
            done = sum("operation" in record for record in journal.records)
        if done < wanted:
            raise InputError(
                "the calibration was stopped",
                given=f"{done} of {wanted} operations in {mode}",
                hint="repeat the command: it continues from there",
            )
    return [folder / mode for mode in found]


def _datasets(folders: Iterable[Path] | None) -> Sequence[Dataset]:
    from ..datasets import load
    from ..profiling.journal import Journal, datasets_of
    from ..profiling.session import JOURNAL

    found: list[Dataset] = []
    for folder in folders or ():
        if (folder / JOURNAL).is_file():
            with Journal(folder / JOURNAL, None) as journal:
                found += datasets_of(journal).values()
        else:
            found.append(load(folder))
    return found


def _text(profile: BoardProfile, gpu: GPU) -> str:
    """The factors, the errors without them and with them, and the clocks and voltages of the board."""
    from ..predictors.board.calibrated import with_voltage
    from ..predictors.board.profile import VOLTAGE, percent

    factors = [[name, f"{factor:.3f}"] for name, factor in profile.factors.items() if abs(factor - 1) >= 0.005]
    errors = [
        [name, str(each.operations), *(f"{percent(error)} %" for error in (each.before, each.expected, each.after))]
        for name, each in profile.improvements.items()
    ]
    header = ["mean error", "operations", "before", "expected", "on operations left out"]
    parts = [
        table(["part of the cost", "factor"], factors, frozenset({1})) if factors else "no factor differs from 1",
        "",
        table(header, errors, frozenset({1, 2, 3, 4})),
    ]
    if profile.most_clock_mhz is not None:
        parts += ["", f"below its cap the board held {profile.most_clock_mhz:.0f} MHz at most"]
    if all(name in profile.factors for name in VOLTAGE):
        curve = with_voltage(gpu, *(profile.factors[name] for name in VOLTAGE)).voltage
        most_mhz = float(gpu.boost_clock_mhz)
        clocks = [gpu.min_clock_mhz, *(round(share * most_mhz) for share in (0.6, 0.7, 0.8, 0.9, 1.0))]
        if curve is not None:
            shares = [f"{curve.at(clock) / curve.at(most_mhz):.2f} at {clock} MHz" for clock in clocks]
            parts += ["", f"voltage over that at the default clock: {', '.join(shares)}"]
    for quantity, helps in profile.helps.items():
        parts += [] if helps else ["", f"note: {quantity} was no better on operations left out, and stays as predicted"]
    return "\n".join(parts)


def collect(context: typer.Context) -> None:
    """Measure time and power of the operations in a campaign's networks, here or on a cluster; see --help."""
    from ..profiling.command import collect as run

    typer.echo(run(context.args))


_BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def script(context: typer.Context) -> None:
    """Run a script of the repository, which options.toml names."""
    path = _BENCHMARKS / TABLES["scripts"][context.info_name]["file"]
    if not path.is_file():
        raise InputError(
            f"`{context.command_path}` runs a script of the repository, which a package does not have",
            given=str(_BENCHMARKS),
            allowed="joulecast installed from its repository: pip install -e '.[dev]'",
            hint=f"clone the repository, and run `{context.command_path}` there",
        )
    ran = subprocess.run([sys.executable, str(path), *context.args], check=False)  # noqa: S603
    raise typer.Exit(ran.returncode)
