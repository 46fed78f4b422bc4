"""Extraction in a process of its own, with limits on memory and time: python -m joulecast.extraction.isolation.

The content of a file decides which code of PyTorch and ONNX runs, and on tensors of which size. In a separate process,
a crash or an excessive size does not affect the caller. The process is started on first use, imports the libraries
once, and forks a child for each request, under limits on memory and time. A request is a line of JSON on stdin, and its
reply a line on stdout. On systems without fork (Windows), the process answers one request and ends.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import ERRORS_BY_PROBLEM, ExtractionError, JoulecastError
from ..operations.network import Network
from ..operations.operation import MODES
from ..system.damage import first_line
from ..system.limits import used_bytes
from .job import Job
from .models.language_models import BY_NAME

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
        """Extract a network in that process.

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
                [sys.executable, "-P", "-m", "joulecast.extraction.isolation"],
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


# The separate process.

_ONNX = ("onnx.inliner", "onnx.reference", "onnx.shape_inference", "joulecast.extraction.files.onnx_graphs")


@cache
def _import_libraries(suffix: str | None, *, builds_transformer: bool) -> None:
    """Import, once, the libraries for files with this suffix (None: for models by name), so that each fork has them.

    A fork reports those that are missing.
    """
    if suffix == ".onnx":
        with contextlib.suppress(ImportError):
            for name in _ONNX:
                importlib.import_module(name)
        return
    with contextlib.suppress(ImportError):
        import torch

        from .tracing import trace

        # Large parts of torch are imported on first use, so a small model is traced.
        for mode in MODES:
            trace(torch.nn.Linear(1, 1), (1, 1), mode=mode)
    if suffix != ".pt2":
        with contextlib.suppress(ImportError):
            from .models import named_models, transformers_models

            transformers_models.import_transformers()
            if builds_transformer:
                transformers_models.build("bert_base", num_hidden_layers=1)
            if suffix is None:
                named_models.import_timm()


def _reply(question: Mapping[str, Any]) -> dict[str, Any]:
    """Reply to a request: the network or names, an error of joulecast, or the reason why extraction was stopped.

    A request has "names", or the "file" or "name" of a model and what `Job.to_json` wrote.
    """
    try:
        if "names" in question:
            from .models.named_models import all_names

            return {"names": all_names()}
        from .sources import named_network, network_of_file

        if "name" in question:
            return {"network": named_network(Job.of_json(question["name"], question)).to_dict()}
        return {"network": network_of_file(Job.of_json(Path(question["file"]), question)).to_dict()}
    except JoulecastError as error:
        known = error
    except MemoryError:
        return {"stopped": "it takes too much memory"}
    except Exception as error:  # noqa: BLE001  # any exception of a library must not end this process
        known = ExtractionError(
            "this model cannot be extracted",
            given=f"{question.get('name') or question.get('file')}: {type(error).__name__}: {first_line(error)}",
            hint="run this model with the library that it comes from, and mend what that reports",
        )
    given, allowed = (None if part is None else str(part) for part in (known.given, known.allowed))
    parts = {"what": known.what, "given": given, "allowed": allowed, "hint": known.hint}
    return {"error": {"problem": known.problem, **parts}}


def _limit(memory_bytes: int, seconds: float) -> None:
    """Limit the time of this process, and the memory that it may use in addition to what it uses now."""
    import resource

    signal.setitimer(signal.ITIMER_REAL, seconds)  # without a handler, SIGALRM ends the process
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # macOS refuses this limit, and would not enforce it
        most = memory_bytes + used_bytes()
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


# What audit hooks are told of (docs.python.org/3/library/audit_events.html) that no reader of a file needs.
_REFUSED_EVENTS = ("os.", "shutil.", "socket.", "subprocess.", "pty.", "urllib.", "pickle.", "sqlite3.", "tempfile.")
_HARMLESS_EVENTS = frozenset({"os.listdir", "os.scandir", "os.putenv", "os.unsetenv"})


def _confine(file: Path) -> None:
    """Refuse everything to this process that reading a file does not need, whatever the libraries make of its content.

    It can read the file and the code and data of Python and its libraries. It can write nothing, connect to nothing,
    start no program and unpickle nothing. This cannot be undone, so only forks are confined.
    """
    libraries = {sys.prefix, sys.base_prefix, sys.exec_prefix, *filter(None, sys.path), "/proc", "/sys", os.devnull}
    readable = tuple(os.path.realpath(each) for each in libraries)

    def check(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" or event in ("os.listdir", "os.scandir"):
            path, flags = arguments[0], arguments[2] if event == "open" else os.O_RDONLY
            if isinstance(path, int):
                return
            real = os.path.realpath(os.fsdecode(path))
            is_known = real == asked or any(real == each or real.startswith(f"{each}/") for each in readable)
            if (is_known and flags & (os.O_WRONLY | os.O_RDWR) == 0) or real == os.devnull:
                return
        elif event in _HARMLESS_EVENTS or not event.startswith(_REFUSED_EVENTS):
            return
        raise PermissionError(f"{event} is not allowed to what reads a file: {arguments!r}"[:200])

    asked = os.path.realpath(file)
    sys.addaudithook(check)


def _reply_of_a_fork(question: Mapping[str, Any]) -> bytes:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            _limit(**question["limits"])
            if "file" in question:
                _confine(Path(question["file"]))
            with os.fdopen(writing, "wb") as answer:
                answer.write(json.dumps(_reply(question)).encode())
            os._exit(0)
        finally:
            os._exit(1)

    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = file.read()
    _, status = os.waitpid(child, 0)
    if status == 0:
        return said
    ended = -os.waitstatus_to_exitcode(status)
    reason = "it takes too long" if ended in (signal.SIGALRM, signal.SIGXCPU) else f"it ended its process ({ended})"
    return json.dumps({"stopped": reason}).encode()


def main() -> None:
    """Answer requests until stdin ends."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # What libraries print must not come between the replies.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    for line in sys.stdin.buffer:
        question = json.loads(line)
        suffix = Path(question["file"]).suffix if "file" in question else None
        _import_libraries(suffix, builds_transformer=suffix == ".json" or question.get("name") in BY_NAME)
        forks = hasattr(os, "fork")
        replies.write((_reply_of_a_fork(question) if forks else json.dumps(_reply(question)).encode()) + b"\n")
        replies.flush()
        if not forks:
            return


if __name__ == "__main__":
    main()
