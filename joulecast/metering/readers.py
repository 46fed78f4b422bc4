"""The table of all readers, and the description of a reader that is sent to the sampler process."""

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
"""Name -> function that makes the reader of one device from its settings. Called in the sampler process."""

PROCESS_READERS: Mapping[str, Callable[..., ProcessReader]] = {"nvml": nvml.open_process_reader}
"""Name of a reader -> function that makes a reader of each process's use of the device. Other devices have none."""

_WAITING = frozenset({"nvidia-smi", "perf"})  # Readings wait for the next line of output of a program.


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
        """Whether a reading waits for the sensor, so that we cannot choose the moment of a reading."""
        return self.reader in _WAITING

    def to_dict(self) -> dict[str, Any]:
        """The spec as a dictionary."""
        return {"reader": self.reader, "settings": dict(self.settings)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        return cls(str(value["reader"]), dict(value["settings"]))
