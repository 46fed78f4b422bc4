"""Programs that run beside a test, and ports for them to listen on."""

import random
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_PORTS = range(20_000, 32_000)
"""Ports below those that Linux gives to outgoing connections, one of which could take a free port before its server."""


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Run a program beside a test, and kill it when the test is done with it or has failed.

    Args:
        command: The program and its arguments.
        options: Further arguments of `subprocess.Popen`.
    """
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def free_port() -> int:
    """A port on which no program listens."""
    dice = random.SystemRandom()
    while True:
        port = dice.choice(_PORTS)
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
