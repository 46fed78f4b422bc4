"""Where measured joules go besides files: MLflow and Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, TCPServer
from typing import Any, TypeVar

from ..errors import InputError, needing, with_extra
from .result import Metering

PREFIX = "system/"
"""MLflow shows metrics with this prefix together with its own system metrics."""


def active_run() -> Any:
    """The active run, to which metrics are logged.

    Raises MissingDependencyError: MLflow is not installed. Raises InputError: no run is active.
    """
    with needing("logging to MLflow needs the package mlflow", with_extra("mlflow")):
        import mlflow
    run = mlflow.active_run()
    if run is None:
        raise InputError("no MLflow run is active", given="mlflow=True", hint="measure inside mlflow.start_run()")
    return run


def log_metering(metering: Metering) -> None:
    """Log the totals, and those of each device and window, as metrics of the active run."""
    active_run()
    import mlflow

    values = {"duration_s": metering.duration_s}
    modelled = "" if metering.source == "measured" else "modelled_"  # Runs are compared by name.
    if metering.energy_j is not None and metering.mean_w is not None:
        values |= {f"{modelled}energy_j": metering.energy_j, f"{modelled}mean_power_w": metering.mean_w}
    for found in metering.devices:
        values[f"{found.device.name}_energy_j"] = found.energy_j
        values[f"{found.device.name}_mean_power_w"] = found.mean_w
    for node in metering.tree().root.walk():
        if node.level == "module":
            values[f"window/{node.path}_{modelled}energy_j"] = node.total.energy_j
    mlflow.log_metrics({PREFIX + name: value for name, value in values.items()})


Totals = Callable[[], Mapping[str, Mapping[str, float | None]]]


def exposition(totals: Mapping[str, Mapping[str, float | None]]) -> str:
    """The text that Prometheus reads.

    Args:
        totals: Device -> "energy_j" and "power_w"; values of None are left out.
    """
    lines = []
    for metric, kind, name, about in (
        ("joulecast_energy_joules_total", "counter", "energy_j", "Joules since the measurement began"),
        ("joulecast_power_watts", "gauge", "power_w", "Last power reading"),
    ):
        lines += [f"# HELP {metric} {about}", f"# TYPE {metric} {kind}"]
        lines += [
            f'{metric}{{device="{device}"}} {values[name]!r}'
            for device, values in totals.items()
            if values.get(name) is not None
        ]
    return "\n".join(lines) + "\n"


Server = TypeVar("Server", bound=TCPServer)


def on_port(server: type[Server], port: int, handler: type[BaseRequestHandler], problem: str) -> Server:
    """A server on a port of this machine, for clients on this machine only.

    Raises InputError: the port is in use or is not a valid port number, in the words of `problem`.
    """
    try:
        return server(("127.0.0.1", port), handler)
    except (OSError, OverflowError) as error:
        raise InputError(
            problem,
            given=f"port {port}: {error}",
            allowed="a free port from 1 to 65535",
            hint="choose another port",
        ) from error


class MetricsServer:
    """Answers GET /metrics until it is closed, for clients on this machine only.

    Raises InputError: the port is in use or is not a valid port number.
    """

    def __init__(self, port: int, totals: Totals) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = 5

            def do_GET(self) -> None:
                known = self.path == "/metrics"
                text = exposition(totals()).encode() if known else b"metrics are at /metrics\n"
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Write no log, because the terminal belongs to the measured program."""

        self._server = on_port(ThreadingHTTPServer, port, Handler, "metrics cannot be served on this port")
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
