"""Extraction in a process of its own, with limits on memory and time.

A file decides which code of PyTorch and ONNX runs, and on which sizes. In a process of its own neither a crash there
nor a size that no machine has does harm. The process is started when it is first asked, imports the libraries once, and
forks a child for each question (see isolated_worker.py).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import ERRORS_BY_PROBLEM, ExtractionError, JoulecastError
from ..operations.network import Network

_PACKAGE = Path(__file__).resolve().parents[2]
_START_SECONDS = 120.0  # that importing the libraries may take, on a slow disk
_MOST_REPLY_BYTES = 64 << 20
# A configuration may name models of the hub; nobody asked for a download.
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
}


@dataclass(frozen=True)
class Limits:
    """What one extraction may use.

    Args:
        memory_bytes: Memory beside that of the imported libraries.
        seconds: Time, without that of the imports.
    """

    memory_bytes: int = 1 << 30
    seconds: float = 20.0


class IsolatedExtraction:
    """Asks a process of its own for networks. Safe to use from several threads, which take turns."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._turn = threading.Lock()

    def network(self, question: Mapping[str, Any], limits: Limits) -> Network:
        """The network that a question of isolated_worker.py asks for.

        Args:
            question: As JSON, see `isolated_worker.extracted`.
            limits: For this network.

        Raises:
            JoulecastError: What the extraction raises; ExtractionError where it takes too much memory or time, or ends
                its process.
        """
        with self._turn:
            process = self._running()
            timer = threading.Timer(limits.seconds + _START_SECONDS, self.close)
            timer.daemon = True
            timer.start()
            try:
                reply = _asked(process, {**question, "limits": asdict(limits)})
            except BaseException:
                # (an interrupt) A reply that comes later must not be taken for that of the next question.
                self.close()
                raise
            finally:
                timer.cancel()
            if not reply.endswith(b"\n"):
                self.close()
                raise _stopped("its process was ended", limits)
        return _read(json.loads(reply), limits)

    def stop(self) -> None:
        """End the extraction that is under way, whose caller is told that its process was ended."""
        process = self._process
        if process is not None and self._owner == os.getpid():
            if hasattr(signal, "SIGUSR1"):
                process.send_signal(signal.SIGUSR1)
            else:
                process.kill()

    def close(self) -> None:
        """End the process, whatever it does; the next question starts another one."""
        atexit.unregister(self.close)
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):  # another thread may just be reading it
                    stream.close()

    def _running(self) -> subprocess.Popen[bytes]:
        # A fork of this process must not share the pipes with it.
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._process is None or self._owner != os.getpid():
            paths = [str(_PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
            environment = {**os.environ, **_OFFLINE, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
            # -P: the folder that we are in is not where modules are looked for.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "joulecast.extraction.isolated_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
            self._owner = os.getpid()
            atexit.register(self.close)
        return self._process


def _asked(process: subprocess.Popen[bytes], question: Mapping[str, Any]) -> bytes:
    """A line of reply; an incomplete one, or none, where the process ended meanwhile."""
    if process.stdin is None or process.stdout is None:  # which the pipes above rule out
        return b""
    try:
        process.stdin.write(json.dumps(question).encode() + b"\n")
        process.stdin.flush()
        return process.stdout.readline(_MOST_REPLY_BYTES)
    except (OSError, ValueError):
        return b""


def _read(reply: Mapping[str, Any], limits: Limits) -> Network:
    if "network" in reply:
        return Network.from_json(reply["network"])
    if "stopped" in reply:
        raise _stopped(reply["stopped"], limits)
    error = reply["error"]
    kind = ERRORS_BY_PROBLEM.get(error["problem"], JoulecastError)
    raise kind(error["what"], given=error["given"], allowed=error["allowed"], hint=error["hint"])


def _stopped(reason: str, limits: Limits) -> ExtractionError:
    return ExtractionError(
        "the extraction of this model was stopped",
        given=reason,
        allowed=f"{limits.memory_bytes / 1e9:.1f} GB and {limits.seconds:g} s",
        hint="where you trust its source: build the torch.nn.Module in Python, and give that",
    )


SHARED = IsolatedExtraction()
"""For all files that this process is asked about."""
