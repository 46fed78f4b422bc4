"""A campaign on the workers of a Dask cluster: `joulecast collect --cluster tcp://HOST:PORT`.

Dask finds the workers, carries tasks and records, and notices when a worker is lost. What is measured where is decided
here: a GPU measures one operation at a time, and each model of GPU measures the whole plan once. Only this process
writes journals, one for each model. A measurement is therefore in a journal once, or was lost with its worker and is
made again.
"""

from __future__ import annotations

import json
import queue
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import DeviceError, InputError, JoulecastError
from ..system.cluster import connect
from . import session
from .campaign import Campaign, NetworkTask, Task, plan
from .journal import Journal, now
from .session import JOURNAL, check_resumed, finish_journal, say, sessions, termination_as_interrupt

if TYPE_CHECKING:
    import torch
    from distributed import Client, Future

    from ..metering import Sensor


# A worker's part of a campaign on a cluster: it opens its device, and measures what it is told to.
#
# The functions run on the worker. They write no files, so a worker that dies leaves nothing behind.


@dataclass(frozen=True)
class Opened:
    """What a worker says about its device.

    Args:
        device: Name of the device's model, by which measurements are put into datasets.
        session: The power of the idle device, for the journal; None without a sensor.
    """

    device: str
    board: str | None
    facts: dict[str, Any]
    session: dict[str, Any] | None


@dataclass
class _Bench:
    """The device of this process, with its sensors. They poll until they are closed."""

    campaign: Campaign
    device: torch.device
    sensor: Sensor
    second: Sensor | None
    entered: ExitStack


_OPEN: list[_Bench] = []  # at most one: a worker keeps its sensor from one measurement to the next


def open_device(campaign: Campaign, device: str, version: str, *, power: bool) -> Opened:
    """Get the device of this worker ready, and describe it.

    Raises InputError: this worker has another version of joulecast, or no such device. Raises SensorError, ClockError:
    power cannot be read, or a clock cannot be locked.
    """
    if version != __version__:
        raise InputError(
            "this worker has another version of joulecast",
            given=__version__,
            allowed=version,
            hint="install the same version on all machines of the cluster",
        )
    from ..metering import NoSensor
    from ..metering.estimate import idle
    from . import devices

    close_device()
    found = devices.find_device(device)
    session.ready_clocks(campaign, found)
    sensor = devices.sensor_of(found) if power else NoSensor("not asked for")
    second = session.second_log(found) if campaign.second_log else None
    started = now()
    with ExitStack() as entered:
        for each in (sensor, second):
            if each is not None:
                entered.enter_context(each)
        first = None if isinstance(sensor, NoSensor) else {"idle": asdict(idle(sensor, session.IDLE_S))}
        _OPEN.append(_Bench(campaign, found, sensor, second, entered.pop_all()))
    return Opened(
        device=devices.name_of(found),
        board=devices.board_of(found),
        facts={**devices.facts_of(found, sensor), "joulecast": __version__},
        session=None if first is None else {"status": "session", "started": started, **first},
    )


def measure_here(task: Task | NetworkTask) -> dict[str, Any]:
    """Make one measurement on the device that `open_device` has opened, at the clock of the task.

    Raises ClockError: the clock cannot be locked. Raises SensorError, DeviceError: the sensor or the GPU is lost.
    """
    from . import collection

    (bench,) = _OPEN
    with collection.held(task.clock_mhz, bench.device):
        return collection.measure(task, bench.campaign, bench.device, bench.sensor, bench.second)


def close_device() -> None:
    """Stop the sensors of this worker."""
    while _OPEN:
        _OPEN.pop().entered.close()


_CHECK_S = 0.2  # between two looks at which workers there are
_FETCH_S = 10.0  # for the record of a finished measurement, which its worker may take with it
_MOST_LOSSES = 10  # workers that one measurement may be lost with before it counts as the cause
_SHARED_FACTS = ("joulecast", "torch", "cuda", "driver", "sensor", "max_clock_mhz", "power_limit_w")

_Plan = Sequence[Task | NetworkTask]


def run_on_cluster(
    campaign: Campaign,
    out: Path,
    cluster: str,
    device: str = "cuda",
    *,
    limit: int | None = None,
    resume: bool = False,
    power: bool = True,
) -> str:
    """Run a campaign on the workers of a cluster, and return its results in a line for each model of GPU.

    Raises InputError: no scheduler answers, a worker does not fit, or `out` has measurements that are not resumed.
    Raises JoulecastError: the campaign cannot go on. Finished measurements are in the journals.

    Args:
        out: Folder that gets a folder for each model of GPU, with journal and dataset.
        cluster: Address of Dask's scheduler, such as tcp://host:8786.
    """
    with connect(cluster) as client:
        tasks = plan(campaign, limit)
        say(f"{len(tasks)} measurements for each model of GPU at {client.scheduler.address}\n")
        with ExitStack() as journals:
            dispatch = _Dispatch(client, campaign, tasks, out, resume, journals)
            try:
                with termination_as_interrupt():
                    dispatch.run(device, power)
            except KeyboardInterrupt:
                say("\nstopped; go on with --resume")
            say("\n")
            results, errors = [], []
            for name, model in dispatch.models.items():
                try:
                    results.append(finish_journal(model.journal, out / name))
                except JoulecastError as error:  # The datasets of the other models are written all the same.
                    errors.append(error)
    if errors:
        say("".join(f"{result}\n" for result in results))
        raise errors[0]
    return "\n".join(results)


@dataclass
class _Model:
    """A model of GPU: its journal, and what is left to measure."""

    journal: Journal
    left: deque[Task | NetworkTask]


@dataclass
class _Worker:
    """A worker: the call that it computes, and what is known of it.

    Args:
        call: The call; None where it is idle.
        task: The measurement that the call makes; None where it opens the device.
        refusal: Why nothing is measured on it; None where something is.
    """

    call: Future | None
    task: Task | NetworkTask | None = None
    model: str | None = None
    board: str | None = None
    refusal: JoulecastError | None = None


class _Dispatch:
    """Hands the measurements of a plan to workers that come and go."""

    def __init__(
        self, client: Client, campaign: Campaign, tasks: _Plan, out: Path, resume: bool, journals: ExitStack
    ) -> None:
        self.models: dict[str, _Model] = {}
        self._client = client
        self._campaign = campaign
        self._tasks = tasks
        self._out = out
        self._resume = resume
        self._workers: dict[str, _Worker] = {}
        self._losses: Counter[str] = Counter()
        self._ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self._journals = journals

    def run(self, device: str, power: bool) -> None:
        """Measure until nothing is left."""
        waited = False
        try:
            while not self.models or self._is_busy() or self._wanted():
                self._look_for_workers(device, power)
                self._hand_out()
                waits = not self._is_busy()
                if waits and not waited:
                    say(" with ".join(["\nwaiting for workers", *filter(None, [", ".join(self._wanted())])]) + "\n")
                waited = waits
                with suppress(queue.Empty):
                    self._take(self._ended.get(timeout=_CHECK_S))
        finally:
            self._client.cancel([worker.call for worker in self._workers.values() if worker.call is not None])
            self._client.run(close_device, on_error="ignore")

    def _is_busy(self) -> bool:
        return any(worker.call is not None for worker in self._workers.values())

    def _wanted(self) -> list[str]:
        """The models of GPU that have measurements left."""
        return [name for name, model in self.models.items() if model.left]

    def _look_for_workers(self, device: str, power: bool) -> None:
        try:
            here = set(self._client.nthreads())
        except OSError as error:
            raise DeviceError(
                "the scheduler of the cluster is gone", given=str(error), hint="start it, and go on with --resume"
            ) from error
        for address in self._workers.keys() - here:
            self._lose(address)
        for address in here - self._workers.keys():
            call = self._submit(address, open_device, self._campaign, device, __version__, power=power)
            self._workers[address] = _Worker(call)
        refusals = [worker.refusal for worker in self._workers.values()]
        if refusals and all(refusals):
            raise next(refusal for refusal in refusals if refusal is not None)

    def _submit(self, address: str, function: Any, *arguments: Any, **named: Any) -> Future:
        call = self._client.submit(function, *arguments, **named, workers=[address], pure=False)
        call.add_done_callback(self._ended.put)
        return call

    def _hand_out(self) -> None:
        for address, worker in self._workers.items():
            if worker.call is None and worker.refusal is None and worker.model is not None:
                left = self.models[worker.model].left
                if left:
                    worker.task = left.popleft()
                    worker.call = self._submit(address, measure_here, worker.task)

    def _take(self, call: Future) -> None:
        """Take the result of a call that has ended. Those of workers that were given up are of no interest."""
        calls = {worker.call.key: address for address, worker in self._workers.items() if worker.call is not None}
        if call.key not in calls:
            return
        from distributed import CancelledError, KilledWorker

        address = calls[call.key]
        worker = self._workers[address]
        try:
            result = call.result(timeout=_FETCH_S)
        except (TimeoutError, CancelledError, KilledWorker):  # The worker was lost before its result was fetched.
            self._lose(address)
        except Exception as error:  # noqa: BLE001  (whatever a worker raises)
            self._refuse(address, worker, error)
        else:
            worker.call = None
            if isinstance(result, Opened):
                self._welcome(address, worker, result)
            else:
                self._write(address, worker, result)

    def _lose(self, address: str) -> None:
        """Forget a worker, and put back what it measured, last, so that it does not take all workers with it."""
        worker = self._workers.pop(address)
        # A worker that was restarted may have been refused because the loss of the first was not noticed yet.
        for other, known in list(self._workers.items()):
            if known.refusal is not None and known.board is not None and known.board == worker.board:
                del self._workers[other]
        if worker.call is not None:
            self._client.cancel([worker.call])
        if worker.task is None or worker.model is None:
            return
        say(f"\n{address} was lost; its measurement is made again\n")
        model = self.models[worker.model]
        self._losses[worker.task.key] += 1
        if self._losses[worker.task.key] < _MOST_LOSSES:
            model.left.append(worker.task)
            return
        raise DeviceError(
            "workers are lost again and again with the same measurement",
            given=f"{worker.task.key}, {_MOST_LOSSES} times",
            hint="read the log of a worker; then omit the operation, or go on with --resume",
        )

    def _refuse(self, address: str, worker: _Worker, error: Exception) -> None:
        """Measure nothing more on a worker, and put back what it measured."""
        if not isinstance(error, JoulecastError):
            error = DeviceError(
                "a worker cannot measure",
                given=f"{type(error).__name__}: {error}",
                hint=f"install joulecast {__version__} with torch on all machines of the cluster",
            )
        if worker.task is not None and worker.model is not None:
            self.models[worker.model].left.appendleft(worker.task)
        worker.call, worker.task, worker.refusal = None, None, error
        say(f"\n{address} is not used: {error}\n")

    def _welcome(self, address: str, worker: _Worker, opened: Opened) -> None:
        """Give a worker whose device is open to its model of GPU, if it fits."""
        used = {known.board: other for other, known in self._workers.items() if known.refusal is None}
        worker.board = opened.board
        if opened.board is not None and opened.board in used:
            error = InputError(
                "two workers use the same GPU",
                given=f"{address} and {used[opened.board]}",
                allowed="one worker for each GPU",
                hint="set CUDA_VISIBLE_DEVICES of each worker",
            )
            self._refuse(address, worker, error)
            return
        # The device's name comes from another machine, so it must not become a path.
        words = "".join(c if c.isascii() and c.isalnum() else " " for c in opened.device.lower()).split()
        name = "-".join(words) or "device"
        model = self._model(name, opened)
        plain, known = json.loads(json.dumps(opened.facts)), model.journal.facts  # as a journal gives it back
        if differing := [fact for fact in _SHARED_FACTS if known.get(fact) != plain.get(fact)]:
            error = InputError(
                f"this worker would not fit into the dataset of {opened.device}",
                given=", ".join(f"{fact} {opened.facts.get(fact)}" for fact in differing),
                allowed=", ".join(f"{fact} {known.get(fact)}" for fact in differing),
                hint="install the same software on its machine, or collect there with another --out",
            )
            self._refuse(address, worker, error)
            return
        worker.model = name
        if opened.session is not None:
            model.journal.append({"key": f"session {sessions(model.journal)}", **opened.session, "worker": address})

    def _model(self, name: str, opened: Opened) -> _Model:
        if name not in self.models:
            belongs_to = {**self._campaign.to_dict(), "device": opened.device}
            journal = self._journals.enter_context(Journal(self._out / name / JOURNAL, belongs_to, opened.facts))
            check_resumed(journal, self._resume)
            known = {record["key"] for record in journal.records}
            self.models[name] = _Model(journal, deque(task for task in self._tasks if task.key not in known))
        return self.models[name]

    def _write(self, address: str, worker: _Worker, record: Mapping[str, Any]) -> None:
        if worker.model is None:
            return
        model = self.models[worker.model]
        worker.task = None
        model.journal.append({**record, "worker": address})
        done = sum(len(self._tasks) - len(each.left) for each in self.models.values())
        done -= sum(each.task is not None for each in self._workers.values())
        say(f"\r{done}/{len(self._tasks) * len(self.models)} on {len(self._workers)} workers")
