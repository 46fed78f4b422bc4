"""The arguments of `joulecast collect`. They are parsed by argparse, so that collecting does not need typer."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import InputError
from .campaign import load_campaign
from .session import describe, run

_SLURM = ("partition", "account", "gres", "walltime", "cpus", "memory", "directives")  # options of Slurm jobs
_DESCRIPTION = """Measure time and power of the operations in a campaign's networks. Can be stopped and resumed at any
time. The campaign is read from a TOML file and from the options, which override the file."""


def collect(arguments: Sequence[str], program: str = "joulecast collect") -> str:
    """Run the campaign that the arguments describe, and print its result in a few lines.

    Raises JoulecastError: the campaign cannot go on. Finished measurements are in the journal. Raises SystemExit: an
    argument is unknown, or --help was given.
    """
    a = _parser(program).parse_args(arguments)
    campaign = load_campaign(a.campaign, _options(a))
    if a.dry_run:
        return describe(campaign, a.limit)
    if a.out is None:
        _parser(program).error("--out is needed: the folder for the journal and the dataset")
    slurm = {name: getattr(a, name) for name in _SLURM if getattr(a, name) is not None}
    if slurm and a.slurm is None:
        _parser(program).error(f"--slurm is needed: the number of jobs that get {' '.join(slurm)}")
    options = {"limit": a.limit, "resume": a.resume, "power": not a.no_power}
    if a.cluster is None and a.slurm is None:
        return run(campaign, a.out, a.device, **options)
    from .cluster import run_on_cluster

    if a.slurm is None:
        return run_on_cluster(campaign, a.out, a.cluster, a.device, **options)
    from .slurm import SlurmJobs, slurm_cluster

    with slurm_cluster(SlurmJobs(a.slurm, **slurm), a.out) as cluster:
        return run_on_cluster(campaign, a.out, cluster, a.device, **options)


def _options(a: argparse.Namespace) -> dict[str, Any]:
    values = {
        "modes": a.mode,
        "precisions": a.precision,
        "clocks": a.clock,
        "seconds": a.seconds,
        "repeats": a.repeats,
        "seed": a.seed,
        "whole_networks": a.whole_networks,
        "three_sigma": a.three_sigma,
        "loop_lengths": a.loop_lengths,
        "floor_s": a.floor,
        "second_log": a.second_log,
    }
    if a.network:
        values["network"] = [
            {"model": name, "input_shapes": [_shape(shape) for shape in shapes]} for name, *shapes in a.network
        ]
    return {name: value for name, value in values.items() if value is not None}


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=_DESCRIPTION)
    add = parser.add_argument
    add("campaign", type=Path, nargs="?", help="a campaign by name (small, networks ...) or a TOML file")
    add("--out", type=Path, help="folder for the journal and the dataset")
    add("--device", default="cuda", help="cpu, cuda (default) or cuda:1")
    where = parser.add_mutually_exclusive_group().add_argument
    where("--cluster", metavar="ADDRESS", help="measure on the workers of Dask's scheduler, such as tcp://HOST:8786")
    where("--slurm", type=_positive, metavar="JOBS", help="measure in this number of Slurm jobs, each with one GPU")
    add("--limit", type=_positive, help="most operations and whole networks to measure")
    add("--resume", action="store_true", help="continue the journal in the folder")
    add("--dry-run", action="store_true", help="print the plan and an estimate of its duration")
    add("--no-power", action="store_true", help="measure times only, without power")
    add = parser.add_argument_group("Slurm jobs", "options of sbatch for each job of --slurm").add_argument
    add("--partition", help="partition of the jobs")
    add("--account", help="account that is charged")
    add("--gres", help="the GPU of a job (default gpu:1), or none")
    add("--walltime", help="longest time of a job (default 01:00:00); jobs that end are replaced")
    add("--cpus", type=_positive, help="processor cores of a job (default 4)")
    add("--memory", help="memory of a job (default 16GB)")
    add(
        "--sbatch",
        action="append",
        dest="directives",
        metavar="OPTION",
        help="such as --sbatch=--exclusive; repeatable",
    )
    what = parser.add_argument_group("the campaign")
    add = what.add_argument
    add(
        "--network",
        nargs="+",
        action="append",
        metavar=("NAME", "SHAPE"),
        help="resnet18 1,3,224,224 32,3,224,224; or FILE.py:NAME",
    )
    add(
        "--mode",
        action="append",
        help="inference or training; repeat it for both; --precision and --clock can be repeated as well",
    )
    add("--precision", action="append", help="default, fp32, tf32, fp16 or bf16")
    add("--clock", action="append", type=_clock, metavar="MHZ", help="graphics clock to lock, or default")
    add("--seconds", type=float, help="duration of each measurement")
    add("--repeats", type=int, help="number of measurements of each operation")
    add("--seed", type=int, help="seed for the order and the inputs")
    flag = argparse.BooleanOptionalAction  # so that an option can also switch off what the file asks for
    add("--whole-networks", action=flag, help="also measure each network as a whole")
    add("--three-sigma", action=flag, help="drop power readings beyond three standard deviations")
    add("--loop-lengths", type=int, metavar="N", help="check by a fit to N lengths that time is proportional")
    add("--floor", type=float, metavar="SECONDS", help="least duration of a loop to be trusted")
    add("--second-log", action=flag, help="also log the power by nvidia-smi all the time, as a check")
    return parser


def _shape(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError("this is not a shape", given=repr(text), allowed="such as 32,3,224,224") from error


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def _clock(text: str) -> int | str:
    return text if text == "default" else int(text)
