"""The GPU catalogue: spec-sheet figures by name or alias."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ..errors import InputError, unknown_name


@dataclass(frozen=True)
class GPU:
    """What the data sheet says about a GPU.

    Args:
        name: The name that NVML and `nvidia-smi` report.
        aliases: Other names that users type.
        peak_flops: Precision -> dense FLOP/s at boost_clock_mhz; a precision that is missing is not supported.
        memory_bandwidth: Bytes per second.
        power_limit_w: Default power cap of the board.
    """

    name: str
    aliases: tuple[str, ...]
    architecture: str
    chip: str
    compute_capability: str
    sms: int
    boost_clock_mhz: int
    min_clock_mhz: int
    max_clock_mhz: int
    memory_bytes: int
    memory_bandwidth: float
    l2_bytes: int
    power_limit_w: float
    peak_flops: Mapping[str, float]

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def slug(self) -> str:
        """The name as a folder: "a30", "rtx-2080-ti"."""
        return self.aliases[0].lower().replace(" ", "-")

    def running_precision(self, precision: str) -> str:
        """The precision that an operation asking for `precision` really runs in here.

        TF32 is a permission, so where the GPU has none, fp32 it is. Half precision is a type, so there is no way out.

        Raises:
            InputError: The GPU does not support the precision.
        """
        if precision in self.peak_flops:
            return precision
        if precision == "tf32":
            return "fp32"
        raise InputError(
            f"{self.name} does not support {precision}", given=precision, allowed=", ".join(self.peak_flops)
        )

    def checked_clock_mhz(self, clock_mhz: float | None) -> float:
        """The clock to assume: the one given, or the default (boost) clock.

        Raises:
            InputError: The GPU cannot hold this clock.
        """
        if clock_mhz is None:
            return float(self.boost_clock_mhz)
        if (
            not isinstance(clock_mhz, int | float)
            or isinstance(clock_mhz, bool)
            or not (self.min_clock_mhz <= clock_mhz <= self.max_clock_mhz)
        ):
            raise InputError(
                f"{self.name} cannot hold this graphics clock",
                given=f"{clock_mhz} MHz" if isinstance(clock_mhz, int | float) else repr(clock_mhz),
                allowed=f"{self.min_clock_mhz} to {self.max_clock_mhz} MHz",
                hint=f"leave the clock out for the default, {self.boost_clock_mhz} MHz",
            )
        return float(clock_mhz)


@cache
def gpus() -> Mapping[str, GPU]:
    """All GPUs of the catalogue by their full names."""
    text = files(__package__).joinpath("gpus.toml").read_text(encoding="utf-8")
    entries = (GPU(**{**row, "aliases": tuple(row["aliases"])}) for row in tomllib.loads(text)["gpu"])
    return {gpu.name: gpu for gpu in entries}


def _folded(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


@cache
def _by_folded_name() -> Mapping[str, GPU]:
    return {_folded(name): gpu for gpu in gpus().values() for name in (gpu.name, *gpu.aliases)}


def find_gpu(name: str | GPU) -> GPU:
    """Find a GPU by name or alias; case, spaces and hyphens do not matter.

    Raises:
        UnknownNameError: No GPU has that name.
    """
    if isinstance(name, GPU):
        return name
    found = _by_folded_name().get(_folded(str(name)))
    if found is None:
        known = [alias for gpu in gpus().values() for alias in gpu.aliases[:1]]
        raise unknown_name("GPU", name, known, hint="`joulecast gpus` lists the catalogue")
    return found
