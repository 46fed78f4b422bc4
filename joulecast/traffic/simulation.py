"""ServingSimulation: latencies, throughput, energy and power over time of a simulated engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..checked import in_range
from ..errors import InputError
from ..rendering.answers import Answer, Table, finite
from ..rendering.described import Description, Grid
from ..rendering.pictures import Line, Picture, lines_over, one_below_the_other
from ..units import duration, number, si
from .timeline import Columns, Timeline, end_s_of, gaps, weighted_quantile

_SHOWN = (0.5, 0.9, 0.99)
_POINTS, _STEPS = 600, 120  # Points of a line that is drawn, and steps of a timeline that is sent.


@dataclass(frozen=True, repr=False)
class ServingSimulation(Answer):
    """A simulated engine that serves requests. As a table it has a row for each request.

    Rates, energies and shares are those between `warmup_s` and `duration_s`; latencies those of the requests that
    arrived then, each of which is served to its end.

    Args:
        model: Name of the model.
        gpu: Full name of the GPU model.
        gpus: Number of GPUs.
        layout: How they share the model.
        engine: Name of the engine.
        precision: Precision of the weights.
        clock_mhz: Requested graphics clock in MHz.
        power_limit_w: Power cap of a board in watts.
        seed: Seed of arrivals and lengths.
        rate_per_s: Mean requests per second that were asked for; None for a trace or a closed loop.
        concurrency: Requests at a time in a closed loop; None otherwise.
        warmup_s, duration_s: Begin and end of what is counted, in seconds.
        cache_tokens: Tokens of keys and values that fit on all replicas.
        requests: Column -> array over all requests: arrival_s, prompt_tokens, output_tokens, first_token_s, end_s,
            energy_j (its share of the steps that it took part in), preemptions.
        logs: For each replica, its log: column of `LOG` -> array of shape (entries,).
        notes: What should be known about the result.
        level: The share of runs whose values should lie in the intervals; None without intervals.
        intervals: Quantity, with its quantile if it has one -> low and high, such as "ttft_s p99".
    """

    model: str
    gpu: str
    gpus: int
    layout: str
    engine: str
    precision: str
    clock_mhz: float
    power_limit_w: float
    seed: int
    rate_per_s: float | None
    concurrency: int | None
    warmup_s: float
    duration_s: float
    cache_tokens: float
    requests: dict[str, FloatArray] = field(repr=False)
    logs: tuple[Columns, ...] = field(repr=False)
    notes: tuple[str, ...] = ()
    level: float | None = None
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict, repr=False)

    def between(
        self, ends: Sequence[ServingSimulation], spreads: Mapping[str, tuple[float, float]], level: float
    ) -> ServingSimulation:
        """The same with intervals for a share of runs, `level`.

        `ends`: The same requests with steps that are as quick, and as slow, as they may be. `spreads`: Factors on
        "energy" and "power" between which they lie.
        """
        found: dict[str, Sequence[float | None]] = {"tokens_per_s": [each.tokens_per_s for each in (self, *ends)]}
        # At a rate, power is joules times requests; in a closed loop, slower steps need less of it. However slow they
        # are, boards draw no more than their caps.
        most_w = self.gpus * self.power_limit_w
        slowest = max(min(each.tokens_per_s for each in ends), math.ulp(0.0))
        for name, of, most in (
            ("energy_per_token_j", "energy", most_w / slowest),
            ("power_w", "power" if self.concurrency else "energy", most_w),
        ):
            own, (less, more) = float(getattr(self, name)), spreads[of]
            found[name] = less * own, max(own, min(more * own, most))
        # Where slow steps are rare, slower ones may be rarer than a quantile, which then lies below the simulated one.
        for name, at in product(_LATENCIES, _SHOWN):
            found[f"{name} p{100 * at:g}"] = [each.known(name, at) for each in (self, *ends)]
        every = {name: [each for each in values if each is not None] for name, values in found.items()}
        known = {name: (min(values), max(values)) for name, values in every.items() if len(values) == len(found[name])}
        return replace(self, level=level, intervals=known)

    @property
    def counted(self) -> int:
        """Number of requests that arrived in the time that is counted."""
        return int(self._counted.sum())

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second of all requests."""
        return self._output_tokens / self._window_s

    @property
    def requests_per_s(self) -> float:
        """Requests per second that ended."""
        ends = self.requests["end_s"]
        return float(((ends > self.warmup_s) & (ends <= self.duration_s)).sum()) / self._window_s

    @property
    def energy_j(self) -> float:
        """Joules of all boards, those of waiting included."""
        return self._sum("energy_j")

    @property
    def idle_energy_j(self) -> float:
        """Joules of all boards while their replica had no request."""
        return self._sum("energy_j", waiting=True)

    @property
    def power_w(self) -> float:
        """Mean power of all boards in watts."""
        return self.energy_j / self._window_s

    @property
    def energy_per_token_j(self) -> float:
        """Joules of all boards per output token."""
        return self.energy_j / self._output_tokens if self._output_tokens else math.inf

    @property
    def idle_share(self) -> float:
        """Share of the time in which a replica had no request, as a mean of all replicas."""
        return self._sum("time_s", waiting=True) / len(self.logs) / self._window_s

    @property
    def preemptions(self) -> int:
        """How often a sequence was put back to the queue because the memory was full."""
        return int(self.requests["preemptions"][self._counted].sum())

    def ttft_s(self, quantile: float) -> float:
        """Seconds from the arrival of a request to its first token: the quantile of all requests, such as 0.99.

        Raises InputError: the quantile is not between 0 and 1, or no request was counted.
        """
        return self._quantile("ttft_s", quantile)

    def tpot_s(self, quantile: float) -> float:
        """Mean seconds of a request from one token to the next, as a quantile of all requests of at least two tokens.

        Raises InputError: the quantile is not between 0 and 1, or no request has two tokens.
        """
        return self._quantile("tpot_s", quantile)

    def latency_s(self, quantile: float) -> float:
        """Seconds from the arrival of a request to its last token, as a quantile of all requests.

        Raises InputError: the quantile is not between 0 and 1, or no request was counted.
        """
        return self._quantile("latency_s", quantile)

    def itl_s(self, quantile: float) -> float:
        """Seconds from one token of a request to the next, as a quantile of all tokens ("inter-token latency").

        Tokens that were drafted and accepted come together: then it is the time from one step to the next.

        Raises InputError: the quantile is not between 0 and 1, or no sequence decoded.
        """
        found = [gaps(log, self._share(log)) for log in self.logs]
        seconds, weights = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return weighted_quantile(seconds, weights, quantile)

    def known(self, name: str, quantile: float) -> float | None:
        """A quantile of "ttft_s", "tpot_s", "itl_s" or "latency_s"; None where no request has such a latency."""
        try:
            found: float = getattr(self, name)(quantile)
        except InputError:
            return None
        return found

    def mean(self, name: str) -> float:
        """The mean of "ttft_s", "tpot_s" or "latency_s" over the requests that are counted; 0 where none has such."""
        values = self._each_s(name)[self._counted]
        return float(values[np.isfinite(values)].mean()) if np.isfinite(values).any() else 0.0

    def goodput_per_s(
        self, *, ttft_s: float = math.inf, tpot_s: float = math.inf, latency_s: float = math.inf
    ) -> float:
        """Requests per second that keep all of these limits ("goodput").

        Args:
            ttft_s: Most seconds to the first token.
            tpot_s: Most mean seconds of a request from one token to the next.
            latency_s: Most seconds to the last token.
        """
        limits = {"ttft_s": ttft_s, "tpot_s": tpot_s, "latency_s": latency_s}
        kept = self._counted & ~np.any([self._each_s(name) > most for name, most in limits.items()], axis=0)
        return float(kept.sum()) / self._window_s

    def timeline(self, step_s: float = 1.0, replica: int | None = None) -> Timeline:
        """Power, queue and memory over time, from the start to the end of the last request.

        Args:
            step_s: Seconds between two values, such as 0.1.
            replica: Number of a replica, from 0; None for all together. All GPUs of a replica do the same.

        Raises InputError: the step is too small for the time that was simulated, or there is no such replica.
        """
        requests = self.requests["arrival_s"], self._each_s("ttft_s")
        if replica is None:
            return Timeline.of(self.logs, self.cache_tokens, step_s, *requests)
        in_range("replica", replica, high=len(self.logs) - 1, whole=True)
        return Timeline.of(self.logs[replica : replica + 1], self.cache_tokens / len(self.logs), step_s, *requests)

    def latencies(self) -> tuple[list[str], list[list[str]]]:
        """The latencies at P50, P90 and P99 as texts: the header and the rows of a table."""
        found = {name: [self.known(key, at) for at in _SHOWN] for key, name in _LATENCIES.items()}
        rows = [[name, *("-" if each is None else si(each, "s") for each in row)] for name, row in found.items()]
        for row, key in zip(rows, _LATENCIES if self.intervals else (), strict=False):
            for place, at in enumerate(_SHOWN, 1):
                ends = self.intervals.get(f"{key} p{100 * at:g}", ())
                row[place] += f" ({' to '.join(si(each, 's') for each in ends)})" if ends else ""
        return ["", *(f"P{100 * at:g}" for at in _SHOWN)], rows

    def to_dict(self) -> dict[str, Any]:
        """The result without its single requests, but with a timeline, as plain lists; quantities in SI units."""
        timeline = self.timeline(max(end_s_of(self.logs) / _STEPS, 1e-3))
        plain = (str, int, float, type(None))
        told = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            **{name: value for name, value in told.items() if isinstance(value, plain)},
            "requests": self.counted,
            **{name: getattr(self, name) for name in _TOLD},
            **{name: {f"p{100 * at:g}": self.known(name, at) for at in _SHOWN} for name in _LATENCIES},
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "timeline": {name: finite(values.tolist()) for name, values in vars(timeline).items()},
            "notes": list(self.notes),
        }

    @property
    def boards(self) -> str:
        """The GPUs with their number and layout, such as "2x NVIDIA H200 (TP 2)"."""
        return f"{self.gpus}x {self.gpu} ({self.layout})" if self.gpus > 1 else self.gpu

    def __str__(self) -> str:
        first, further = (row[-1] for row in self.latencies()[1][:2])
        return (
            f"{self.model} on {self.boards}: {self.counted:,} requests in {duration(self._window_s)}, "
            f"first token {first} and {further} per token at P99, "
            f"{self.tokens_per_s:,.0f} tokens/s, {si(self.energy_per_token_j, 'J')} per token, "
            f"{si(self.power_w, 'W')}"
        )

    def described(self) -> Description:
        """What a terminal and a notebook show: what was served, latencies, power and energy."""
        served = (
            f"{self.counted:,} requests in {duration(self._window_s)}, "
            f"{number(self.requests_per_s)} requests/s and {self.tokens_per_s:,.0f} tokens/s were served"
        )
        drawn = (
            f"power {si(self.power_w, 'W')}, {si(self.energy_j, 'J')} in all, "
            f"{si(self.energy_per_token_j, 'J')} per token; "
            f"{100 * self.idle_share:.1f} % of the time without requests; {self.preemptions} preemptions"
        )
        title = f"{self.model}, {self.precision}, by {self.engine} on {self.boards}\n{served}"
        return Description(title, [Grid(*self.latencies(), {1, 2, 3}), drawn], self.notes)

    def _picture(self) -> Picture:
        found = self.timeline(max(end_s_of(self.logs) / _POINTS, 1e-3))
        lines = []
        for name, values, unit in (
            ("power of all boards", found.power_w, "W"),
            ("sequences that decode", found.decoding, ""),
            ("requests that wait", found.waiting, ""),
        ):
            points = list(zip(found.time_s.tolist(), values.tolist(), strict=True))
            line = Line(name, points, int(np.argmax(values)))
            title = f"{name.capitalize()}: {self.model} on {self.boards}"
            lines.append(lines_over([line], ("time", "s"), (name, unit), title))
        return one_below_the_other(lines)

    def _table(self) -> Table:
        columns = [self.requests[name] if name in self.requests else self._each_s(name) for name in _COLUMNS]
        return Table(_COLUMNS, map(finite, zip(*(column.tolist() for column in columns), strict=True)))

    def _each_s(self, name: str) -> FloatArray:
        """Seconds of each request: "ttft_s", "latency_s", or "tpot_s", which is NaN for a single token."""
        found = self.requests
        if name == "tpot_s":
            further, seconds = found["output_tokens"] - 1.0, found["end_s"] - found["first_token_s"]
            return np.where(further > 0, seconds / np.maximum(further, 1), np.nan)
        until_s: FloatArray = found["first_token_s" if name == "ttft_s" else "end_s"]
        return until_s - found["arrival_s"]

    @property
    def _window_s(self) -> float:
        return self.duration_s - self.warmup_s

    @property
    def _counted(self) -> Any:
        arrival_s = self.requests["arrival_s"]
        return (arrival_s >= self.warmup_s) & (arrival_s <= self.duration_s)

    @property
    def _output_tokens(self) -> float:
        """Output tokens in the time that is counted: those of its steps, of which drafts that are accepted are more."""
        counts = [log["steps"] * log["decoding"] + log["completed"] for log in self.logs]
        some = sum(float((self._share(log) * count).sum()) for log, count in zip(self.logs, counts, strict=True))
        each = float(self.requests["output_tokens"].sum()) / max(sum(float(count.sum()) for count in counts), 1.0)
        return some * each

    def _share(self, log: Columns) -> FloatArray:
        """Share of each entry of a log within the time that is counted."""
        start_s, time_s = log["start_s"], log["time_s"]
        ends = np.clip([start_s, start_s + time_s], self.warmup_s, self.duration_s)
        found: FloatArray = (ends[1] - ends[0]) / np.maximum(time_s, 1e-15)
        return found

    def _sum(self, name: str, waiting: bool = False) -> float:
        """The sum of a column of all logs in the time that is counted; of entries without work alone if `waiting`."""
        found = (self._share(log) * log[name] * (log["steps"] == 0 if waiting else 1) for log in self.logs)
        return math.fsum(float(values.sum()) for values in found)

    def _quantile(self, name: str, quantile: float) -> float:
        values = self._each_s(name)
        some = values[self._counted & np.isfinite(values)]
        return weighted_quantile(some, np.ones(len(some)), quantile)

    def overload(self) -> tuple[str, ...]:
        """A note where the queue of an open loop grows: many requests waited long, and are left at the end."""
        left = self._counted & (self.requests["end_s"] > self.duration_s)
        late = self._each_s("ttft_s") > 0.1 * self._window_s
        if self.concurrency is not None or (left & late).sum() <= 0.05 * self.counted:
            return ()
        ended = f"the queue grows: these GPUs end {number(self.requests_per_s)} requests/s, and more arrive"
        return (f"{ended}, so latencies depend on the duration",)


_TOLD = (
    *("tokens_per_s", "requests_per_s", "energy_j", "idle_energy_j", "energy_per_token_j", "power_w", "idle_share"),
    "preemptions",
)
_COLUMNS = (
    *("arrival_s", "prompt_tokens", "output_tokens", "ttft_s", "tpot_s", "latency_s", "energy_j", "preemptions"),
)
_LATENCIES = {
    "ttft_s": "time to first token",
    "tpot_s": "time per output token",
    "itl_s": "between two tokens",
    "latency_s": "whole request",
}
