"""Counters and gauges in Prometheus' text format (version 0.0.4)."""

from __future__ import annotations

import bisect
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Bounds of the histogram. A cached answer takes under a millisecond, a sweep over all GPUs tenths of a second.
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)

# Clients may send any text as a method, and each text would become a label of its own.
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST"})

Labels = tuple[str, ...]


class Metrics:
    """Counters since the start of the service, and gauges of its current state.

    Args:
        gauges: Name -> description, and a function that reads the value.
        version: Version of joulecast.
        process: Number of this process, which becomes a label of every value; None where there is only one process.
    """

    def __init__(
        self, gauges: Mapping[str, tuple[str, Callable[[], float]]], version: str, process: int | None = None
    ) -> None:
        self._gauges = gauges
        self._version = version
        self._labels = {} if process is None else {"process": str(process)}
        self._requests: dict[Labels, int] = {}
        self._seconds: dict[str, list[float]] = {}
        self._lock = threading.Lock()

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that was answered. Methods that no route has share one label."""
        method = method if method in _METHODS else "other"
        with self._lock:
            labels = (route, method, str(status))
            self._requests[labels] = self._requests.get(labels, 0) + 1
            row = self._seconds.setdefault(route, [0.0] * (len(_BUCKETS_S) + 2))
            row[bisect.bisect_left(_BUCKETS_S, seconds)] += 1
            row[-1] += seconds

    def text(self) -> str:
        """All counters and gauges in Prometheus' text format."""
        with self._lock:
            requests, seconds = dict(self._requests), {route: list(row) for route, row in self._seconds.items()}
        lines = [
            *_head("joulecast_build_info", "gauge", "Version of joulecast"),
            self._value("joulecast_build_info", 1, version=self._version),
            *_head("joulecast_requests_total", "counter", "Number of requests answered"),
            *(
                self._value("joulecast_requests_total", count, route=route, method=method, status=status)
                for (route, method, status), count in sorted(requests.items())
            ),
            *_head("joulecast_request_seconds", "histogram", "Seconds from the head of a request to the answer"),
            *(line for route, row in sorted(seconds.items()) for line in self._histogram(route, row)),
        ]
        for name, (meaning, read) in self._gauges.items():
            lines += [
                *_head(name, "counter" if name.endswith("_total") else "gauge", meaning),
                self._value(name, read()),
            ]
        return "\n".join(lines) + "\n"

    def _value(self, name: str, value: float, **labels: str) -> str:
        text = ",".join(f'{label}="{of}"' for label, of in {**labels, **self._labels}.items())
        return f"{name}{{{text}}} {value:.15g}" if text else f"{name} {value:.15g}"

    def _histogram(self, route: str, row: list[float]) -> Iterator[str]:
        total = 0.0
        for bound, count in zip((*map(str, _BUCKETS_S), "+Inf"), row, strict=False):
            total += count
            yield self._value("joulecast_request_seconds_bucket", total, route=route, le=bound)
        yield self._value("joulecast_request_seconds_sum", row[-1], route=route)
        yield self._value("joulecast_request_seconds_count", total, route=route)


def _head(name: str, kind: str, meaning: str) -> Iterable[str]:
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"


def resident_bytes() -> float:
    """Resident memory of this process; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return float(pages * os.sysconf("SC_PAGE_SIZE"))
