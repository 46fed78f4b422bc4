"""Updates of predictors while the service runs: those in the zoo, and those that `joulecast zoo pull` wrote."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping

from .. import __version__
from ..errors import ZooError
from ..hardware import find_gpu
from ..operations.operation import MODES
from ..system.resources import shipped
from ..zoo import find_predictor
from ..zoo.files import MANIFEST
from ..zoo.store import pulled
from .logs import log
from .settings import Settings

WARMED = ("A30", "H100 SXM")
"""GPUs whose predictors are loaded before the first request: one with a predictor of its own, and one without."""


def generation() -> str:
    """A text that changes whenever a predictor in the zoo or the cache changes, or the list of pulled ones is damaged.

    Raises:
        OSError: A file is being replaced at this moment.
    """
    entries: Mapping[str, int] = {
        str(path): path.stat().st_mtime_ns for path in sorted(shipped("zoo").glob(f"*/*/{MANIFEST}"))
    }
    try:
        names: object = {name: row.manifest_sha256 for name, row in sorted(pulled().items())}
    except ZooError as error:
        # The service goes on: requests for these entries, and requests for readiness, are answered with this error.
        names = str(error)
    return hashlib.sha256(repr((__version__, entries, names)).encode()).hexdigest()[:16]


def damage() -> str | None:
    """Why the predictors that most requests need cannot be loaded; None where they can."""
    try:
        for gpu in WARMED:
            for mode in MODES:
                find_predictor(find_gpu(gpu), mode)
    except (ZooError, OSError) as error:
        return str(error)
    return None


async def watch(settings: Settings, seen: str, reloaded: Callable[[str, str | None], None]) -> None:
    """Check every few seconds whether predictors have changed, so that answers of old ones are dropped.

    Each new generation is told to `reloaded`, with what `damage` says of it.
    """
    while True:
        await asyncio.sleep(settings.watch_seconds)
        try:
            now = await asyncio.to_thread(generation)
        except OSError as error:
            # The zoo is being written to. The loaded predictors go on answering.
            log(logging.WARNING, "zoo unreadable", error=str(error))
            continue
        if now != seen:
            seen = now
            fault = await asyncio.to_thread(damage)
            reloaded(now, fault)
            log(logging.INFO if fault is None else logging.ERROR, "reloaded", generation=now, damage=fault)
