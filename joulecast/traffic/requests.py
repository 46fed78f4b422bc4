"""The requests of a simulation: arrivals at a rate, from a trace, or whenever another one ends, and their lengths."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..checked import in_range
from ..errors import InputError
from ..generation.serving import Lengths
from ..system.regular_files import is_file

_COLUMNS = {
    "arrival_s": ("arrival_s", "arrival", "arrived_at", "timestamp", "time_s"),
    "prompt_tokens": ("prompt_tokens", "input_tokens", "contexttokens", "num_prefill_tokens", "prompt"),
    "output_tokens": ("output_tokens", "generatedtokens", "num_decode_tokens", "output"),
    "prefix": ("prefix", "session", "session_id", "conversation_id"),
    "prefix_tokens": ("prefix_tokens", "shared_tokens", "cached_tokens"),
}
_OPTIONAL = ("prefix", "prefix_tokens")
_MOST = 50_000_000  # Requests of a simulation: some gigabytes.
_AT_ONCE = 4096


@dataclass(frozen=True)
class Trace:
    """Requests by arrival."""

    arrival_s: FloatArray  # Seconds from the start, in order, shape (requests,)
    prompt: FloatArray  # Tokens of prompts and outputs, shape (requests,)
    output: FloatArray
    # Group of requests whose prompts begin alike, -1 for none, and tokens that do; empty for none.
    prefix: FloatArray = field(default_factory=lambda: np.zeros(0))
    shared: FloatArray = field(default_factory=lambda: np.zeros(0))
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.arrival_s)
        if len(self.prefix) != count:
            object.__setattr__(self, "prefix", np.full(count, -1.0))
            object.__setattr__(self, "shared", np.zeros(count))

    def of(self, some: Any) -> Trace:
        """Some of the requests, or all in another order: by their places, or by whether each is one of them."""
        names = ("arrival_s", "prompt", "output", "prefix", "shared")
        return replace(self, **{name: getattr(self, name)[some] for name in names})

    def sharing(self, prefixes: tuple[int, int], seed: Any) -> Trace:
        """The same requests with prompts that begin alike, such as with a system prompt.

        `prefixes`: Number of different beginnings, each as likely as any other, and tokens of each.
        """
        drawn = np.random.default_rng(seed).integers(prefixes[0], size=len(self.prompt))
        return replace(self, prefix=drawn.astype(float), shared=np.full(len(drawn), float(prefixes[1])))

    def until(self, end_s: float | None) -> Trace:
        """The requests that arrive before a time; all without one."""
        if end_s is None:
            return self
        some = self.arrival_s < end_s
        if not some.any():
            raise InputError(
                "no request of the trace arrives in this time",
                given=f"duration_s={end_s:g}, first arrival at {self.arrival_s[0]:g} s",
                allowed="a longer duration_s",
                hint="count seconds from the first request",
            )
        return self.of(some)


class Drawn:
    """Lengths drawn at random, in the same order for the same seed.

    One number is always drawn. A mean and standard deviation are those of a log-normal distribution, whose long tail
    published lengths have. Of an array, each length is as likely as any other.
    """

    def __init__(self, name: str, value: Any, seed: np.random.SeedSequence, more: int = 0) -> None:
        """Lengths as users give them (see `Lengths.of`), and as many tokens more of each."""
        self._lengths, self._more = Lengths.of(name, value), more
        self.lengths = self._lengths.plus(more)
        is_pair = not isinstance(value, np.ndarray) and isinstance(value, Sequence) and len(value) == 2
        self._among = None if isinstance(value, int) or is_pair else np.ravel(np.asarray(value, dtype=float))
        self._random = np.random.default_rng(seed)

    def take(self, count: int) -> FloatArray:
        """The next lengths, shape (count,)."""
        mean, deviation = self._lengths.mean, self._lengths.deviation
        if self._among is not None:
            drawn = self._random.choice(self._among, count)
        elif deviation:
            variance = math.log1p((deviation / mean) ** 2)
            drawn = self._random.lognormal(math.log(mean) - variance / 2, math.sqrt(variance), count)
        else:
            return self._more + np.full(count, mean)
        return self._more + np.maximum(np.round(drawn), 1.0)


def endless(prompt: Drawn, output: Drawn, context: float) -> Iterator[tuple[int, int]]:
    """Prompts and outputs of one request after the other, cut to the context of the model."""
    while True:
        prompts, outputs = _within(prompt.take(_AT_ONCE), output.take(_AT_ONCE), context)
        yield from zip(prompts.astype(int).tolist(), outputs.astype(int).tolist(), strict=True)


def at_rate(
    rate_per_s: float, burstiness: float, duration_s: float, prompt: Drawn, output: Drawn, context: float, seed: Any
) -> Trace:
    """Requests that arrive at random.

    `burstiness`: Coefficient of variation of the time between two of them, gamma distributed; 1 for a Poisson
    process, 0 for equal times.
    `context`: Largest number of tokens of both; longer outputs, and then prompts, are cut.
    """
    expected = in_range("the number of requests", rate_per_s * duration_s, high=_MOST)
    random, variance = np.random.default_rng(seed), burstiness**2
    times = np.zeros(0)
    while not len(times) or times[-1] < duration_s:
        count = int(expected * 1.1) + 100
        gaps = random.gamma(1 / variance, variance / rate_per_s, count) if variance else np.full(count, 1 / rate_per_s)
        times = np.concatenate([times, (times[-1] if len(times) else 0.0) + np.cumsum(gaps)])
    times = times[times < duration_s]
    if not len(times):
        raise InputError(
            "no request arrives in this time",
            given=f"{rate_per_s:g} requests/s for {duration_s:g} s",
            allowed="at least one request",
            hint="give a longer duration_s",
        )
    return Trace(times, *_within(prompt.take(len(times)), output.take(len(times)), context))


def _within(prompt: FloatArray, output: FloatArray, context: float) -> tuple[FloatArray, FloatArray]:
    """Lengths with outputs, and then prompts, cut to the context of the model."""
    prompts = np.minimum(prompt, context - 1)
    return prompts, np.minimum(output, context - prompts)


def read_trace(source: str | Path | Any) -> Trace:
    """Requests from a table with their arrival in seconds and the tokens of prompt and output.

    A column `prefix` says whose prompts begin alike, such as the turns of a session, and `prefix_tokens` how far;
    without the latter, as far as the session was known before.
    """
    named = f"the trace {source}" if isinstance(source, str | Path) else "the trace"
    table = _columns(source, named)

    def wrong(what: str, given: str, allowed: str, hint: str) -> InputError:
        return InputError(f"{named} {what}", given=given, allowed=allowed, hint=hint)

    lower = {str(name).lower().replace(" ", "_"): name for name in table}
    found = {}
    for name, spellings in _COLUMNS.items():
        column = next((lower[each] for each in spellings if each in lower), None)
        if column is None and name in _OPTIONAL:
            continue
        if column is None:
            columns = ", ".join(map(str, table)) or "no columns"
            raise wrong(f"has no column for {name}", columns, ", ".join(spellings), "rename the column")
        try:
            words = np.unique(np.asarray(table[column]), return_inverse=True)[1] if name == "prefix" else table[column]
            found[name] = np.asarray(words, dtype=float)
        except ValueError as error:
            what, allowed = f"has values in {column} that are no numbers", "seconds since the start, and tokens"
            raise wrong(what, str(error)[-60:], allowed, "correct the column") from None
    arrival_s, prompt, output = (found[name] for name in ("arrival_s", "prompt_tokens", "output_tokens"))
    if "prefix" in found:  # As much of the prompt as was in the cache with the session before it.
        found.setdefault("prefix_tokens", prompt)
    if not len(arrival_s) or len({len(values) for values in found.values()}) > 1:
        given = ", ".join(f"{len(values)} of {name}" for name, values in found.items())
        raise wrong("has columns that are empty or differ in length", given, "a value for each request", "add the rest")
    for name, values in found.items():
        least = int(name in ("prompt_tokens", "output_tokens"))
        impossible = ~(np.isfinite(values) & (values >= least))
        if impossible.any():
            row = int(impossible.argmax())
            hint = "count seconds from the first request" if name == "arrival_s" else "leave such requests out"
            given = f"{values[row]:g} in row {row + 1}"
            raise wrong(f"has a value of {name} that cannot be", given, f"{least} or more", hint)
    order = np.argsort(arrival_s, kind="stable")
    moved = int((np.diff(arrival_s) < 0).sum())
    notes = (f"{named} was not in the order of arrival, and was sorted",) if moved else ()
    groups = (found["prefix"], np.round(found["prefix_tokens"])) if "prefix" in found else ()
    return replace(Trace(arrival_s, np.round(prompt), np.round(output), *groups).of(order), notes=notes)


def _columns(source: Any, named: str) -> Any:
    if not isinstance(source, str | Path):
        return source
    path = Path(source)
    if not is_file(path):
        raise InputError(
            "there is no such trace",
            given=str(source),
            allowed="a CSV or Parquet file, or requests per second",
            hint="give the path of a file",
        )
    if path.suffix == ".parquet":
        from pyarrow.parquet import read_table

        table: Any = read_table(path)
        return {name: column.to_numpy() for name, column in zip(table.column_names, table.columns, strict=True)}
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        raise InputError(
            f"{named} is no table", given=f"{len(rows)} lines", allowed="CSV with a header", hint="give another file"
        )
    return {name: [row[place] for row in rows[1:]] for place, name in enumerate(rows[0])}
