"""Which readers there are: what a sampler process is told to open, by name and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from . import amdsmi, memory_model, nvidia_smi, nvml, perf, powercap
from .gpu_shares import ProcessReader
from .reader import Reader

READERS: Mapping[str, Callable[..., Reader]] = {
    "nvml": nvml.open_reader,
    "nvidia-smi": nvidia_smi.open_reader,
    "amdsmi": amdsmi.open_reader,
    "powercap": powercap.open_reader,
    "perf": perf.open_reader,
    "memory-model": memory_model.open_reader,
}
"""Name -> makes the reader of one device. Called in the sampler process, with settings that came as JSON."""

PROCESS_READERS: Mapping[str, Callable[..., ProcessReader]] = {"nvml": nvml.open_process_reader}
"""The same names -> tells what each process uses of the device; where there is none, nobody can tell."""

_WAITING = frozenset({"nvidia-smi", "perf"})  # A reading of these waits for the next line of a program.


@dataclass(frozen=True)
class ReaderSpec:
    """A reader before it is opened: plain values, so that it can be sent to another process.

    Args:
        reader: A key of `READERS`.
        settings: Arguments of the function behind it.
    """

    reader: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> Reader:
        """Make the reader.

        Raises:
            SensorError: The device cannot be read.
            MissingDependencyError: A library that it needs is not installed.
        """
        return READERS[self.reader](**self.settings)

    @property
    def waits(self) -> bool:
        """Whether a reading waits for the sensor, and cannot be had at a moment of our choice."""
        return self.reader in _WAITING

    def to_dict(self) -> dict[str, Any]:
        """The spec as a dictionary."""
        return {"reader": self.reader, "settings": dict(self.settings)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(str(value["reader"]), dict(value["settings"]))
