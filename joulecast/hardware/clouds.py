"""Machines that clouds rent out by a name of their own: "p5.48xlarge" has eight H100 SXM (clouds.toml)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class CloudMachine:
    """A type of machine that a cloud rents out.

    Args:
        name: Name of the type, as the cloud writes it.
        cloud: Name of the cloud.
        gpu: Short name of the GPU model, as in the catalogue.
        boards: Number of GPUs.
    """

    name: str
    cloud: str
    gpu: str
    boards: int


def find_machine(name: object) -> CloudMachine | None:
    """Find a cloud's machine by its name. Upper and lower case, and Azure's "Standard_" before it, do not matter.

    Args:
        name: What a user gave as the name of a GPU.

    Returns:
        The machine; None where no cloud has one of that name.
    """
    if not isinstance(name, str):
        return None
    return _machines().get(name.strip().lower().removeprefix("standard_"))


@cache
def _machines() -> Mapping[str, CloudMachine]:
    rows = tomllib.loads(files(__package__).joinpath("clouds.toml").read_text(encoding="utf-8"))["machine"]
    return {
        name.lower(): CloudMachine(name, row["cloud"], row["gpu"], boards)
        for row in rows
        for name, boards in row["boards"].items()
    }
