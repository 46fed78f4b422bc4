"""Locks a GPU's graphics clock for a campaign, and resets it whatever happens. Needs no torch.

A locked clock outlives the process that locked it. So the process first writes a marker, a file that it keeps locked.
A marker that no process holds was left by a crash, and the next campaign on that GPU resets the clock first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import ClockError, MissingDependencyError, SensorError
from ..metering.nvidia_smi import nvidia_smi
from ..metering.nvml import opened
from ..system.whole_files import lock

_NEAREST = 5


def state_folder() -> Path:
    """$XDG_STATE_HOME/joulecast, by default ~/.local/state/joulecast: the folder for state that survives a crash."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "joulecast"


class Clocks:
    """The graphics clock of a GPU, set through NVML or, where that fails, through `nvidia-smi`."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._marker = state_folder() / f"locked-{self._identity()}"

    def check(self, clock_mhz: int) -> None:
        """Check that the GPU supports a clock. Raises ClockError: it does not. The message names the nearest clocks."""
        supported = self._supported_mhz()
        if supported and clock_mhz not in supported:
            nearest = sorted(sorted(supported, key=lambda mhz: abs(mhz - clock_mhz))[:_NEAREST])
            raise ClockError(
                "this GPU does not support this clock",
                given=f"{clock_mhz} MHz",
                allowed=f"{min(supported)} to {max(supported)} MHz; nearest: {', '.join(map(str, nearest))}",
            )

    @contextmanager
    def locked(self, clock_mhz: int | None) -> Iterator[None]:
        """Lock a clock; None leaves the GPU as it is.

        Raises ClockError: there is no permission, in which case the message names the command to run; or another
        campaign holds this GPU's clock.
        """
        if clock_mhz is None:
            yield
            return
        with self._marked():
            try:
                self._set(clock_mhz)
            except ClockError:
                self._marker.unlink()
                raise
            try:
                yield
            finally:
                self._set(None)
                self._marker.unlink()  # The marker stays where the reset failed, so that the next campaign tries again.

    def restore(self) -> bool:
        """Reset a clock that a crashed campaign left locked, and return whether there was one.

        Raises ClockError: the clock cannot be reset, or another campaign holds this GPU's clock.
        """
        if not self._marker.exists():
            return False
        with self._marked():
            self._set(None)
            self._marker.unlink()
        return True

    @contextmanager
    def _marked(self) -> Iterator[None]:
        self._marker.parent.mkdir(parents=True, exist_ok=True)
        with self._marker.open("a") as file:
            if not lock(file, wait=False):
                raise ClockError(
                    "another campaign holds this GPU's clock",
                    given=f"GPU {self._index}",
                    hint="wait for it, or use another GPU",
                )
            file.flush()
            os.fsync(file.fileno())
            yield

    def _identity(self) -> str:
        try:
            with opened(self._index) as (nvml, handle):
                return str(nvml.nvmlDeviceGetUUID(handle))
        except (SensorError, MissingDependencyError):
            return nvidia_smi(f"--id={self._index}", "--query-gpu=uuid", "--format=csv,noheader")

    def _supported_mhz(self) -> list[int]:
        """Clocks that the GPU supports; empty where it does not tell."""
        try:
            with opened(self._index) as (nvml, handle):
                memory_mhz = max(nvml.nvmlDeviceGetSupportedMemoryClocks(handle))
                return list(nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory_mhz))
        except (SensorError, MissingDependencyError, ValueError):
            return []

    def _set(self, clock_mhz: int | None) -> None:
        """Lock a clock, or reset it with None. Raises ClockError: neither NVML nor nvidia-smi may do that."""
        argument = "--reset-gpu-clocks" if clock_mhz is None else f"--lock-gpu-clocks={clock_mhz},{clock_mhz}"
        try:
            with opened(self._index) as (nvml, handle):
                if clock_mhz is None:
                    nvml.nvmlDeviceResetGpuLockedClocks(handle)
                else:
                    nvml.nvmlDeviceSetGpuLockedClocks(handle, clock_mhz, clock_mhz)
        except (SensorError, MissingDependencyError) as error:
            try:
                nvidia_smi(f"--id={self._index}", argument)
            except SensorError as second:
                what, after = "the clock cannot be reset", f"then delete {self._marker}"
                if clock_mhz is not None:
                    what = f"the clock cannot be locked at {clock_mhz} MHz"
                    after = "then collect with a campaign without clocks; the clock that the GPU really holds is stored"
                raise ClockError(
                    what,
                    given=f"{error.given or error.what}; {second.given}",
                    hint=f"run `sudo nvidia-smi --id={self._index} {argument}`; {after}",
                ) from second
