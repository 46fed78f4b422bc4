"""Serves the joules and watts of this machine in Prometheus' text format over HTTP while a program is measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ..errors import InputError

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


class MetricsServer:
    """Answers GET /metrics until it is closed, for clients on this machine only.

    Args:
        port: Port that the server listens on.
        totals: Returns the present joules and watts of each device.

    Raises:
        InputError: The port is in use or is not a valid port number.
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

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except (OSError, OverflowError) as error:
            raise InputError(
                "metrics cannot be served on this port",
                given=f"port {port}: {error}",
                allowed="a free port from 1 to 65535",
                hint="choose another port",
            ) from error
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
