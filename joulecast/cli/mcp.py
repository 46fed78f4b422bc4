"""`joulecast mcp`."""

from __future__ import annotations

from importlib.util import find_spec

from ..errors import MissingDependencyError, with_extra


def serve_agents() -> None:
    """Answer agents over the Model Context Protocol, on standard input and output: predict, best, generate."""
    if find_spec("mcp") is None:
        raise MissingDependencyError("serving agents needs the package mcp", hint=with_extra("mcp"))
    from ..remote.agents import server

    server().run()
