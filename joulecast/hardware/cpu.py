"""A CPU as a device that is measured, and predicted from what was measured on this very model. It has no data sheet."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import InputError, UnknownNameError
from .host import processor

_CPU = "CPU"
_MODELS = frozenset({"cpu", "epyc", "ryzen", "threadripper", "xeon"})
"""Words that only names of CPUs have."""
_GPUS_OF_INTEL = frozenset({"gpu", "graphics", "arc", "flex", "max"})
_MARKS = re.compile(r"\((?:r|tm)\)", re.IGNORECASE)  # "Intel(R) Xeon(R) CPU @ 2.20GHz"


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", _MARKS.sub(" ", name).lower())


@dataclass(frozen=True)
class CPU:
    """A model of CPU. Everything else about it is learned from measurements.

    Args:
        name: "CPU" and the name that the system gives, such as "CPU AMD EPYC 7742 64-Core Processor".
    """

    name: str

    @property
    def slug(self) -> str:
        """The name of its folders: "cpu-amd-epyc-7742-64-core-processor"."""
        return "-".join([_CPU.lower(), *(word for word in _words(self.name) if word != _CPU.lower())])

    def checked_clock_mhz(self, clock_mhz: float | None) -> None:
        """Accept no clock: a CPU chooses its own. Raises InputError: a clock is given."""
        if clock_mhz is not None:
            raise InputError(
                "the clock of a CPU cannot be chosen in a prediction",
                given=f"{clock_mhz!r} MHz",
                allowed="no clock",
                hint="omit the clock; times are those of the clock that the CPU chose while it was measured",
            )

    def checked_power_limit_w(self, power_limit_w: float | None) -> None:
        """Accept no power cap. Raises InputError: a cap is given."""
        if power_limit_w is not None:
            raise InputError(
                "the power of a CPU cannot be capped in a prediction",
                given=f"{power_limit_w!r} W",
                allowed="no power limit",
                hint="omit the power limit",
            )


def cpu_name() -> str:
    """The name of this machine's CPU in journals and datasets, such as "CPU AMD EPYC 7742 64-Core Processor"."""
    return f"{_CPU} {processor()}"


def is_cpu(device: str) -> bool:
    """Whether the name of a device means a CPU: "cpu", a name that `cpu_name` made, or "Intel Xeon Platinum 8480C"."""
    words = _words(device)
    return not _MODELS.isdisjoint(words) or ("intel" in words and _GPUS_OF_INTEL.isdisjoint(words))


def find_cpu(name: str) -> CPU:
    """The CPU of a name that `is_cpu` recognizes; "cpu" alone means that of this machine."""
    if _words(name) == [_CPU.lower()]:
        return CPU(cpu_name())
    return CPU(name if name.startswith(f"{_CPU} ") else f"{_CPU} {name}")


def cpu_is_no_gpu(device: str) -> UnknownNameError:
    """Build the error for a CPU where only a GPU can be used."""
    return UnknownNameError(
        "only GPUs can be used here, and this is a CPU",
        given=repr(device),
        allowed="the name of a GPU, or the path of a .toml file that describes one",
        hint="`joulecast predict MODEL SHAPE --gpu cpu` predicts the time on a CPU that was measured",
    )
