"""Meter: measures the energy that a program uses while it runs.

with joulecast.measure() as meter:
    with meter.window("epoch"):
        ...
print(meter.result().tree())
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, ParamSpec, Self, TypeVar

from ..checked import in_range
from ..energy.node import require_levels
from ..errors import InputError, needing, with_extra
from ..system.whole_files import lock
from .machine import find_machine
from .recording import Window, read_recording
from .result import Metering, merged
from .sampler import Sampler

# Processes of a parallel job: which of them measures a machine, and how their results are put together.
#
# If every process measured, the same devices would be counted several times. So the first that takes the job's lock on
# a machine measures it, and the others measure nothing. Launchers tell each process its job and its rank in environment
# variables.

_JOBS = (
    # Launcher, variable of the job, variable of the rank.
    ("torchrun", "TORCHELASTIC_RUN_ID", "RANK"),
    ("Slurm", "SLURM_JOB_ID", "SLURM_PROCID"),
    ("Open MPI", "OMPI_MCA_ess_base_jobid", "OMPI_COMM_WORLD_RANK"),
    ("Open MPI", "PMIX_NAMESPACE", "OMPI_COMM_WORLD_RANK"),
    ("PMI", "PMI_JOBID", "PMI_RANK"),
    ("PMI", "PMI_ID", "PMI_RANK"),
)


def job_and_rank(environment: Mapping[str, str]) -> tuple[str, str] | None:
    """The job of this process and its rank in it; None if the process does not belong to a parallel job."""
    for launcher, job, rank in _JOBS:
        if environment.get(job) and environment.get(rank):
            return f"{launcher} job {environment[job]}", environment[rank]
    # torchrun's static rendezvous and mpi4py launchers may set no job id. Then the address of rank 0 identifies the
    # job.
    if environment.get("RANK") and environment.get("MASTER_ADDR"):
        return f"job at {environment['MASTER_ADDR']}:{environment.get('MASTER_PORT', '')}", environment["RANK"]
    # MPICH sets no job id, but a single proxy process starts all processes of a job on a machine.
    if environment.get("PMI_RANK"):
        return f"MPICH job of process {os.getppid()}", environment["PMI_RANK"]
    return None


_measuring: set[tuple[str, str]] = set()  # Jobs and ranks whose lock this process has: its meters may be nested.

INTERVAL_S = 0.1
"""Default time between two samples. Energy counters lose nothing in between, and power readings update no faster."""

_MARKED_FROM_S = 0.25
"""Windows of at least this length cause a reading at both ends. Shorter ones are many, and their errors cancel."""

_SENT_AT_ONCE = 2000  # Number of windows. Sending each alone would cost more than opening and closing it.

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


class Meter:
    """Measures this machine as a context manager, or the calls of a function as a decorator; see `measure`.

    In a parallel job, one process of each machine measures; `result()` of the other processes raises an error.

    Args:
        command: The command that is measured, and its arguments, for the recording.
        own_share: Whether to record which share of the machine this process and its children use.

    Raises:
        InputError: The interval is not positive, or the file exists.
        UnknownNameError: This machine does not have one of the devices.
        MissingDependencyError: `mlflow` is requested and MLflow is not installed.
    """

    def __init__(
        self,
        devices: Collection[str] | None = None,
        *,
        interval_s: float = INTERVAL_S,
        out: str | Path | None = None,
        title: str = "program",
        mlflow: bool = False,
        command: Collection[str] = (),
        own_share: bool = True,
    ) -> None:
        in_range("the interval between samples in seconds", interval_s, 0, 60, above=True)
        self._devices = devices
        self._settings = interval_s, None if out is None else Path(out), title, mlflow, tuple(command)
        self._process = os.getpid() if own_share else None
        self._windows: list[Window] = []
        self._open = threading.local()  # The windows that are open in each thread, innermost last.
        self._sampler: Sampler | None = None
        self._marked_s = -math.inf
        self._job = job_and_rank(os.environ)
        self._lock: IO[str] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._result: Metering | None = None
        self._recorded = Path()
        self.exit_code: int | None = None
        """Exit code of the command that was measured, for the recording."""

    def __enter__(self) -> Self:
        interval_s, out, _, mlflow, command = self._settings
        self._result = self._sampler = self._lock = None
        if mlflow:
            active_run()
        if self._job is not None and self._job not in _measuring:
            user = getattr(os, "getuid", lambda: "")()  # Windows has none, and none of these launchers.
            name = hashlib.sha256(self._job[0].encode()).hexdigest()[:16]
            self._lock = (Path(tempfile.gettempdir()) / f"joulecast-meter-{user}-{name}.lock").open("w")
            if not lock(self._lock, wait=False):
                self._lock.close()
                return self
        machine = find_machine(self._devices)
        if out is None:
            self._folder = tempfile.TemporaryDirectory(prefix="joulecast-")
            out = Path(self._folder.name) / "recording.jsonl"
        self._recorded = out
        self._sampler = Sampler(machine.readers, interval_s, out, machine.header(command), self._process)
        self._sampler.start()
        if self._job is not None:
            _measuring.add(self._job)
        return self

    def __exit__(self, *_: object) -> None:
        if self._sampler is None:
            return
        self._send()
        self._sampler.stop(self.exit_code)
        if self._lock is not None and self._job is not None:
            self._lock.close()
            _measuring.discard(self._job)
        try:
            self._result = self._read()
        finally:
            if self._folder is not None:
                self._folder.cleanup()
        if self._settings[3]:
            log_metering(self._result)

    def __call__(self, function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
        """Measure each call of a function with a new meter; its attribute `metering` is the last result.

        Raises InputError: the function is asynchronous or a generator, or a file is given, which one call can write.
        """
        lazy = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
        if self._settings[1] is not None or any(is_lazy(function) for is_lazy in lazy):
            raise InputError(
                "the calls of this function cannot be measured from outside",
                given=function.__qualname__,
                allowed="a function that ends when its call returns, without out=",
                hint="measure in its body: with joulecast.measure() as meter",
            )

        @functools.wraps(function)
        def measured(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
            interval_s, _, _, mlflow, _ = self._settings
            with Meter(self._devices, interval_s=interval_s, title=function.__qualname__, mlflow=mlflow) as meter:
                returned = function(*args, **kwargs)
            measured.metering = meter.result() if meter.measures else None  # type: ignore[attr-defined]
            return returned

        return measured

    @property
    def measures(self) -> bool:
        """Whether this process measures the machine; in a parallel job it may be another process."""
        return self._sampler is not None

    @contextmanager
    def window(self, name: str, *, whole: bool = False) -> Iterator[None]:
        """Mark a part of the program as a window; windows that are opened inside it are its children.

        Windows of several threads that are open at the same time share the joules and seconds equally.

        Args:
            name: Name of the part. Windows of the same name count as calls of one part; a dot separates levels.
            whole: Whether the name is the whole path, whatever windows are open in this thread.

        Raises:
            InputError: Windows are nested more than 100 deep, or their names are too long.
        """
        around: list[str] = self._open.__dict__.setdefault("paths", [])
        path = f"{around[-1]}.{name}" if around and not whole else name
        require_levels(path)
        around.append(path)
        start_s = time.monotonic()
        if start_s - self._marked_s >= _MARKED_FROM_S:
            self._mark(start_s)
        try:
            yield
        finally:
            end_s = time.monotonic()
            if end_s - start_s >= _MARKED_FROM_S:
                self._mark(end_s)
            self._windows.append((path, start_s, end_s))
            around.pop()
            if len(self._windows) >= _SENT_AT_ONCE:
                self._send()

    def _mark(self, now_s: float) -> None:
        """Request a reading of the devices now, because regular readings are `interval_s` apart."""
        self._marked_s = now_s
        if self._sampler is not None:
            self._sampler.send({"do": "mark"})

    def _send(self) -> None:
        windows, self._windows = self._windows, []
        if windows and self._sampler is not None:
            self._sampler.send({"do": "windows", "windows": windows})

    def totals(self) -> dict[str, dict[str, float | None]]:
        """Joules so far and last power in watts of each device, while measuring; empty if another process measures."""
        found: dict[str, dict[str, float | None]] = {}
        return found if self._sampler is None else self._sampler.ask({"do": "totals"})["devices"]

    def result(self) -> Metering:
        """The result, computed from the recording: up to now while measuring, afterwards the whole of it.

        Raises:
            InputError: Another process of the job measures this machine, or nothing has been measured yet.
        """
        if self._result is not None:
            return self._result
        if self._sampler is None:
            raise InputError(
                "this process has measured nothing",
                given=f"rank {self._job[1]}" if self._job else "a meter that was not entered",
                hint="one process of each machine measures: read the recording that it writes (out=...)",
            )
        self._send()
        self._sampler.ask({"do": "flush"})
        return self._read()

    def gathered(self, communicator: Any = None) -> Metering | None:
        """The merged result of all machines of an MPI job at rank 0; None at other ranks. All ranks must call it.

        Args:
            communicator: The processes to gather from, an `mpi4py.MPI.Comm`; None for all processes of the job.

        Raises:
            MissingDependencyError: mpi4py is not installed, and no communicator is given.
            InputError: No rank measured anything, or two measured one machine at the same time. Raised at rank 0.
        """
        if communicator is None:
            with needing("gathering over machines needs mpi4py", "pip install mpi4py"):
                from mpi4py import MPI
            communicator = MPI.COMM_WORLD
        found = communicator.gather(self.result() if self.measures else None, root=0)
        if found is None:
            return None
        measured = [each for each in found if each is not None]
        if not measured:
            raise InputError(
                "no process of this job measured anything",
                given=f"{len(found)} processes",
                hint="enter joulecast.measure() in all of them; one of each machine will measure",
            )
        return merged(self._settings[2], measured)

    def _read(self) -> Metering:
        return Metering(self._settings[2], (read_recording(self._recorded),))


def measure(
    devices: Collection[str] | Callable[..., Returned] | None = None,
    *,
    interval_s: float = INTERVAL_S,
    out: str | Path | None = None,
    title: str = "program",
    mlflow: bool = False,
) -> Meter | Callable[..., Returned]:
    """Measure the energy that a program uses: a context manager, or a decorator (`@joulecast.measure`).

    Args:
        devices: "cpu", "ram", "gpu", or names such as "gpu1"; None for all that have a sensor, and for an estimate from
            utilization and data sheets if there is no sensor, which is marked as modelled. "estimate" alone always
            estimates.
        interval_s: Seconds between two samples.
        out: Path of the recording, which `joulecast measure show` reads; None for a temporary file.
        title: Title of the measurement.
        mlflow: Whether to log joules, watts and seconds to the active MLflow run at the end.

    Raises:
        InputError, UnknownNameError, MissingDependencyError: See `Meter`.

    Examples:
        >>> with measure() as meter:  # doctest: +SKIP
        ...     with meter.window("training"):
        ...         train()
        >>> meter.result().energy_j  # doctest: +SKIP
        5124.3
    """
    if callable(devices):
        return Meter()(devices)
    return Meter(devices, interval_s=interval_s, out=out, title=title, mlflow=mlflow)


# Measured joules as metrics of an MLflow run.

PREFIX = "system/"
"""MLflow shows metrics with this prefix together with its own system metrics."""


def active_run() -> Any:
    """The active run, to which metrics are logged.

    Raises MissingDependencyError: MLflow is not installed. Raises InputError: no run is active.
    """
    with needing("logging to MLflow needs the package mlflow", with_extra("mlflow")):
        import mlflow
    run = mlflow.active_run()
    if run is None:
        raise InputError("no MLflow run is active", given="mlflow=True", hint="measure inside mlflow.start_run()")
    return run


def log_metering(metering: Metering) -> None:
    """Log the totals, and those of each device and window, as metrics of the active run."""
    active_run()
    import mlflow

    values = {"duration_s": metering.duration_s}
    modelled = "" if metering.source == "measured" else "modelled_"  # Runs are compared by name.
    if metering.energy_j is not None and metering.mean_w is not None:
        values |= {f"{modelled}energy_j": metering.energy_j, f"{modelled}mean_power_w": metering.mean_w}
    for found in metering.devices:
        values[f"{found.device.name}_energy_j"] = found.energy_j
        values[f"{found.device.name}_mean_power_w"] = found.mean_w
    for node in metering.tree().root.walk():
        if node.level == "module" and node.total.source != "missing":
            values[f"window/{node.path}_{modelled}energy_j"] = node.total.energy_j
    # MLflow refuses other characters in names, and longer ones.
    mlflow.log_metrics({re.sub(r"[^\w\-. /:]", "_", PREFIX + name)[:250]: value for name, value in values.items()})
