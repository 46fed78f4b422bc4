"""Outcomes of reading hostile files in a separate process, whose end, memory and time are observed from outside."""

from __future__ import annotations

import multiprocessing
import resource
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

IMPORT_SECONDS = 100.0
"""Longest time for importing torch on a busy machine, when the first file needs it."""

FAULTS = ("raw error", "signal", "too much memory", "too slow")
OUTCOMES = ("read", "refused", "stopped", *FAULTS)
"""stopped: refused, because the process that extracts it met its limit of 1 GB or 20 s."""


class Verdict(NamedTuple):
    """One of OUTCOMES, and a text that describes the result or the error."""

    outcome: str
    said: str


@dataclass(frozen=True)
class Limits:
    """Limits for reading one file.

    Args:
        seconds: Time, without that of importing libraries.
        growth_bytes: Memory beside what the process had before.
        address_bytes: Address space, beyond which the process is refused memory; None: not limited.
    """

    seconds: float = 20.0
    growth_bytes: int = 1 << 30
    address_bytes: int | None = None


def verdict_of(error: BaseException) -> Verdict:
    """The outcome that an exception stands for."""
    from joulecast.errors import JoulecastError

    if not isinstance(error, JoulecastError):
        return Verdict("raw error", f"{type(error).__name__}: {error}"[:300])
    if error.what != "the extraction of this model was stopped":
        return Verdict("refused", error.what)
    # A crash of that process does not harm this one, but it is still a fault.
    return Verdict("stopped" if "too" in str(error.given) else "signal", str(error.given))


def _memory(what: str) -> int:
    """Memory of this process in bytes: "VmRSS" for the present value, "VmHWM" for the highest."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split(f"{what}:")[1].split()[0]) * 1024


def _work(pipe: Connection, read: Callable[[Any], str], limits: Limits) -> None:
    """Read cases from a pipe; answer with the verdict, the memory before, and the highest memory, in bytes."""
    if limits.address_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (limits.address_bytes, limits.address_bytes))
    warnings.simplefilter("ignore")
    while True:
        case = pipe.recv()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the highest memory
        before_bytes = _memory("VmRSS")
        try:
            verdict = Verdict("read", read(case) or "")
        except BaseException as error:  # noqa: BLE001  # any exception is an outcome to report
            verdict = verdict_of(error)
        pipe.send((verdict, before_bytes, _memory("VmHWM")))


class Judge:
    """Reads cases in a worker process, which is replaced if it dies or hangs.

    Args:
        read: Function of a module that a new process can import; takes what is judged, returns what it read.
        limits: For each.
    """

    def __init__(self, read: Callable[[Any], str | None], limits: Limits | None = None) -> None:
        self._read, self._limits = read, limits or Limits()
        self._process: Any = None
        self.most_bytes = 0

    def __call__(self, case: Any) -> Verdict:
        """The verdict on a case. A slow case is read a second time, because it may have imported a library."""
        verdict = self._judged(case)
        return self._judged(case) if verdict.outcome == "too slow" else verdict

    def _judged(self, case: Any) -> Verdict:
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_work, args=(theirs, self._read, self._limits))
            self._process.start()
            theirs.close()
        started_s = time.monotonic()
        try:
            self._pipe.send(case)
            if not self._pipe.poll(self._limits.seconds + IMPORT_SECONDS):
                self.stop()
                return Verdict("too slow", f"hung for {self._limits.seconds + IMPORT_SECONDS:.0f} s")
            verdict, before_bytes, most_bytes = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            code, self._process = self._process.exitcode, None
            return Verdict("signal", f"ended with {code}")
        seconds = time.monotonic() - started_s
        grown = most_bytes - before_bytes
        self.most_bytes = max(self.most_bytes, grown)
        if grown > self._limits.growth_bytes:
            return Verdict("too much memory", f"{grown / 1e9:.1f} GB")
        if seconds > self._limits.seconds + 5:
            return Verdict("too slow", f"{seconds:.0f} s")
        return verdict

    def stop(self) -> None:
        """End the worker."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None
