"""Judges hostile files and requests: outcomes of reading in a separate process, observed from outside, and counts."""

from __future__ import annotations

import argparse
import multiprocessing
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

IMPORT_SECONDS = 100.0
"""Longest time for importing torch on a busy machine, when the first file needs it."""

FAULTS = ("raw error", "signal", "too much memory", "too slow", "unnoticed")
OUTCOMES = ("read", "refused", "stopped", *FAULTS)
"""stopped: refused, because the process that extracts it met its limit of 1 GB or 20 s. unnoticed: something else was
read, though the index of digests is that of what it was."""


class Verdict(NamedTuple):
    """One of OUTCOMES, and a text that describes the result or the error."""

    outcome: str
    said: str


SECONDS, GROWTH_BYTES = 20.0, 1 << 30
"""What reading one file may take: time, without that of importing libraries, and memory beside what was used before."""


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


def _work(pipe: Connection, read: Callable[[Any], str | None]) -> None:
    """Read cases from a pipe; answer with the verdict, the memory before, and the highest memory, in bytes."""
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
    """

    def __init__(self, read: Callable[[Any], str | None]) -> None:
        self._read = read
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
            self._process = context.Process(target=_work, args=(theirs, self._read))
            self._process.start()
            theirs.close()
        started_s = time.monotonic()
        try:
            self._pipe.send(case)
            if not self._pipe.poll(SECONDS + IMPORT_SECONDS):
                self.stop()
                return Verdict("too slow", f"hung for {SECONDS + IMPORT_SECONDS:.0f} s")
            verdict, before_bytes, most_bytes = self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            code, self._process = self._process.exitcode, None
            return Verdict("signal", f"ended with {code}")
        seconds = time.monotonic() - started_s
        grown = most_bytes - before_bytes
        self.most_bytes = max(self.most_bytes, grown)
        if grown > GROWTH_BYTES:
            return Verdict("too much memory", f"{grown / 1e9:.1f} GB")
        if seconds > SECONDS + 5:
            return Verdict("too slow", f"{seconds:.0f} s")
        return verdict

    def stop(self) -> None:
        """End the worker."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


@dataclass
class Tally:
    """(kind, outcome) -> number of cases, and a line of text for every fault."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def table(self) -> str:
        """The numbers of cases by kind and outcome, as a table in Markdown."""
        kinds = list(dict.fromkeys(kind for kind, _ in self.counts))
        rows = [["what", "cases", *OUTCOMES], ["---", *["---:"] * (len(OUTCOMES) + 1)]]
        for title, mine in [*((kind, [kind]) for kind in kinds), ("all", kinds)]:
            numbers = [sum(self.counts[kind, outcome] for kind in mine) for outcome in OUTCOMES]
            rows.append([title, *(f"{number:,}" for number in (sum(numbers), *numbers))])
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def fuzz(shares: Mapping[str, int], seed: int, judged: Callable[[str, random.Random], Verdict]) -> Tally:
    """Make and judge as many cases of each kind as its share says, and list the faults."""
    tally = Tally()
    for number in range(max(shares.values())):
        for kind in [kind for kind, share in shares.items() if number < share]:
            outcome, said = judged(kind, random.Random(f"{seed}-{kind}-{number}"))
            tally.counts[kind, outcome] += 1
            if outcome in FAULTS:
                tally.faults.append(f"{kind} #{number}: {outcome}: {said}")
    return tally


def main(
    about: str,
    run: Callable[[Sequence[str], int, int], Tally],
    *,
    what: str = "",
    count: int,
) -> None:
    """Fuzz as the arguments say, print a table, and end with exit code 1 where there are faults.

    Args:
        about: What the script does.
        run: Function of the names, the number of cases in all, and the seed.
        what: What the names are; empty where there are none.
        count: Cases if no number is given.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if what:
        parser.add_argument("names", nargs="*", help=what)
    parser.add_argument("--count", type=int, default=count, help="cases, in equal shares for each kind")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    started_s = time.monotonic()
    tally = run(given.names if what else (), given.count, given.seed)
    print(tally.table())
    print(f"{time.monotonic() - started_s:.0f} s, seed {given.seed}", *tally.faults[:100], sep="\n")
    raise SystemExit(1 if tally.faults else 0)
