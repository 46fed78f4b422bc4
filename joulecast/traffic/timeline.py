"""Timeline: what replicas did over time, in equal steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from ..arrays import FloatArray
from ..checked import in_range
from ..errors import InputError
from ..predictors.intervals.conformal import require_level
from ..rendering.answers import Table, Tabular, finite

Columns = Mapping[str, FloatArray]
"""The log of a replica: an array of shape (entries,) for each column of `LOG`."""


def end_s_of(logs: Sequence[Columns]) -> float:
    """The end of the last entry of all logs."""
    return max(float(log["start_s"][-1] + log["time_s"][-1]) for log in logs)


def gaps(log: Columns, share: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Seconds from one token of a sequence to the next, and how often: arrays of shape (2 x entries,).

    `share`: Share of each entry that is counted, shape (entries,).
    """
    time_s, steps, decoding = (log[name] for name in ("time_s", "steps", "decoding"))
    each_s = time_s / np.maximum(steps, 1)
    # Steps in which sequences wait for the prompts of others lengthen the next step in which they decode.
    waited_s = np.cumsum(np.where(log["stalled"] > 0, time_s, 0.0))
    decodes = decoding > 0
    stalled_s = np.zeros(len(time_s))
    stalled_s[decodes] = np.diff(waited_s[decodes], prepend=0.0)
    first = (stalled_s > 0) & decodes
    counts = share * (steps - first) * decoding, share * first * decoding
    return np.concatenate([each_s, each_s + stalled_s]), np.concatenate(counts)


def weighted_quantile(values: FloatArray, weights: FloatArray, quantile: float) -> float:
    """The least value that a share of the weight does not exceed."""
    if quantile not in (0, 1):
        require_level(quantile)
    some = weights > 0
    if not some.any():
        raise InputError(
            "no request has such a latency",
            given="0 requests in the time that is counted",
            allowed="at least one",
            hint="give a longer duration_s, or outputs of at least two tokens",
        )
    values, weights = values[some], weights[some]
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    place = min(int(np.searchsorted(reached, quantile * reached[-1])), len(values) - 1)
    return float(values[order[place]])


def usual_step(logs: Sequence[Columns]) -> tuple[float, float]:
    """Mean number of sequences of a replica that decode at a time, and of the tokens that each has in the cache."""
    steps, decoding, cached = (np.concatenate([log[name] for log in logs]) for name in ("steps", "decoding", "cached"))
    sequences, some = float((steps * decoding).sum()), decoding > 0
    each = float((steps * cached)[some].sum()) / max(sequences, 1.0)
    return sequences / max(float(steps[some].sum()), 1.0), each


@dataclass(frozen=True)
class Timeline(Tabular):
    """What all replicas did over time; arrays of shape (times,), each the mean of a step from that time on.

    Args:
        time_s: Begin of each step in seconds.
        power_w: Power of all boards in watts.
        prompt_power_w, decode_power_w, idle_power_w: Its parts: of reading prompts, of decoding, and of replicas
            without work.
        decoding: Sequences that decoded.
        waiting: Requests in the queue.
        prompt_tokens_per_s: Tokens of prompts that were read.
        cache_share: Share of the memory for keys and values that was in use.
        busy_share: Share of the time in which replicas had work.
        ttft_s: Mean seconds to the first token of the requests that arrived; NaN where none did.
    """

    time_s: FloatArray
    power_w: FloatArray
    prompt_power_w: FloatArray
    decode_power_w: FloatArray
    idle_power_w: FloatArray
    decoding: FloatArray
    waiting: FloatArray
    prompt_tokens_per_s: FloatArray
    cache_share: FloatArray
    busy_share: FloatArray
    ttft_s: FloatArray

    @classmethod
    def of(
        cls, logs: Sequence[Columns], cache_tokens: float, step_s: float, arrival_s: FloatArray, ttft_s: FloatArray
    ) -> Timeline:
        """What logs say in equal steps of time.

        `cache_tokens`: Tokens of keys and values that fit on all replicas. `step_s`: Seconds of a step. `arrival_s`,
        `ttft_s`: Seconds at the arrival of each request, and to its first token, shape (requests,).

        Raises InputError: the step is too small for the time that was simulated.
        """
        end_s = end_s_of(logs)
        in_range("step_s", step_s, end_s / 1e7)
        edges = np.arange(math.ceil(end_s / step_s - 1e-9) + 1) * step_s
        sums = {}
        for name in ("energy_j", "decoding_j", "idle_j", "decoding", "waiting", "prompt_tokens", "cached", "busy"):
            total = np.zeros(len(edges) - 1)
            for log in logs:
                start_s, time_s, busy = log["start_s"], log["time_s"], log["steps"] > 0
                of = {"busy": busy, "idle_j": np.where(busy, 0.0, log["energy_j"])}
                values = of[name] if name in of else log[name]
                amounts = values if name.endswith("_j") or name == "prompt_tokens" else values * time_s
                times = np.append(start_s, start_s[-1] + time_s[-1])
                total += np.diff(np.interp(edges, times, np.append(0.0, np.cumsum(amounts))))
            sums[name] = total / step_s
        arrived, _ = np.histogram(arrival_s, edges)
        waited, _ = np.histogram(arrival_s, edges, weights=ttft_s)
        return cls(
            edges[:-1].astype(float),
            sums["energy_j"],
            np.maximum(sums["energy_j"] - sums["decoding_j"] - sums["idle_j"], 0.0),
            sums["decoding_j"],
            sums["idle_j"],
            sums["decoding"],
            sums["waiting"],
            sums["prompt_tokens"],
            sums["cached"] / cache_tokens,
            sums["busy"] / len(logs),
            np.where(arrived > 0, waited / np.maximum(arrived, 1), np.nan),
        )

    def _table(self) -> Table:
        names = [each.name for each in fields(self)]
        rows = zip(*(getattr(self, name).tolist() for name in names), strict=True)
        return Table(names, map(finite, rows))
