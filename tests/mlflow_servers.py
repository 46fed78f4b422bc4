"""A real MLflow server, for tests of tracking and registering."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from processes import free_port
from waiting import until


def address_of(server: subprocess.Popen[bytes], port: int, log: Path) -> str:
    """Wait until a server answers, and return its address."""
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert server.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"{address}/health", timeout=1).close()  # noqa: S310
        except OSError:
            return False
        return True

    until(answers, otherwise=log.read_text)
    return address


@contextlib.contextmanager
def mlflow_server(folder: Path, *, store: str | None = None, options: Sequence[str] = ()) -> Iterator[str]:
    """`mlflow server` on SQLite, or on another store; its address."""
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", store or f"sqlite:///{folder / 'mlflow.db'}"]
    command += ["--artifacts-destination", str(folder / "artifacts"), *options]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **quiet}, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield address_of(process, port, folder / "server.log")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def frame(operations):
    """Operations as a table for a logged model."""
    import pandas as pd

    return pd.DataFrame({"operation": [json.dumps(operation.to_dict()) for operation in operations]})
