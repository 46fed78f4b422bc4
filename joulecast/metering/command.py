"""Measures commands: runs them, compares repeats, and takes windows from programs in any language."""

from __future__ import annotations

import json
import math
import os
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import combinations
from types import FrameType
from typing import Any

import numpy as np

from ..errors import InputError
from ..rendering.answers import table_csv
from ..units import si
from .meter import Meter
from .recording import LONGEST_NAME
from .result import Metering

_LIVE_AFTER_S, _LIVE_EVERY_S = 2.0, 1.0
_SIGNALLED = 128
"""Shells report a command that was ended by signal n with the exit code 128 + n."""


def measure_command(command: Sequence[str], meter: Meter) -> tuple[int, Metering | None]:
    """Run a command while a meter measures the machine.

    Returns the exit code of the command (128 + n if signal n ended it), and the result; None instead of the result if
    another process of the same job measures this machine. Raises InputError: there is no such command.
    """
    with meter:
        try:
            process = subprocess.Popen(command)  # noqa: S603  (the user's own command)
        except FileNotFoundError as error:
            hint = "check its name and your PATH"
            raise InputError("there is no such command", given=command[0], hint=hint) from error
        except OSError as error:
            raise InputError(
                "the command cannot be run",
                given=f"{command[0]}: {error.strerror}",
                hint="name a program that this user may run on this machine",
            ) from error

        def forward(number: int, _: FrameType | None) -> None:
            # Ctrl-C on a terminal, and on Windows, reaches the command anyway.
            reached = number == signal.SIGINT and (os.isatty(0) or os.name == "nt")
            if process.poll() is None and not reached:
                process.send_signal(number)

        with handling(forward, "SIGTERM", "SIGHUP", "SIGUSR1", "SIGINT"), _live(meter):
            code = process.wait()
        meter.exit_code = code if code >= 0 else _SIGNALLED - code
    return meter.exit_code, meter.result() if meter.measures else None


@contextmanager
def handling(handler: Callable[[int, FrameType | None], object], *names: str) -> Iterator[None]:
    """Within this context, handle the signals of these names that the system has, if this is the main thread."""
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in numbers if is_main}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def _live(meter: Meter) -> Iterator[None]:
    """Show a line on the terminal, updated every second, while a command runs."""
    if not (sys.stderr.isatty() and meter.measures):
        yield
        return
    ended = threading.Event()

    def show() -> None:
        if ended.wait(_LIVE_AFTER_S):
            return
        while not ended.wait(_LIVE_EVERY_S):
            sys.stderr.write(f"\r\x1b[K{live_line(meter.totals())}")
            sys.stderr.flush()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        sys.stderr.write("\r\x1b[K")


def live_line(totals: Mapping[str, Mapping[str, float | None]]) -> str:
    """The joules used so far and the present watts of each device, in one line."""
    parts = []
    for device, values in totals.items():
        watts = "" if values["power_w"] is None else f" at {si(values['power_w'], 'W')}"
        parts.append(f"{device} {si(values['energy_j'], 'J')}{watts}")
    return "   ".join(parts) or "nothing can be measured here"


# Repeats of a command: mean and standard deviation, comparison of two programs, and rows for a CSV file.

_EXACT = 20_000  # Most divisions that are all tried; 8 runs against 8 have 12,870.
COLUMNS = (
    "started", "host", "program", "run", "device", "component", "counted", "source", "energy_j", "complete", "mean_w",
    "peak_w", "idle_j", "duration_s", "exit_code", "sensor", "name", "driver",
)  # fmt: skip
"""Columns of the CSV form: one row for each device of each run. What is not known is empty."""


def runs_csv(runs: Sequence[Metering]) -> str:
    """The devices of measurements with what is known of them, as CSV."""

    def rows() -> Iterator[list[object]]:
        for number, metering in enumerate(runs, 1):
            started = {recording.host: recording.started for recording in metering.recordings}
            for found in metering.devices:
                facts = found.device.facts
                yield [
                    started[found.host], found.host, metering.title, number, found.device.name, found.device.component,
                    found.device.counted, found.device.method, found.energy_j, found.complete, found.mean_w,
                    found.peak_w, found.idle_j, found.duration_s, metering.exit_code, facts.get("sensor"),
                    facts.get("device"), facts.get("driver"),
                ]  # fmt: skip

    return table_csv(COLUMNS, rows())


def quantities(runs: Sequence[Metering]) -> dict[str, list[float]]:
    """Seconds, and joules of all devices and of each one, in all runs in which they are known, by name and unit."""
    found: dict[str, list[float]] = {"time (s)": [run.duration_s for run in runs]}
    for run in runs:
        if run.energy_j is not None:
            found.setdefault("energy (J)", []).append(run.energy_j)
        for device in run.devices:
            found.setdefault(f"{device.device.name} (J)", []).append(device.energy_j)
    return {name: values for name, values in found.items() if len(values) == len(runs)}


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard deviation of a sample; None for the deviation of a single value."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def least_p_value(first: int, second: int) -> float:
    """The smallest p-value that samples of these sizes can have: 0.1 for 3 against 3 values, 0.008 for 5 against 5."""
    return (2 if first == second else 1) / math.comb(first + second, first)


def p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Probability of a difference of means at least as large, if both samples had the same distribution.

    It is that of a permutation test, which assumes no distribution: the share of all divisions of the pooled values
    into two samples of these sizes whose means differ as much. Of more than 20,000 divisions as many are drawn at
    random. Raises InputError: a sample has fewer than two values.
    """
    if min(len(first), len(second)) < 2:
        raise InputError(
            "a single run cannot be tested for significance",
            given=f"{len(first)} and {len(second)} runs",
            allowed="2 or more of each, better 5",
            hint="measure with --repeat 5",
        )
    pooled, n = np.array([*first, *second], dtype=float), len(first)
    total, sizes = pooled.sum(), (n, len(pooled) - n)
    if math.comb(len(pooled), n) <= _EXACT:
        sums = np.array([pooled[list(places)].sum() for places in combinations(range(len(pooled)), n)])
    else:
        draw = np.random.default_rng(0)
        sums = np.array([draw.permutation(pooled)[:n].sum() for _ in range(_EXACT)])
    differences = np.abs(sums / sizes[0] - (total - sums) / sizes[1])
    seen = abs(float(np.mean(first)) - float(np.mean(second)))
    return float(np.mean(differences >= seen * (1 - 1e-9)))


# Windows that programs in any language open and close: a socket of this machine with the commands start and stop.
#
# A command is a line; its answer is a line of JSON. Windows nest in the order in which they open:
#
#     start epoch     {"window": "epoch"}
#     start step      {"window": "epoch.step"}
#     stop            {"window": "epoch.step", "calls": 1, "time_s": 0.5, "energy_j": 21.0, "source": "measured"}
#     end             {"end": true}; open windows are closed, and the measurement ends
#
# From a shell: `echo start epoch | nc localhost 9401`.

_START = "send: start NAME"


class Listener:
    """Answers commands for the windows of a meter, on a port of this machine (0: any), until one of them is "end".

    Raises InputError: the port is in use or is not a valid port number.
    """

    def __init__(self, meter: Meter, port: int) -> None:
        self._meter = meter
        self._open: list[tuple[str, AbstractContextManager[None]]] = []
        listener, one_at_a_time = self, threading.Lock()

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while line := self.rfile.readline(2 * LONGEST_NAME):
                    with one_at_a_time:
                        answer = listener.answer(line.decode(errors="replace"))
                    self.wfile.write(json.dumps(answer).encode() + b"\n")
                    if "end" in answer:  # A shutdown waits for the thread that serves, which may wait for this one.
                        threading.Thread(target=self.server.shutdown).start()
                        return

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads, allow_reuse_address = True, True

        try:
            self._server = Server(("127.0.0.1", port), Handler)  # for programs of this machine only
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
        """Answer commands until one of them is "end"."""
        with self._server:
            try:
                self._server.serve_forever()
            finally:
                while self._open:
                    self._open.pop()[1].__exit__(None, None, None)

    def answer(self, command: str) -> dict[str, Any]:
        """Carry out a command. What is wrong with it is the answer's "error"."""
        try:
            match command.split(maxsplit=1):
                case ["start", name]:
                    path = ".".join([*(path for path, _ in self._open[-1:]), name.strip()])
                    window = self._meter.window(path, whole=True)
                    window.__enter__()
                    self._open.append((path, window))
                    return {"window": path}
                case ["stop"] if self._open:
                    path, opened = self._open.pop()
                    opened.__exit__(None, None, None)
                    node = self._meter.result().tree().at(path)
                    source, joules = node.total.source, node.total.energy_j
                    known = {"energy_j": None if source == "missing" else joules, "source": source}
                    return {"window": path, "calls": round(node.calls), "time_s": node.total.time_s, **known}
                case ["stop"]:
                    raise InputError("no window is open", given="stop", allowed="stop after start", hint=_START)
                case ["end"]:
                    return {"end": True}
            raise InputError("unknown command", given=command[:100], allowed="start NAME, stop, or end", hint=_START)
        except InputError as error:
            return {"error": str(error)}
