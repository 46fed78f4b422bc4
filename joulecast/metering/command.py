"""Measures a command: runs it, forwards signals to it, and returns its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType

from ..errors import InputError
from ..units import si
from .exporting import MetricsServer
from .meter import Meter
from .result import Metering

_LIVE_AFTER_S, _LIVE_EVERY_S = 2.0, 1.0
_SIGNALLED = 128
"""Shells report a command that was ended by signal n with the exit code 128 + n."""


def measure_command(
    command: Sequence[str],
    meter: Meter,
    metrics_port: int | None = None,
    second: AbstractContextManager[object] | None = None,
) -> tuple[int, Metering | None]:
    """Run a command while a meter measures the machine.

    Args:
        metrics_port: Port on which Prometheus can read metrics while the command runs; None for no port.

    Returns:
        The exit code of the command (128 + n if signal n ended it), and the result; None instead of the result if
        another process of the same job measures this machine.

    Raises:
        InputError: There is no such command, or the port is in use.
    """
    with meter:
        server = None if metrics_port is None else MetricsServer(metrics_port, meter.totals)
        try:
            with second or nullcontext():
                meter.exit_code = _run(command, meter)
        finally:
            if server is not None:
                server.close()
    return meter.exit_code, meter.result() if meter.measures else None


def _run(command: Sequence[str], meter: Meter) -> int:
    try:
        process = subprocess.Popen(command)  # noqa: S603  (the user's own command)
    except FileNotFoundError as error:
        raise InputError("there is no such command", given=command[0], hint="check its name and your PATH") from error
    except OSError as error:
        raise InputError(
            "the command cannot be run",
            given=f"{command[0]}: {error.strerror}",
            hint="name a program that this user may run on this machine",
        ) from error
    with _signals_to(process), _live(meter):
        code = process.wait()
    return code if code >= 0 else _SIGNALLED - code


@contextmanager
def _signals_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Forward signals that would end this process. Ctrl-C reaches the command anyway, so here it is ignored."""

    def forward(number: int, _: FrameType | None) -> None:
        if process.poll() is None:
            process.send_signal(number)

    def ignore(_: int, __: FrameType | None) -> None:
        return

    before = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, ignore if os.isatty(0) else forward)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
