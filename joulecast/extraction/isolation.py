"""Extraction in a process of its own, with limits on memory and time.

The content of a file decides which code of PyTorch and ONNX runs, and on tensors of which size. In a separate process,
a crash or an excessive size does not affect the caller. The process is started on first use, imports the libraries
once, and forks a child for each request (see isolated_worker.py).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
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
_START_SECONDS = 120.0  # longest time for importing the libraries from a slow disk
_MOST_REPLY_BYTES = 64 << 20
# A configuration may name models of the hub, which must not be downloaded.
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
}


@dataclass(frozen=True)
class Limits:
    """What one extraction may use, in addition to the memory and time of importing the libraries."""

    memory_bytes: int = 1 << 30
    seconds: float = 20.0


class IsolatedExtraction:
    """Extracts networks in a separate process. It can be used from several threads, which take turns."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._turn = threading.Lock()

    def network(self, question: Mapping[str, Any], limits: Limits) -> Network:
        """Extract a network in the process of isolated_worker.py.

        Raises any error of the extraction, and ExtractionError if it takes too much or ends its process.
        """
        reply = self._answer(question, limits)
        if "network" not in reply:
            error = reply["error"]
            kind = ERRORS_BY_PROBLEM.get(error["problem"], JoulecastError)
            raise kind(error["what"], given=error["given"], allowed=error["allowed"], hint=error["hint"])
        return Network.from_dict(reply["network"])

    def names(self) -> frozenset[str]:
        """All names of models that the installed libraries have, without tags of weights."""
        return frozenset(self._answer({"names": True}, Limits(1 << 30, _START_SECONDS))["names"])

    def _answer(self, question: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
        with self._turn:
            process = self._running()
            timer = threading.Timer(limits.seconds + _START_SECONDS, self.close)
            timer.daemon = True
            timer.start()
            try:
                reply = _asked(process, {**question, "limits": asdict(limits)})
            except BaseException:
                # After an interrupt, a late reply must not be taken for that of the next request.
                self.close()
                raise
            finally:
                timer.cancel()
            if not reply.endswith(b"\n"):
                self.close()
                raise _stopped("its process was ended", limits)
        answer: dict[str, Any] = json.loads(reply)
        if "stopped" in answer:
            raise _stopped(answer["stopped"], limits)
        return answer

    def close(self) -> None:
        """End the process. The next request starts another one."""
        atexit.unregister(self.close)
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):  # another thread may be reading from it
                    stream.close()

    def _running(self) -> subprocess.Popen[bytes]:
        # A fork of this process must not share its pipes, so a fork starts a process of its own.
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._process is None or self._owner != os.getpid():
            paths = [str(_PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
            environment = {**os.environ, **_OFFLINE, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
            # -P: modules in the current folder must not be imported.
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
    """One line of reply; incomplete or empty if the process has ended."""
    assert process.stdin is not None and process.stdout is not None  # noqa: PT018, S101 (both are pipes)
    with contextlib.suppress(OSError, ValueError):
        process.stdin.write(json.dumps(question).encode() + b"\n")
        process.stdin.flush()
        return process.stdout.readline(_MOST_REPLY_BYTES)
    return b""


def _stopped(reason: str, limits: Limits) -> ExtractionError:
    return ExtractionError(
        "the extraction of this model was stopped",
        given=reason,
        allowed=f"{limits.memory_bytes / 1e9:.1f} GB and {limits.seconds:g} s",
        hint="where you trust its source: build the torch.nn.Module in Python, and give that",
    )


SHARED = IsolatedExtraction()
"""The instance that this process uses for all files."""
