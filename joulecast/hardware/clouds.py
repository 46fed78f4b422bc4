"""Machines that clouds rent out by a name of their own: "p5.48xlarge" has eight H100 SXM (clouds.toml)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


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
