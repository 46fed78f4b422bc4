"""Requests on their way through the replicas of a model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from ..progress import PACE
from .requests import Trace
from .scheduler import Cache, Replica

ROUTERS = ("round_robin", "least_loaded", "prefix")
"""How requests are given to replicas: in turn, to the one with the fewest, or those with a prefix to the same one."""

_PACE = 1000  # Requests between two moments at which a service may stop a simulation.


@dataclass
class Replay:
    """Requests on their way to replicas."""

    replicas: list[Replica]
    router: str
    drawn: Iterator[tuple[int, int]]
    until_s: float

    def open(self, trace: Trace) -> None:
        """Requests that arrive whatever becomes of the others."""
        integers = (trace.prompt, trace.output, trace.prefix, trace.shared)
        columns = (trace.arrival_s.tolist(), *(each.astype(int).tolist() for each in integers))
        requests, count = self.replicas[0].requests, len(self.replicas)
        for place, (arrival_s, prompt, output, prefix, shared) in enumerate(zip(*columns, strict=True)):
            if place % _PACE == 0:
                PACE.get()()
            if self.router == "least_loaded":
                for replica in self.replicas:
                    replica.advance(arrival_s)
                chosen = min(self.replicas, key=lambda each: each.outstanding)
            else:
                sticky = self.router == "prefix" and prefix >= 0
                chosen = self.replicas[(prefix if sticky else place) % count]
                chosen.advance(arrival_s)
            chosen.add(requests.add(arrival_s, prompt, output, prefix, shared))
        self._finish()

    def closed(self, concurrency: int) -> None:
        """Requests that begin when another one ends."""
        for place in range(concurrency):
            self._next(self.replicas[place % len(self.replicas)], 0.0)
        self._finish()

    def ended(self, replica: Replica, now: float) -> None:
        """The next request takes the place of one that has ended."""
        if now < self.until_s:
            self._next(replica, now)

    def _next(self, replica: Replica, now: float) -> None:
        lengths = next(self.drawn, None)
        if lengths is not None:
            refuse_beyond_memory(np.array([sum(lengths)]), replica.cache, "a request", "the GPU")
            replica.add(replica.requests.add(now, *lengths))

    def _finish(self) -> None:
        for replica in self.replicas:
            for piece in range(1, 1 << 62):
                PACE.get()()
                replica.advance(replica.now + 60.0 * piece)
                if not replica.outstanding:
                    break
        end_s = max(replica.now for replica in self.replicas)
        for replica in self.replicas:
            replica.idle(end_s if math.isinf(self.until_s) else max(end_s, self.until_s))


def refuse_beyond_memory(tokens: Any, cache: Cache, model: str, gpu: str) -> None:
    """Refuse requests of which one alone is larger than the memory for keys and values."""
    longest = float(tokens.max())
    if cache.used(1, longest) > cache.tokens:
        raise InputError(
            f"a request of {model} does not fit into the memory of {gpu}",
            given=f"{longest:g} tokens of prompt and output",
            allowed=f"up to {cache.tokens:.0f} tokens of keys and values",
            hint="use more GPUs, GPUs with more memory, or cache_precision='fp8'",
        )
