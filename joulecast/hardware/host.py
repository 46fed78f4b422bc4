"""The machine around a GPU: how fast it launches operations, relative to a reference; and its CPU as a device.

A CPU is predicted from what was measured on this very model. It has no data sheet.
"""

from __future__ import annotations

import json
import platform
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..checked import in_range, number, text
from ..errors import InputError, UnknownNameError, named
from ..system.regular_files import MOST_BYTES, read_json, refusing_damage
from .gpu import GPU

FORMAT = 1
"""Version of the format of host profiles."""

_FASTEST, _SLOWEST = 0.05, 20.0


@dataclass(frozen=True)
class Host:
    """A machine that launches operations in this multiple of the reference host's time; below 1 is faster.

    The source is that of the factor, and the note a warning about it; empty where there is none.
    """

    name: str
    factor: float
    source: str
    note: str = ""

    def __post_init__(self) -> None:
        in_range("the launch time of a host, as a multiple of the reference host's,", self.factor, _FASTEST, _SLOWEST)

    def of(self, gpu: GPU) -> Host:
        """The host itself; `USUAL` becomes the host that is usual for GPUs of this age."""
        if self is not USUAL:
            return self
        return hosts()[_NEWER_HOST] if (gpu.released or "") >= _NEWER_SINCE else REFERENCE


@cache
def hosts() -> Mapping[str, Host]:
    """The hosts that have a name."""
    text = Path(__file__).with_name("hosts.toml").read_text(encoding="utf-8")
    return {name: Host(name, float(row["factor"]), row["source"]) for name, row in tomllib.loads(text).items()}


REFERENCE = hosts()["reference"]
"""The host of the training data; its factor is 1."""

_NEWER_HOST, _NEWER_SINCE = "h100-server", "2022"

USUAL = Host("usual", 1.0, f"{_NEWER_HOST} for GPUs announced in {_NEWER_SINCE} or later, reference for older ones")
"""The host to assume where none is named. Servers are bought with their GPUs, and processors become faster. Two servers
of an H100 launch in about 0.6 of the reference host's time, one of an A100 in 1.02 and of an A10 in 0.98 (hosts.toml).
"""


def find_host(wanted: str | float | Path | Host | None) -> Host:
    """Find the host that a user names.

    Args:
        wanted: A name (`joulecast host --list`), a factor relative to the reference host, or the path of a profile that
            `joulecast host --out` wrote; None or "usual" for the host that is usual for the GPU (`Host.of`).

    Raises:
        UnknownNameError: There is no host of that name.
        InputError: The factor is out of range, or the file is not a profile.
    """
    if wanted is None or wanted == USUAL.name:
        return USUAL
    if isinstance(wanted, Host):
        return wanted
    if isinstance(wanted, Path) or str(wanted).endswith(".json"):
        return _profile(Path(str(wanted)))
    try:
        factor = None if isinstance(wanted, bool) else float(wanted)
    except (TypeError, ValueError):
        factor = None
    if factor is None:
        hint = "a factor such as 0.5, or a profile by `joulecast host --out host.json`"
        return named("host", wanted, hosts(), hint=hint)
    return Host(f"{factor:g} times the reference", factor, "given by the user")


def is_wait(wanted: object) -> bool:
    """Whether a host is given by how long engines wait for it in each step, such as "25 ms"."""
    return isinstance(wanted, str) and wanted.split()[-1:] == ["ms"]


def write_profile(path: Path, factor: float, facts: Mapping[str, Any]) -> None:
    """Write a profile that `find_host` reads: a factor of launch times, the measured times, and the machine."""
    value = {"kind": "joulecast host", "format": FORMAT, "factor": factor, "processor": processor(), **facts}
    with refusing_damage("the profile cannot be written", path):
        path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def processor() -> str:
    """The name of this machine's processor, where the system states it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _profile(path: Path) -> Host:
    value = read_json(path, MOST_BYTES, "this host profile")
    with refusing_damage("this file is not one that `joulecast host --out FILE` wrote", path):
        if (value["kind"], value["format"]) != ("joulecast host", FORMAT):
            raise ValueError(f'its "kind" is not "joulecast host", or its format is not {FORMAT}')
        factor, name = number(value["factor"]), text(value["processor"])
    here = processor()
    note = "" if name == here else f"the host profile comes from another machine: {name}, this is {here}"
    return Host(path.stem, factor, f"measured on {name}", note)


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
