"""The process in which models from files are extracted: python -m joulecast.extraction.isolated_worker.

A request is a line of JSON on stdin, and its reply a line on stdout. A fork of this process answers each request under
limits on memory and time. The fork starts with the libraries imported, and a crash of the fork does not affect this
process. On systems without fork (Windows), the process answers one request and ends.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import signal
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import ExtractionError, JoulecastError
from ..operations.operation import MODES
from ..system.limits import used_bytes
from ..system.regular_files import first_line
from .job import Job
from .models.language_models import BY_NAME
from .sources import named_network, network_of, network_of_file

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

        # Large parts of torch are imported on first use, so a small model is traced.
        for mode in MODES:
            network_of(torch.nn.Linear(1, 1), (1, 1), mode=mode)
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
