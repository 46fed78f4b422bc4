"""A log of outcomes of fuzzing, from which a killed run can continue.

python benchmarks/fuzz_log.py build/fuzz.jsonl      # prints a table of the outcomes
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fuzz_judge import FAULTS, OUTCOMES, Verdict

BLOCK = 25
"""Cases of one kind between two lines of the log. After a kill, at most this number of cases is repeated."""

Judged = Callable[[str, int], Verdict]
"""Function from kind and number of a case to its verdict."""


class Log:
    """Lines of JSON, one for each block of cases, with their kind, their outcomes and their faults.

    Args:
        path: Where they are appended; None: nowhere.
        seed: Of the cases; those of other seeds in the same file are counted, too, and not gone on with.
    """

    def __init__(self, path: Path | None = None, seed: int = 0) -> None:
        self._path, self._seed = path, seed
        self.blocks: list[dict[str, Any]] = []
        if path is not None and path.exists():
            # If a kill left an incomplete line, its cases are repeated.
            lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            self.blocks = [json.loads(line) for line in lines]
            path.write_text("".join(lines))

    def add(self, kind: str, first: int, counts: Mapping[str, int], faults: list[str], seconds: float) -> None:
        """Append a block, and return when it is on disk."""
        number = sum(counts.values())
        block = {"kind": kind, "seed": self._seed, "first": first, "number": number}
        self.blocks.append({**block, "counts": dict(counts), "faults": faults, "seconds": round(seconds, 1)})
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(self.blocks[-1]) + "\n")

    def reached(self, kind: str) -> int:
        """Number of finished cases of a kind with this seed."""
        mine = [block for block in self.blocks if block["kind"] == kind and block["seed"] == self._seed]
        return max((block["first"] + block["number"] for block in mine), default=0)

    @property
    def counts(self) -> Counter[tuple[str, str]]:
        """(kind, outcome) -> number of cases."""
        found: Counter[tuple[str, str]] = Counter()
        for block in self.blocks:
            found.update({(block["kind"], outcome): number for outcome, number in block["counts"].items()})
        return found

    @property
    def faults(self) -> list[str]:
        """One line of text for every fault."""
        return [fault for block in self.blocks for fault in block["faults"]]

    def table(self, outcomes: tuple[str, ...] = OUTCOMES) -> str:
        """The number of cases by kind and outcome, as a table in Markdown."""
        counts = self.counts
        kinds = list(dict.fromkeys(block["kind"] for block in self.blocks))
        rows = [["", "cases", *outcomes]]
        for title, mine in [*((kind, [kind]) for kind in kinds), ("all", kinds)]:
            numbers = [sum(counts[kind, outcome] for kind in mine) for outcome in outcomes]
            rows.append([title, *(f"{number:,}" for number in (sum(numbers), *numbers))])
        rows.insert(1, ["---", *["---:"] * (len(outcomes) + 1)])
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def fuzz(shares: Mapping[str, int], judged: Judged, log: Log, *, faults: tuple[str, ...] = FAULTS) -> None:
    """Judge cases of all kinds in turn, starting where the log ends.

    Args:
        shares: Kind -> cases.
        judged: Makes and judges one.
        log: What is done by now, and where the rest is written.
        faults: Outcomes that are listed with what was said.
    """
    reached = {kind: min(log.reached(kind), share) for kind, share in shares.items()}
    while any(reached[kind] < share for kind, share in shares.items()):
        kind = min(shares, key=lambda each: reached[each] / max(1, shares[each]))
        first, last = reached[kind], min(shares[kind], reached[kind] + BLOCK)
        counts: Counter[str] = Counter()
        found, started_s = [], time.monotonic()
        for number in range(first, last):
            outcome, said = judged(kind, number)
            counts[outcome] += 1
            if outcome in faults:
                found.append(f"{kind} #{number}: {outcome}: {said}")
        log.add(kind, first, counts, found, time.monotonic() - started_s)
        reached[kind] = last


def main() -> None:
    """Print one table for several logs."""
    log = Log()
    for name in sys.argv[1:]:
        log.blocks += Log(Path(name)).blocks
    others = {outcome for _, outcome in log.counts} - set(OUTCOMES)
    print(log.table((*OUTCOMES[:3], *sorted(others), *FAULTS)))
    print(*log.faults, sep="\n")


if __name__ == "__main__":
    main()
