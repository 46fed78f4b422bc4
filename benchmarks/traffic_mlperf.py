"""MLPerf's Server beside Offline: the share of a server's throughput that is left under random arrivals and a limit.

BERT-large in fp16 (bert-99.9) by TensorRT, the only network of mlperfinference2025 whose precision is predicted here.
Questions arrive at random and 99 % are answered within 130 ms; a step takes all that wait. Nothing was fitted.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

import joulecast
from joulecast.errors import JoulecastError
from joulecast.hardware import find_gpu
from joulecast.traffic.scheduler import Cache, Limits, Replica, Request

_LIMIT_S = 0.13  # MLPerf Inference rules, bert: 130 ms at the 99th percentile.
_MEAN, _DEVIATION, _MOST = 177, 85, 384  # Tokens of SQuAD's questions with their texts; longer ones are cut.
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_QUESTIONS, _TRIES, _AT_ONCE = 6000, 8, 256


class EncoderSteps:
    """Steps that read whole questions without padding; their time follows from their tokens."""

    idle_w = 0.0

    def __init__(self, gpu: str, cap_w: float | None) -> None:
        """Predict the steps."""
        options = {"precision": "fp16", "execution": "graph", "power_limit_w": cap_w}
        self.time_s = [joulecast.predict("bert_large", (size, _MEAN), gpu, **options).time_s for size in _SIZES]

    def decode(self, sequences: int, context: float) -> tuple[float, float]:
        """See `PredictedSteps`; no question is answered in more than one step."""
        raise AssertionError

    def mixed(self, sequences: int, context: float, prompts: int, tokens: int, *more: float) -> tuple[float, float]:
        """See `PredictedSteps`."""
        return float(np.interp(tokens, [size * _MEAN for size in _SIZES], self.time_s)), 0.0


_predicted = cache(EncoderSteps)


def rows(path: Path) -> Iterator[tuple[list[str], float, float]]:
    """For each server its cells, and the errors of the ratio and of Offline as ratios of simulated to measured."""
    pairs: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["model"] == "bert-99.9" and row["precision"] == "fp16" and not row["suspect"]:
                server = tuple(row[name] for name in ("version", "submitter", "system", "gpu", "gpus", "max_q"))
                pairs.setdefault(server, {})[row["scenario"]] = row
    random = np.random.default_rng(0)
    variance = math.log1p((_DEVIATION / _MEAN) ** 2)
    drawn = random.lognormal(math.log(_MEAN) - variance / 2, math.sqrt(variance), _QUESTIONS)
    tokens = np.clip(np.round(drawn), 20, _MOST).astype(int)
    gaps = np.cumsum(random.exponential(1, _QUESTIONS))
    for server, scenarios in pairs.items():
        if not {"Server", "Offline"} <= set(scenarios):
            continue
        try:
            gpu = find_gpu(server[3].removesuffix(" CTS").replace("SXM-80", "SXM4-80")).name
        except JoulecastError:
            continue
        measured, steps = {}, {}
        for scenario in ("Server", "Offline"):
            row = scenarios[scenario]
            measured[scenario] = float(row["samples_per_s"]) / int(row["gpus"])
            steps[scenario] = _predicted(gpu, float(row["gpu_cap_w"]) if row["gpu_cap_w"] else None)
        offline = _offline(steps["Offline"], tokens)
        ratio, known = _server(steps["Server"], tokens, gaps) / offline, measured["Server"] / measured["Offline"]
        cells = [server[0], server[1], gpu, f"{known:.2f}", f"{ratio:.2f}", f"{100 * (ratio / known - 1):+.0f}"]
        yield cells, ratio / known, offline / measured["Offline"]


def _offline(steps: EncoderSteps, tokens: np.ndarray) -> float:
    return max(size / each for size, each in zip(_SIZES, steps.time_s, strict=True)) * _MEAN / float(tokens.mean())


def _server(steps: EncoderSteps, tokens: np.ndarray, gaps: np.ndarray) -> float:
    """The highest rate at which 99 % of the questions are answered within the limit."""

    def p99_s(rate: float) -> float:
        replica = Replica(steps, Cache(1e12), Limits(_AT_ONCE, 10**7))
        requests = [Request(*each, 1) for each in zip((gaps / rate).tolist(), tokens.tolist(), strict=True)]
        for request in requests:
            replica.advance(request.arrival_s)
            replica.add(request)
        replica.advance(math.inf)
        return float(np.quantile([each.first_token_s - each.arrival_s for each in requests], 0.99))

    low, high = 0.0, _offline(steps, tokens)
    for _ in range(_TRIES):
        middle = (low + high) / 2
        low, high = (middle, high) if p99_s(middle) <= _LIMIT_S else (low, middle)
    return low
