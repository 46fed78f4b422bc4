"""Settings: everything about the service that can be configured, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from ipaddress import ip_network
from typing import Self

from ..errors import InputError

_LEAST = {"port": 0, "cached_answers_bytes": 0, "cached_networks_bytes": 0, "cached_predictions_bytes": 0}
_LAST_PORT = 65535
_SHARED = ("cached_answers_bytes", "cached_networks_bytes", "cached_predictions_bytes")


@dataclass(frozen=True)
class Settings:
    """Options and limits of the service.

    Args:
        host: Address to listen on. The default cannot be reached from other machines.
        port: Port to listen on; 0 for any free one.
        tokens: Bearer tokens that clients may use; empty to let everybody in.
        cors_origins: Origins of other web pages that may send requests; empty for none.
        root_path: Prefix that a proxy strips from every path, such as "/joulecast".
        proxies: Addresses or networks of proxies, whose X-Forwarded-For says which client asks; empty for none.
        max_body_bytes: Most bytes in the body of a request.
        max_bodies_bytes: Most bytes in all large bodies that have not been answered; one client may use a quarter.
        max_batch: Most predictions in one batch.
        max_operations: Most different operations in a network.
        max_choices: Most GPUs x clocks x precisions x batch sizes in a sweep.
        max_work: Most operations x GPUs x clocks of all precisions and batch sizes of a sweep together.
        max_seconds: Longest time until an answer, including the time that it waits.
        max_waiting: Most requests that wait for a thread or are computed. Beyond that, the client with the most of them
            loses its newest one.
        max_tracing: Most requests for models without a template, which are traced one after the other.
        max_connections: Most open connections, or fewer where the limit on open files is lower. Beyond that, the
            address with the most connections loses one.
        body_seconds: Longest time for the head of a request to arrive, and then for its body.
        write_seconds: Longest time in which a client reads nothing of its answer.
        workers: Number of processes that answer requests on the same port.
        threads: Number of threads of each process that compute answers.
        cached_answers_bytes: Memory for finished answers.
        cached_networks_bytes: Memory for networks that were requested by name.
        cached_predictions_bytes: Memory for networks prepared for a GPU: everything that does not depend on the clock.
        extraction: Whether models without a template are extracted with torch, where it is installed.
        follow: Places of predictors that may change, as `joulecast zoo pull` takes them, such as
            "models:/joulecast-a30-inference@champion". Each new version takes its name.
        follow_seconds: Seconds between two checks of these places.
        watch_seconds: Seconds between two checks of the zoo on this machine.
        drain_seconds: Time for running requests to finish after a signal to stop.
        log_level: Level of the log on stderr: debug, info, warning or error.

    Raises:
        InputError: A value is out of range or has the wrong form.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    tokens: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    root_path: str = ""
    proxies: tuple[str, ...] = ()
    max_body_bytes: int = 4_000_000
    max_bodies_bytes: int = 64_000_000
    max_batch: int = 5_000
    max_operations: int = 5_000
    max_choices: int = 10_000
    max_work: int = 5_000_000
    max_seconds: float = 60.0
    max_waiting: int = 256
    max_tracing: int = 16
    max_connections: int = 1_000
    body_seconds: float = 10.0
    write_seconds: float = 20.0
    workers: int = 1
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
                "a token is too short, or has characters that a header cannot hold",
                given="(not shown)",
                allowed="at least 16 printable ASCII characters without spaces",
                hint="python3 -c 'import secrets; print(secrets.token_urlsafe())' makes one",
            )
        if self.root_path and not (self.root_path.startswith("/") and not self.root_path.endswith("/")):
            raise InputError(
                "a root path begins with a slash and ends without",
                given=repr(self.root_path),
                allowed="such as /joulecast",
            )
        for proxy in self.proxies:
            try:
                ip_network(proxy, strict=False)
            except ValueError as error:
                raise InputError(
                    "a proxy is named by its address",
                    given=f"{proxy!r}: {error}",
                    allowed="such as 10.0.0.7, or a network such as 10.0.0.0/8",
                ) from error
        if self.log_level not in LOG_LEVELS:
            raise InputError("unknown log level", given=repr(self.log_level), allowed=", ".join(LOG_LEVELS))

    def of_one_worker(self) -> Self:
        """The settings of one process of several: its part of the memory for caches, and nothing to pull.

        The process that starts the others pulls the followed predictors, once for all of them.
        """
        share = {name: getattr(self, name) // self.workers for name in _SHARED}
        return replace(self, follow=(), **share)


LOG_LEVELS = ("debug", "info", "warning", "error")
