"""Settings: everything about the service that may be configured, checked when made."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..errors import InputError

_LEAST = {"port": 0, "cached_answers_bytes": 0, "cached_networks_bytes": 0, "cached_predictions_bytes": 0}
_LAST_PORT = 65535


@dataclass(frozen=True)
class Settings:
    """How the service runs, and what it refuses.

    Args:
        host: Address to listen on; the default is not reachable from outside.
        port: To listen on; 0 for any free one.
        tokens: Bearer tokens that are let in; empty for everybody.
        cors_origins: Origins of other web pages that may ask; empty for none.
        root_path: What a proxy strips off the front of every path, such as "/joulecast".
        max_body_bytes: Most bytes in the body of a request.
        max_bodies_bytes: Most bytes in all large bodies that have not been answered; of one client, a quarter of that.
        max_batch: Predictions in one batch.
        max_operations: Different operations of one network.
        max_choices: GPUs x clocks x precisions of one sweep.
        max_seconds: Seconds that an answer may take, waiting included.
        max_waiting: Requests that wait for a thread, or have one, at once. Of more, the client with most of them loses
            its newest one.
        max_connections: Connections at once, as far as the limit on open files allows them; where there are more, the
            address that has most of them loses one.
        body_seconds: Within which the head, and then the body, of a request must have come.
        write_seconds: Within which a client must take some of its answer.
        threads: Threads that compute answers.
        cached_answers_bytes: Memory for finished answers.
        cached_networks_bytes: Memory for networks that were asked for by name.
        cached_predictions_bytes: Memory for networks that were asked for on a GPU, with what no clock changes about
            them.
        extraction: Whether models without a template are looked into with torch, where it is installed.
        follow: Place of predictors that may change, as `joulecast zoo pull` takes it, such as
            "models:/joulecast-a30-inference@champion": they stand for their names, whatever is there by then.
        follow_seconds: Seconds between two looks at what is followed.
        watch_seconds: Seconds between two looks at the zoo on this machine.
        drain_seconds: Seconds that requests have to finish after a signal to stop.
        log_level: Level of the log on stderr: debug, info, warning or error.

    Raises:
        InputError: A value that cannot be.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    tokens: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    root_path: str = ""
    max_body_bytes: int = 4_000_000
    max_bodies_bytes: int = 64_000_000
    max_batch: int = 5_000
    max_operations: int = 5_000
    max_choices: int = 10_000
    max_seconds: float = 60.0
    max_waiting: int = 256
    max_connections: int = 1_000
    body_seconds: float = 10.0
    write_seconds: float = 20.0
    threads: int = 2
    cached_answers_bytes: int = 64_000_000
    cached_networks_bytes: int = 64_000_000
    cached_predictions_bytes: int = 128_000_000
    extraction: bool = True
    follow: tuple[str, ...] = ()
    follow_seconds: float = 60.0
    watch_seconds: float = 2.0
    drain_seconds: float = 10.0
    log_level: str = "info"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = _LEAST.get(field.name, 1 if field.type == "int" else 0)
            if field.type in ("int", "float") and not (value >= least if field.type == "int" else value > 0):
                raise InputError(
                    f"the setting {field.name} is too small",
                    given=value,
                    allowed=f"at least {least}" if field.type == "int" else "more than 0",
                )
        if self.port > _LAST_PORT:
            raise InputError("there is no such port", given=self.port, allowed=f"0 to {_LAST_PORT}; 0 for any free one")
        if any(
            len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token for token in self.tokens
        ):
            raise InputError(
                "a token is too easy to guess, or cannot stand in a header",
                given="(not shown)",
                allowed="at least 16 printable ASCII characters without spaces",
                hint="python3 -c 'import secrets; print(secrets.token_urlsafe())' makes one",
            )
        if self.root_path and not (self.root_path.startswith("/") and not self.root_path.endswith("/")):
            raise InputError("a root path begins with a slash and ends without", given=repr(self.root_path))
        if self.log_level not in LOG_LEVELS:
            raise InputError("unknown log level", given=repr(self.log_level), allowed=", ".join(LOG_LEVELS))


LOG_LEVELS = ("debug", "info", "warning", "error")
