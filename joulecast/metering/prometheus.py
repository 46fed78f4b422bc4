"""Joules and watts of this machine in Prometheus' text format, over HTTP, while a program is measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ..errors import InputError

Totals = Callable[[], Mapping[str, Mapping[str, float | None]]]


def exposition(totals: Mapping[str, Mapping[str, float | None]]) -> str:
    """Device -> energy_j and power_w, as Prometheus reads them; what is not known is left out."""
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
    """Answers GET /metrics on this machine only, until it is closed.

    Args:
        port: Port that the server listens on.
        totals: Gives the present joules and watts.

    Raises:
        InputError: The port is taken, or none.
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
                """Say nothing: the measured program owns the terminal."""

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except (OSError, OverflowError) as error:
            raise InputError(
                "metrics cannot be served there", given=f"port {port}: {error}", hint="give a free port"
            ) from error
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
