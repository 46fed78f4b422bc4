"""Windows that programs in any language open and close: a socket of this machine with the commands start and stop.

A command is a line; its answer is a line of JSON. Windows nest in the order in which they open:

    start epoch     {"window": "epoch"}
    start step      {"window": "epoch.step"}
    stop            {"window": "epoch.step", "calls": 1, "time_s": 0.5, "energy_j": 21.0, "source": "measured"}
    end             {"end": true}; open windows are closed, and the measurement ends

From a shell: `echo start epoch | nc localhost 9401`.
"""

from __future__ import annotations

import json
import socketserver
import threading
from contextlib import AbstractContextManager
from typing import Any

from ..errors import InputError
from .meter import Meter
from .recording import LONGEST_NAME

_COMMANDS = "start NAME, stop, or end"


class Listener:
    """Answers commands for the windows of a meter, on a port of this machine, until one of them is "end".

    Args:
        port: Port to listen on; 0 for any that is free.

    Raises:
        InputError: The port is in use or is not a valid port number.
    """

    def __init__(self, meter: Meter, port: int) -> None:
        self._meter = meter
        self._open: list[tuple[str, AbstractContextManager[None]]] = []
        self._one_at_a_time = threading.Lock()
        listener = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while line := self.rfile.readline(2 * LONGEST_NAME):
                    answer = listener.answer(line.decode(errors="replace").strip())
                    self.wfile.write(json.dumps(answer).encode() + b"\n")
                    if "end" in answer:
                        listener.close()
                        return

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads, allow_reuse_address = True, True

        try:
            self._server = Server(("127.0.0.1", port), Handler)
        except (OSError, OverflowError) as error:
            raise InputError(
                "commands cannot be received on this port",
                given=f"port {port}: {error}",
                allowed="a free port from 1 to 65535",
                hint="choose another port",
            ) from error
        self.port: int = self._server.server_address[1]
        """The port that it listens on."""

    def serve(self) -> None:
        """Answer commands until one of them is "end", or `close` is called."""
        try:
            self._server.serve_forever()
        finally:
            self._server.server_close()
            while self._open:
                self._open.pop()[1].__exit__(None, None, None)

    def close(self) -> None:
        """Stop answering."""
        threading.Thread(target=self._server.shutdown).start()  # It would wait for the very thread that serves.

    def answer(self, command: str) -> dict[str, Any]:
        """Carry out a command. What is wrong with it is the answer's "error"."""
        word, _, name = command.partition(" ")
        with self._one_at_a_time:
            try:
                if word == "start" and name:
                    return self._start(name.strip())
                if word == "stop" and not name:
                    return self._stop()
                if word == "end" and not name:
                    return {"end": True}
                raise InputError("unknown command", given=command[:100], allowed=_COMMANDS, hint="send: start NAME")
            except InputError as error:
                return {"error": str(error)}

    def _start(self, name: str) -> dict[str, Any]:
        path = f"{self._open[-1][0]}.{name}" if self._open else name
        window = self._meter.window(path)
        window.__enter__()
        self._open.append((path, window))
        return {"window": path}

    def _stop(self) -> dict[str, Any]:
        if not self._open:
            raise InputError("no window is open", given="stop", allowed="stop after start", hint="send: start NAME")
        path, window = self._open.pop()
        window.__exit__(None, None, None)
        found = self._meter.result().tree().at(path)
        known = found.total.source != "missing"
        return {
            "window": path,
            "calls": round(found.calls),
            "time_s": found.total.time_s,
            "energy_j": found.total.energy_j if known else None,
            "source": found.total.source,
        }
