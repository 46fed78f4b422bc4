"""Updates of predictors while the service runs: in the zoo, in the cache of pulled entries, and followed ones.

A followed predictor is pulled periodically from its place, such as an alias of a registry or a folder. A new version is
checked as `joulecast zoo pull` does, and answers all requests that arrive afterwards.
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
from ..resources import shipped
from ..zoo.entries.files import MANIFEST
from ..zoo.store import pulled
from .logs import log
from .settings import Settings

_PULL_SECONDS = 300.0


def generation() -> str:
    """A text that changes whenever a predictor in the zoo or the cache changes."""
    entries: Mapping[str, int] = {
        str(path): path.stat().st_mtime_ns for path in sorted(shipped("zoo").glob(f"*/*/{MANIFEST}"))
    }
    names = {name: row.sha256 for name, row in sorted(pulled().items())}
    return hashlib.sha256(repr((__version__, entries, names)).encode()).hexdigest()[:16]


async def watch(settings: Settings, seen: str, reloaded: Callable[[str], None]) -> None:
    """Check every few seconds whether predictors have changed, so that answers of old ones are dropped.

    Args:
        settings: How often to check.
        seen: The current generation.
        reloaded: Function that is called with each new generation.
    """
    while True:
        await asyncio.sleep(settings.watch_seconds)
        try:
            now = await asyncio.to_thread(generation)
        except (OSError, ZooError) as error:
            # The zoo is being written to or is damaged. The loaded predictors go on answering.
            log(logging.WARNING, "zoo unreadable", error=str(error))
            continue
        if now != seen:
            seen = now
            reloaded(now)
            log(logging.INFO, "reloaded", generation=now)


async def follow(settings: Settings) -> None:
    """Pull the followed predictors now and then periodically."""
    while True:
        for source in settings.follow:
            await _pull(source)
        await asyncio.sleep(settings.follow_seconds)


async def _pull(source: str) -> None:
    # In a separate process, because mlflow takes seconds to import, needs 200 MB, and knows one server at a time.
    command = (sys.executable, "-m", "joulecast.cli", "zoo", "pull", "--replace", source)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        _, error = await asyncio.wait_for(process.communicate(), _PULL_SECONDS)
        if process.returncode:
            # The previous predictor goes on answering.
            log(logging.WARNING, "not pulled", source=source, error=error.decode(errors="replace")[-2000:])
    except TimeoutError:
        log(logging.WARNING, "not pulled", source=source, error=f"pulling took longer than {_PULL_SECONDS:g} s")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
