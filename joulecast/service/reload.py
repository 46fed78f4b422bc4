"""Predictors that change while the service runs: what lies in the zoo, what was pulled, and what is followed.

A followed predictor is pulled again and again; what the alias of a registry, or a folder, holds by then is checked as
`joulecast zoo pull` checks it, and stands for its name from then on: it answers all requests that come later.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import sys
from collections.abc import Callable, Mapping

from .. import __version__
from ..errors import ZooError
from ..hardware import find_gpu
from ..operations.operation import MODES
from ..resources import shipped
from ..zoo import find_predictor
from ..zoo.entries.files import MANIFEST
from ..zoo.store import pulled
from .logs import log
from .settings import Settings

_PULL_SECONDS = 300.0

WARMED = ("A30", "H100 SXM")
"""GPUs whose predictors are loaded before anybody asks: one with a predictor of its own, and one without."""


def generation() -> str:
    """Changes whenever a predictor does that could answer, and where the list of those that were pulled is damaged.

    Raises:
        OSError: Somebody is just changing what is looked at.
    """
    entries: Mapping[str, int] = {
        str(path): path.stat().st_mtime_ns for path in sorted(shipped("zoo").glob(f"*/*/{MANIFEST}"))
    }
    try:
        names: object = {name: row.sha256 for name, row in sorted(pulled().items())}
    except ZooError as error:
        # No reason to stop: whoever asks is told so, and so is whoever asks whether this is ready.
        names = str(error)
    return hashlib.sha256(repr((__version__, entries, names)).encode()).hexdigest()[:16]


def damage() -> str | None:
    """Why the predictors that most ask for cannot be loaded; None where they can."""
    try:
        for gpu in WARMED:
            for mode in MODES:
                find_predictor(find_gpu(gpu), mode)
    except (ZooError, OSError) as error:
        return str(error)
    return None


async def watch(settings: Settings, seen: str, reloaded: Callable[[str, str | None], None]) -> None:
    """Look at the predictors every few seconds; answers of those that were replaced are forgotten.

    Args:
        settings: How often.
        seen: The generation to begin with.
        reloaded: Called with each new generation, and with what `damage` says of it.
    """
    while True:
        await asyncio.sleep(settings.watch_seconds)
        try:
            now = await asyncio.to_thread(generation)
        except OSError as error:
            # Somebody is writing there: what is loaded answers on.
            log(logging.WARNING, "zoo unreadable", error=str(error))
            continue
        if now != seen:
            seen = now
            fault = await asyncio.to_thread(damage)
            reloaded(now, fault)
            log(logging.INFO if fault is None else logging.ERROR, "reloaded", generation=now, damage=fault)


async def follow(settings: Settings) -> None:
    """Pull what is followed, now and every so often."""
    while True:
        for source in settings.follow:
            await _pull(source)
        await asyncio.sleep(settings.follow_seconds)


async def _pull(source: str) -> None:
    # A process of its own: mlflow takes seconds to import, holds 200 MB, and knows one server at a time.
    command = (sys.executable, "-m", "joulecast.cli", "zoo", "pull", "--replace", source)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        _, error = await asyncio.wait_for(process.communicate(), _PULL_SECONDS)
        if process.returncode:
            # The predictor that was there before answers on.
            log(logging.WARNING, "not pulled", source=source, error=error.decode(errors="replace")[-2000:])
    except TimeoutError:
        log(logging.WARNING, "not pulled", source=source, error=f"it took longer than {_PULL_SECONDS:g} s")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
