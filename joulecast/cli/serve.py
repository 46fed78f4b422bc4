"""Servers: `joulecast serve`, whose options are the fields of the service's settings, and `joulecast mcp`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from ..errors import InputError, MissingDependencyError, with_extra
from ..service.settings import Settings
from ..system.regular_files import refusing_damage
from .options import option_of

_PREFIX = "JOULECAST_SERVE_"
_TYPES = {"int": int, "float": float, "bool": bool, "str": str, "tuple[str, ...]": list[str] | None}
_FLAGS = {"cors_origins": ["--cors-origin"], "proxies": ["--proxy"]}
_NO_OPTIONS = ("tokens", "watch_seconds")


def serve(**given: Any) -> None:
    """Serve predictions over HTTP, and a web page.

    Every option can also be set by an environment variable, such as JOULECAST_SERVE_PORT for --port.
    """
    if not all(map(find_spec, ("fastapi", "orjson", "prometheus_client", "uvicorn"))):
        raise MissingDependencyError(
            "the service needs fastapi, orjson, prometheus-client and uvicorn", hint=with_extra("service")
        )
    from ..service.app import serve as run

    tokens = _tokens(given.pop("tokens_file"))
    given |= {name: tuple(given[name] or ()) for name in ("cors_origins", "proxies")}
    run(Settings(tokens=tokens, **given), lambda url: typer.echo(f"joulecast serves {url} (Ctrl-C stops it)"))


def _parameters() -> Iterator[inspect.Parameter]:
    """The options: one for each setting, and the file with the tokens, which no process list may show."""
    words = f"File with the bearer tokens of clients, one per line; or set ${_PREFIX}TOKENS, separated by spaces."
    yield option_of("tokens_file", {"help": words, "envvar": f"{_PREFIX}TOKENS_FILE"}, Path | None, None)
    for field in fields(Settings):
        if field.name not in _NO_OPTIONS:
            several = field.type == "tuple[str, ...]"
            words = field.metadata["help"] + (" Repeat it for several." if several else "")
            row = {"help": words, "envvar": _PREFIX + field.name.upper(), "flags": _FLAGS.get(field.name, [])}
            yield option_of(field.name, row, _TYPES[str(field.type)], None if several else field.default)


serve.__signature__ = inspect.Signature([*_parameters()])  # type: ignore[attr-defined]
serve.__annotations__ = {each.name: each.annotation for each in _parameters()}


def _tokens(file: Path | None) -> tuple[str, ...]:
    """Read the tokens from a file or a variable. Arguments would show them to every user of the machine."""
    if file is None:
        return tuple(os.environ.get(f"{_PREFIX}TOKENS", "").split())
    with refusing_damage("the file with the tokens cannot be read", file):
        tokens = tuple(file.read_text(encoding="utf-8").split())
    if not tokens:
        raise InputError("the file with the tokens is empty", given=str(file), hint="write one token per line")
    return tokens


def serve_agents() -> None:
    """Answer agents over the Model Context Protocol, on standard input and output: predict, best, generate, run."""
    if find_spec("mcp") is None:
        raise MissingDependencyError("serving agents needs the package mcp", hint=with_extra("mcp"))
    from ..remote.agents import server

    server().run()
