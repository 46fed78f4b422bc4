"""What the service says of itself: the log, one JSON object per line on stderr; counters and gauges for Prometheus."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.datastructures import State

from .. import __version__

LOGGER = logging.getLogger("joulecast.service")


class JsonLines(logging.Formatter):
    """Formats a record as JSON: time, level, event, and the fields given as `extra={"fields": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log(level: int, event: str, **fields: Any) -> None:
    """Write a line, if the log level includes it."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, event, extra={"fields": fields})


def log_to_stderr(level: str) -> None:
    """Send the logs of the service and of its server to stderr. Called when a service is run, not on import."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("joulecast.service", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())


MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Bounds of the histogram. A cached answer takes under a millisecond, a sweep over all GPUs tenths of a second.
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)

# Clients may send any text as a method, and each text would become a label of its own.
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST"})


GAUGES = {
    "ready": ("ready", "Whether the predictors are loaded"),
    "waiting_requests": ("workers.waiting", "Requests that wait for a thread or are computed"),
    "answer_hits_total": ("cache.hits", "Answers taken from the cache"),
    "answer_misses_total": ("cache.misses", "Answers that were computed"),
    "answer_bytes": ("cache.size", "Memory of cached answers"),
    "known_bytes": ("results.size", "Memory of what the library keeps, so that other clocks are answered quickly"),
    "known_hits_total": ("results.hits", "Results that the library had kept"),
    "reloads_total": ("reloads", "Changes of predictors that were noticed"),
}
"""Name of a gauge -> where the application's state has its value, and its description."""


class Metrics:
    """Counters since the start of the service, and gauges of the current state of the application."""

    def __init__(self, state: State) -> None:
        disable_created_metrics()  # the times at which the service saw each label first, which nobody asks for
        self._state = state
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Info("joulecast_build", "Version of joulecast", registry=self.registry).info({"version": __version__})
        labels = ["route", "method", "status"]
        self._requests = Counter("joulecast_requests", "Number of requests answered", labels, registry=self.registry)
        self._seconds = Histogram(
            "joulecast_request_seconds",
            "Seconds from the head of a request to the answer",
            ["route"],
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self.registry.register(self)

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that was answered. Methods that no route has share one label."""
        method = method if method in _METHODS else "other"
        self._requests.labels(route=route, method=method, status=str(status)).inc()
        self._seconds.labels(route=route).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Gauges and counters of other parts of the service as they are now."""
        yield GaugeMetricFamily("joulecast_resident_bytes", "Resident memory of this process", value=resident_bytes())
        for name, (place, meaning) in GAUGES.items():
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield family(f"joulecast_{name}", meaning, value=attrgetter(place)(self._state))


def resident_bytes() -> float:
    """Resident memory of this process; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return float(pages * os.sysconf("SC_PAGE_SIZE"))
