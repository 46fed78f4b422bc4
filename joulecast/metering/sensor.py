"""What a campaign needs of a power sensor, and the process that polls one.

A sensor samples from the moment it is entered until it is left; `window` gives the samples of a loop. To add one (AMD,
say), write a reader and hand it to `PolledSensor`, or implement the Protocol; the campaign needs no more.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from ..errors import SensorError
from .samples import FIELDS, Samples

PERIOD_S = 0.01
"""Between two samples: counters update every 10 to 100 ms, and reading faster finds nothing new."""

_KEPT = 200_000  # Samples until they are asked for: half an hour.
_PATIENCE_S = 30.0

Reader = Callable[[], Mapping[str, float]]
"""Reads a device once: readings by the names of `Samples`, those that it does not have left out; raises SensorError."""


class Sensor(Protocol):
    """Samples power while it is entered."""

    def __enter__(self) -> Self:
        """Start sampling."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop sampling."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """What it reads, for the card of a dataset: sensor, device, driver, power limit, period."""
        ...

    def window(self, start_s: float, end_s: float) -> Samples:
        """The samples between two moments of `time.monotonic` that have passed."""
        ...


class NoSensor:
    """A device without a power sensor: times are measured, power is missing.

    Args:
        reason: Why there is none.
    """

    def __init__(self, reason: str = "") -> None:
        self._reason = reason

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def facts(self) -> Mapping[str, Any]:
        """That there is none, and why."""
        return {"sensor": "none" + (f" ({self._reason})" if self._reason else "")}

    def window(self, start_s: float, end_s: float) -> Samples:
        """No samples."""
        return Samples.of(np.empty(0))


class PolledSensor:
    """A sensor that is polled by a process of its own, so that nothing disturbs the loop that is measured.

    Args:
        open_reader: Makes the reader, in that process; must be picklable.
        facts: What the sensor is.
        period_s: Between two samples.
    """

    def __init__(self, open_reader: Callable[[], Reader], facts: Mapping[str, Any], period_s: float = PERIOD_S) -> None:
        self._open_reader, self._facts, self._period_s = open_reader, dict(facts), period_s

    def facts(self) -> Mapping[str, Any]:
        """What was given when it was made."""
        return dict(self._facts)

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")  # a fork would share CUDA's state with the sampler
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_sample, args=(self._open_reader, self._period_s, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._ask(time.monotonic())  # comes back once the sampler runs
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._connection.send(None)
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
        self._connection.close()

    def window(self, start_s: float, end_s: float) -> Samples:
        """Samples of a window that has passed; those before it are forgotten.

        Raises:
            SensorError: The sampler ended, as when the GPU falls off the bus.
        """
        return self._ask(start_s).between(start_s, end_s)

    def _ask(self, since_s: float) -> Samples:
        try:
            self._connection.send(since_s)
            ready = self._connection.poll(_PATIENCE_S)
            answer = self._connection.recv() if ready else "no answer in time"
        except (EOFError, OSError):
            answer = "the sampler ended"
        if isinstance(answer, str):
            raise SensorError("the power sensor was lost", given=answer, hint="check `nvidia-smi`; go on with --resume")
        return Samples(*np.array(answer).T)


def _sample(open_reader: Callable[[], Reader], period_s: float, connection: Any) -> None:
    """Poll a device, and answer how it was since a moment, until told to stop; runs in a process of its own.

    Samples are kept here until they are asked for: nothing goes to the measuring process while its loop runs.
    """
    samples: deque[tuple[float, ...]] = deque(maxlen=_KEPT)
    lost: str | None = None
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the campaign says when to stop
    with suppress(EOFError, OSError):  # the campaign is gone
        read = open_reader()
        while True:
            try:
                readings = {"time_s": time.monotonic(), **read()}
                samples.append(tuple(readings.get(name, float("nan")) for name in FIELDS))
            except SensorError as error:
                lost = lost or str(error.given or error.what)
            if connection.poll():
                since_s = connection.recv()
                if since_s is None:
                    return
                # The sample before holds until the first one of the window.
                while len(samples) > 1 and samples[1][0] <= since_s:
                    samples.popleft()
                connection.send(lost or list(samples))
            time.sleep(period_s)
