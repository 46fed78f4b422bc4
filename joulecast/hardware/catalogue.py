"""The GPU catalogue: data sheets by name or alias, from one TOML file per generation; and the machines of clouds."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias

from ..errors import InputError, UnknownNameError, unknown_name
from ..system.caches import remembered
from .description import described_gpu, read_gpu
from .gpu import GPU
from .host import CPU, cpu_is_no_gpu, find_cpu, is_cpu

_LISTED = "`joulecast gpus` lists them"
USUAL_BOARDS: Mapping[str, str] = {"H100": "H100 SXM"}
"""Name of several boards -> the one that is meant when nothing else is said.

Only where nearly everybody means the same board: clouds and servers for language models have the H100 SXM, and the PCIe
and NVL boards are always called so. A100, V100 and GH200 are sold with different memories under the same name, so that
they have to be named in full.
"""
_GENERATIONS = ("pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell", "amd", "intel")


@cache
def gpus() -> Mapping[str, GPU]:
    """All GPUs of the catalogue by their full names, oldest generation first."""
    folder = files(__package__).joinpath("gpus")
    entries = [
        described_gpu(row, f"{generation}.toml")
        for generation in _GENERATIONS
        for row in tomllib.loads(folder.joinpath(f"{generation}.toml").read_text(encoding="utf-8"))["gpu"]
    ]
    return {gpu.name: gpu for gpu in entries}


@lru_cache(maxsize=1024)
def same_boards(gpu: GPU) -> tuple[GPU, ...]:
    """The GPUs of the catalogue that are the board of a GPU under other names, and the GPU itself if it is there.

    What was measured on any of them was measured on this GPU. `GPU.board` has the figures in which they agree.
    """
    return tuple(sorted((each for each in gpus().values() if each.board == gpu.board), key=lambda each: each != gpu))


@lru_cache(maxsize=1024)
def full_rates(gpu: GPU) -> Mapping[str, float]:
    """Precision -> FLOPs per cycle that a multiprocessor of the GPU is built for; of precisions in `GPU.peak_flops`.

    Makers sell the same multiprocessor with slower tensor cores: those of GeForce boards, the A10G and the L40 add up
    products in fp32 at half the rate, and the H20's have a quarter. Data still arrive as quickly as at the full rate,
    which is that of the quickest board in the catalogue with this compute capability.
    """
    alike = [each for each in gpus().values() if each.compute_capability == gpu.compute_capability]
    return {
        precision: max(each.flops_per_cycle(precision) for each in (gpu, *alike) if precision in each.peak_flops)
        for precision in gpu.peak_flops
    }


def _folded(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


@cache
def _by_folded_name() -> Mapping[str, GPU]:
    named = {_folded(name): gpu for gpu in gpus().values() for name in (gpu.name, *gpu.aliases)}
    return {**named, **{_folded(family): named[_folded(board)] for family, board in USUAL_BOARDS.items()}}


@dataclass(frozen=True)
class CloudMachine:
    """A type of machine with a number of boards that a cloud rents out under this name.

    The prices are on demand and, where it is known, at the spot price; empty if neither is.
    """

    name: str
    cloud: str
    gpu: str
    boards: int
    usd_per_hour: tuple[float, ...] = ()


def find_machine(name: object) -> CloudMachine | None:
    """A cloud's machine by its name; None for all else.

    Upper and lower case, and Azure's "Standard_" before it, do not matter.
    """
    if not isinstance(name, str):
        return None
    return machines().get(name.strip().lower().removeprefix("standard_"))


@cache
def machines() -> Mapping[str, CloudMachine]:
    """All machines by their names in lower case."""
    content = tomllib.loads(files(__package__).joinpath("clouds.toml").read_text(encoding="utf-8"))
    return {
        name.lower(): CloudMachine(name, row["cloud"], row["gpu"], boards, tuple(content["usd_per_hour"].get(name, ())))
        for row in content["machine"]
        for name, boards in row["boards"].items()
    }


COUNTED = re.compile(r"\s*(\d{1,4})\s*[xX]\s+(.+)")
"""Several GPUs: their number and their name."""


def _words(name: str) -> frozenset[str]:
    return frozenset(re.split(r"[\s\-_]+", name.strip().lower()))


@remembered()  # Users choose the names.
def _versions(name: str) -> tuple[GPU, ...]:
    """The GPUs whose names contain all words of `name`: "A100" gives four of them, "A100 80GB" two."""
    asked = _words(name)
    return tuple(gpu for gpu in gpus().values() if any(asked <= _words(alias) for alias in (gpu.name, *gpu.aliases)))


def find_gpu(name: str | Path | GPU | None) -> GPU:
    """Find a GPU by name or alias, or read its description.

    Args:
        name: A name or alias from the catalogue, or words of it that only one GPU has; case, spaces and hyphens do not
            matter. A name of `USUAL_BOARDS` means the usual board of a family, and that of a cloud's machine such as
            "p5.48xlarge" one of its boards. Or the path of a TOML file that describes a GPU (docs/gpus.md).

    Raises:
        UnknownNameError: No GPU has that name, or several have; or it is the name of a CPU.
        InputError: There is no name; or the file cannot be read, or does not describe a GPU.
    """
    if isinstance(name, GPU):
        return name
    if name is None:
        raise InputError("a prediction needs a GPU", given="none", allowed='such as gpu="A30"', hint=_LISTED)
    if not isinstance(name, str | Path):
        raise InputError("this is not the name of a GPU", given=repr(name)[:100], allowed='such as "A30"', hint=_LISTED)
    if str(name).lower().endswith(".toml"):
        return read_gpu(name)
    if is_cpu(str(name)):
        raise cpu_is_no_gpu(str(name))
    machine = find_machine(name)
    catalogued = _by_folded_name().get(_folded(str(name) if machine is None else machine.gpu))
    if catalogued is not None:
        return catalogued
    versions = _versions(str(name)) if _folded(str(name)) else []
    if len(versions) == 1:
        return versions[0]
    if versions:
        # Their bandwidths and power caps differ by up to a factor of two, so the user has to choose.
        raise UnknownNameError(
            "several GPUs have this name",
            given=repr(name),
            allowed=", ".join(gpu.aliases[0] for gpu in versions),
            hint="name one of them",
        )
    if COUNTED.fullmatch(str(name)):
        raise UnknownNameError(
            "this question is about one GPU",
            given=repr(name),
            allowed="a GPU without a number",
            hint="`joulecast run` predicts training on several GPUs, `generate` and `best-generation` language models, "
            "`image` images and videos",
        )
    names = [gpu.aliases[0] for gpu in gpus().values()]
    raise unknown_name(
        "GPU", name, names, hint="`joulecast gpus` lists the catalogue; the path of a .toml file adds one"
    )


Device: TypeAlias = GPU | CPU


def find_device(name: str | Path | Device | None) -> Device:
    """Find a GPU as `find_gpu` does, or a CPU by the name of its model; "cpu" means that of this machine."""
    if isinstance(name, CPU):
        return name
    if isinstance(name, str) and not name.lower().endswith(".toml") and is_cpu(name):
        return find_cpu(name)
    return find_gpu(name)


def gpu_name_notes(name: object) -> tuple[str, ...]:
    """A warning for an answer whose GPU was named by its family or by a cloud's machine: which board it is for."""
    machine = find_machine(name)
    if machine is not None:
        each = f", one of the {machine.boards} boards of" if machine.boards > 1 else ", the board of"
        return (f"this is for one {machine.gpu}{each} {machine.cloud}'s {machine.name}",)
    for family, board in USUAL_BOARDS.items():
        if isinstance(name, str) and _folded(name) == _folded(family):
            others = [gpu.aliases[0] for gpu in _versions(family) if gpu.aliases[0] != board]
            return (f"{family} was taken for {board}, the usual board; the others are called {' and '.join(others)}",)
    return ()
