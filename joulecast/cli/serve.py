"""`joulecast serve`."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ..errors import InputError, MissingDependencyError, with_extra
from ..system.damage import unreadable

_PREFIX = "JOULECAST_SERVE_"


def _from(name: str) -> str:
    return _PREFIX + name


def serve(
    host: Annotated[str, typer.Option(envvar=_from("HOST"), help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar=_from("PORT"), help="Port to listen on; 0 for any free one.")] = 8000,
    tokens_file: Annotated[
        Path | None,
        typer.Option(
            envvar=_from("TOKENS_FILE"),
            help=f"File with the bearer tokens of clients, one per line; or set ${_PREFIX}TOKENS, separated by spaces.",
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(
            envvar=_from("CORS_ORIGINS"),
            help="Origin of another web page that may send requests; repeat it for several.",
        ),
    ] = None,
    root_path: Annotated[
        str, typer.Option(envvar=_from("ROOT_PATH"), help="Prefix that a proxy strips from the path of a request.")
    ] = "",
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            envvar=_from("PROXIES"),
            help="Address or network of a proxy whose X-Forwarded-For names the client; repeat it for several.",
        ),
    ] = None,
    follow: Annotated[
        list[str] | None,
        typer.Option(
            envvar=_from("FOLLOW"),
            help="Predictor to update while serving, such as models:/NAME@champion; repeat it for several.",
        ),
    ] = None,
    follow_seconds: Annotated[
        float,
        typer.Option(envvar=_from("FOLLOW_SECONDS"), help="Seconds between checks for updates of these predictors."),
    ] = 60.0,
    extraction: Annotated[
        bool, typer.Option(envvar=_from("EXTRACTION"), help="Extract models that have no template with torch.")
    ] = True,
    max_body_bytes: Annotated[
        int, typer.Option(envvar=_from("MAX_BODY_BYTES"), help="Largest body of a request.")
    ] = 4_000_000,
    max_bodies_bytes: Annotated[
        int,
        typer.Option(
            envvar=_from("MAX_BODIES_BYTES"), help="Bodies of all large requests together; one client gets a quarter."
        ),
    ] = 64_000_000,
    max_batch: Annotated[int, typer.Option(envvar=_from("MAX_BATCH"), help="Most predictions in one batch.")] = 5_000,
    max_operations: Annotated[
        int, typer.Option(envvar=_from("MAX_OPERATIONS"), help="Most different operations in a network.")
    ] = 5_000,
    max_choices: Annotated[
        int, typer.Option(envvar=_from("MAX_CHOICES"), help="Most GPUs x clocks x precisions in a sweep.")
    ] = 10_000,
    max_work: Annotated[
        int, typer.Option(envvar=_from("MAX_WORK"), help="Most operations x GPUs x clocks x precisions in a sweep.")
    ] = 5_000_000,
    max_seconds: Annotated[
        float, typer.Option(envvar=_from("MAX_SECONDS"), help="Longest time to compute an answer.")
    ] = 60.0,
    max_waiting: Annotated[
        int,
        typer.Option(
            envvar=_from("MAX_WAITING"), help="Most requests that wait for a thread; further ones are refused."
        ),
    ] = 256,
    max_tracing: Annotated[
        int,
        typer.Option(
            envvar=_from("MAX_TRACING"), help="Most requests for models without a template that wait at once."
        ),
    ] = 16,
    max_connections: Annotated[
        int,
        typer.Option(
            envvar=_from("MAX_CONNECTIONS"),
            help="Most open connections. Beyond that the client with the most connections loses one.",
        ),
    ] = 1_000,
    body_seconds: Annotated[
        float, typer.Option(envvar=_from("BODY_SECONDS"), help="Longest time for a client to send its request.")
    ] = 10.0,
    write_seconds: Annotated[
        float,
        typer.Option(envvar=_from("WRITE_SECONDS"), help="Longest time in which a client reads nothing of its answer."),
    ] = 20.0,
    workers: Annotated[
        int, typer.Option(envvar=_from("WORKERS"), help="Processes that answer requests on this port.")
    ] = 1,
    threads: Annotated[
        int, typer.Option(envvar=_from("THREADS"), help="Threads of each process that compute answers.")
    ] = 2,
    cached_answers_bytes: Annotated[
        int, typer.Option(envvar=_from("CACHED_ANSWERS_BYTES"), help="Memory for finished answers.")
    ] = 64_000_000,
    cached_networks_bytes: Annotated[
        int,
        typer.Option(envvar=_from("CACHED_NETWORKS_BYTES"), help="Memory for networks that were requested by name."),
    ] = 64_000_000,
    cached_predictions_bytes: Annotated[
        int,
        typer.Option(
            envvar=_from("CACHED_PREDICTIONS_BYTES"),
            help="Memory for prepared predictions, which answer other clocks of the same GPU quickly.",
        ),
    ] = 128_000_000,
    drain_seconds: Annotated[
        float, typer.Option(envvar=_from("DRAIN_SECONDS"), help="Time for running requests to finish after SIGTERM.")
    ] = 10.0,
    log_level: Annotated[str, typer.Option(envvar=_from("LOG_LEVEL"), help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve predictions over HTTP, and a web page.

    Every option can also be set by an environment variable, such as JOULECAST_SERVE_PORT for --port.
    """
    if not all(map(find_spec, ("fastapi", "orjson", "uvicorn"))):
        raise MissingDependencyError("the service needs fastapi, orjson and uvicorn", hint=with_extra("service"))
    from ..service import Settings
    from ..service.server import serve as run

    settings = Settings(
        host=host,
        port=port,
        tokens=_tokens(tokens_file),
        cors_origins=tuple(cors_origin or ()),
        root_path=root_path,
        proxies=tuple(proxy or ()),
        max_body_bytes=max_body_bytes,
        max_bodies_bytes=max_bodies_bytes,
        max_batch=max_batch,
        max_operations=max_operations,
        max_choices=max_choices,
        max_work=max_work,
        max_seconds=max_seconds,
        max_waiting=max_waiting,
        max_tracing=max_tracing,
        max_connections=max_connections,
        body_seconds=body_seconds,
        write_seconds=write_seconds,
        workers=workers,
        threads=threads,
        cached_answers_bytes=cached_answers_bytes,
        cached_networks_bytes=cached_networks_bytes,
        cached_predictions_bytes=cached_predictions_bytes,
        extraction=extraction,
        follow=tuple(follow or ()),
        follow_seconds=follow_seconds,
        drain_seconds=drain_seconds,
        log_level=log_level,
    )
    run(settings, lambda url: typer.echo(f"joulecast serves {url} (Ctrl-C stops it)"))


def _tokens(file: Path | None) -> tuple[str, ...]:
    """Read the tokens from a file or a variable. Arguments would show them to every user of the machine."""
    if file is None:
        return tuple(os.environ.get(_from("TOKENS"), "").split())
    try:
        tokens = tuple(file.read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable("the file with the tokens cannot be read", file, error) from error
    if not tokens:
        raise InputError("the file with the tokens is empty", given=str(file), hint="write one token per line")
    return tokens
