"""What the service says of itself: the log, one JSON object per line on stderr; counters and gauges for Prometheus."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

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

_FRESH_S = 10.0  # Age up to which the values of another process count; each writes them five times as often.

# Clients may send any text as a method, and each text would become a label of its own.
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST"})


class Metrics:
    """Counters since the start of the service, and gauges of its current state.

    Args:
        gauges: Name -> description, and a function that reads the value.
        version: Version of joulecast.
        shared: Folder in which all processes of the service keep their values, each with its number as a label; None
            where there is only one process.
    """

    def __init__(
        self, gauges: Mapping[str, tuple[str, Callable[[], float]]], version: str, shared: Path | None = None
    ) -> None:
        disable_created_metrics()  # the times at which the service saw each label first, which nobody asks for
        self._gauges = gauges
        self._version = version
        self._shared = shared
        self._own = {} if shared is None else {"process": str(os.getpid())}
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "joulecast_requests",
            "Number of requests answered",
            ["route", "method", "status", *self._own],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "joulecast_request_seconds",
            "Seconds from the head of a request to the answer",
            ["route", *self._own],
            buckets=_BUCKETS_S,
            registry=self._registry,
        )
        self._registry.register(self)

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that was answered. Methods that no route has share one label."""
        method = method if method in _METHODS else "other"
        self._requests.labels(route=route, method=method, status=str(status), **self._own).inc()
        self._seconds.labels(route=route, **self._own).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Gauges and counters of other parts of the service as they are now, and those of the process itself."""
        build = GaugeMetricFamily("joulecast_build_info", "Version of joulecast", labels=["version", *self._own])
        build.add_metric([self._version, *self._own.values()], 1)
        yield build
        for name, (meaning, read) in self._gauges.items():
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            each = family(name, meaning, labels=list(self._own))
            each.add_metric(list(self._own.values()), read())
            yield each
        for process in ProcessCollector(registry=None).collect():
            process.samples = [sample._replace(labels={**sample.labels, **self._own}) for sample in process.samples]
            yield process

    def text(self) -> bytes:
        """All counters and gauges in Prometheus' text format: those of all processes of the service."""
        mine: bytes = generate_latest(self._registry)
        if self._shared is None:
            return mine
        path = self._shared / f"{os.getpid()}.txt"
        path.with_suffix(".new").write_bytes(mine)
        path.with_suffix(".new").replace(path)
        families: dict[str, Metric] = {}
        for other in self._shared.glob("*.txt"):
            if time.time() - other.stat().st_mtime < _FRESH_S:  # The files of processes that have ended are older.
                for family in text_string_to_metric_families(other.read_text("utf-8")):
                    families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                    families[family.name].samples += family.samples
        together: bytes = generate_latest(SimpleNamespace(collect=families.values))
        return together

    async def share(self) -> None:
        """Write the values of this process periodically, for whichever process Prometheus asks."""
        while True:
            await asyncio.to_thread(self.text)
            await asyncio.sleep(_FRESH_S / 5)


def resident_bytes() -> float:
    """Resident memory of this process; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return float(pages * os.sysconf("SC_PAGE_SIZE"))
