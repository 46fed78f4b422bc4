"""`joulecast serve`."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ..errors import InputError, MissingDependencyError

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
            help=f"File with a bearer token per line that are let in; or ${_PREFIX}TOKENS, with spaces between.",
        ),
    ] = None,
    cors_origin: Annotated[
        list[str] | None, typer.Option(envvar=_from("CORS_ORIGINS"), help="Origin of another page that may ask.")
    ] = None,
    root_path: Annotated[str, typer.Option(envvar=_from("ROOT_PATH"), help="What a proxy strips off the path.")] = "",
    follow: Annotated[
        list[str] | None,
        typer.Option(
            envvar=_from("FOLLOW"), help="Predictor to pull again and again, such as models:/NAME@champion; repeat it."
        ),
    ] = None,
    follow_seconds: Annotated[
        float, typer.Option(envvar=_from("FOLLOW_SECONDS"), help="Between two looks at what is followed.")
    ] = 60.0,
    extraction: Annotated[
        bool, typer.Option(envvar=_from("EXTRACTION"), help="Look with torch into models that have no template.")
    ] = True,
    max_body_bytes: Annotated[int, typer.Option(envvar=_from("MAX_BODY_BYTES"), help="Of a request.")] = 4_000_000,
    max_bodies_bytes: Annotated[
        int, typer.Option(envvar=_from("MAX_BODIES_BYTES"), help="Of all large requests at once; a quarter for one.")
    ] = 64_000_000,
    max_batch: Annotated[int, typer.Option(envvar=_from("MAX_BATCH"), help="Predictions in one batch.")] = 5_000,
    max_operations: Annotated[
        int, typer.Option(envvar=_from("MAX_OPERATIONS"), help="Different operations of one network.")
    ] = 5_000,
    max_choices: Annotated[
        int, typer.Option(envvar=_from("MAX_CHOICES"), help="GPUs x clocks x precisions of one sweep.")
    ] = 10_000,
    max_seconds: Annotated[float, typer.Option(envvar=_from("MAX_SECONDS"), help="That an answer may take.")] = 60.0,
    max_waiting: Annotated[
        int, typer.Option(envvar=_from("MAX_WAITING"), help="Requests that may wait for a thread.")
    ] = 256,
    max_connections: Annotated[
        int,
        typer.Option(envvar=_from("MAX_CONNECTIONS"), help="Connections at once; of more, whoever has most loses one."),
    ] = 1_000,
    body_seconds: Annotated[
        float, typer.Option(envvar=_from("BODY_SECONDS"), help="Within which a request must have come.")
    ] = 10.0,
    write_seconds: Annotated[
        float, typer.Option(envvar=_from("WRITE_SECONDS"), help="Within which a client must take some of its answer.")
    ] = 20.0,
    threads: Annotated[int, typer.Option(envvar=_from("THREADS"), help="That compute.")] = 2,
    cached_answers_bytes: Annotated[
        int, typer.Option(envvar=_from("CACHED_ANSWERS_BYTES"), help="Memory for finished answers.")
    ] = 64_000_000,
    cached_networks_bytes: Annotated[
        int,
        typer.Option(envvar=_from("CACHED_NETWORKS_BYTES"), help="Memory for networks that were asked for by name."),
    ] = 64_000_000,
    cached_predictions_bytes: Annotated[
        int,
        typer.Option(
            envvar=_from("CACHED_PREDICTIONS_BYTES"),
            help="Memory for networks that stay ready for other clocks of a GPU.",
        ),
    ] = 128_000_000,
    drain_seconds: Annotated[
        float, typer.Option(envvar=_from("DRAIN_SECONDS"), help="That requests have to finish after SIGTERM.")
    ] = 10.0,
    log_level: Annotated[str, typer.Option(envvar=_from("LOG_LEVEL"), help="debug, info, warning or error.")] = "info",
) -> None:
    """Answer over HTTP, and serve the page: the same answers for schedulers, notebooks and people.

    Every option may be given as a variable of the environment, JOULECAST_SERVE_PORT for --port.
    """
    if not all(map(find_spec, ("fastapi", "orjson", "uvicorn"))):
        raise MissingDependencyError(
            "the service needs fastapi, orjson and uvicorn", hint="pip install 'joulecast[service]'"
        )
    from ..service import Settings
    from ..service.server import make_server

    settings = Settings(
        host=host,
        port=port,
        tokens=_tokens(tokens_file),
        cors_origins=tuple(cors_origin or ()),
        root_path=root_path,
        max_body_bytes=max_body_bytes,
        max_bodies_bytes=max_bodies_bytes,
        max_batch=max_batch,
        max_operations=max_operations,
        max_choices=max_choices,
        max_seconds=max_seconds,
        max_waiting=max_waiting,
        max_connections=max_connections,
        body_seconds=body_seconds,
        write_seconds=write_seconds,
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
    make_server(settings).run()


def _tokens(file: Path | None) -> tuple[str, ...]:
    """Tokens stand in a file or a variable, never among the arguments, which everybody on the machine can list."""
    if file is None:
        return tuple(os.environ.get(_from("TOKENS"), "").split())
    try:
        tokens = tuple(file.read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("the file with the tokens cannot be read", given=str(file), hint=str(error)) from error
    if not tokens:
        raise InputError("the file with the tokens is empty", given=str(file), hint="write a token per line")
    return tokens
