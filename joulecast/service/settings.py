"""Settings: everything about the service that can be configured, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from ipaddress import ip_network
from typing import Any

from ..errors import InputError

_LEAST = {"port": 0, "cached_answers_bytes": 0}
_LAST_PORT = 65535


def _setting(default: Any, words: str) -> Any:
    """A field with its default, and what it is."""
    return field(default=default, metadata={"help": words})


@dataclass(frozen=True)
class Settings:
    """Options and limits of the service.

    Each field says what it is, in the words of `joulecast serve --help`, too.

    Raises:
        InputError: A value is out of range or has the wrong form.
    """

    host: str = _setting("127.0.0.1", "Address to listen on. The default cannot be reached from other machines.")
    port: int = _setting(8000, "Port to listen on; 0 for any free one.")
    tokens: tuple[str, ...] = _setting((), "Bearer tokens that clients may use; empty to let everybody in.")
    cors_origins: tuple[str, ...] = _setting((), "Origin of another web page that may send requests.")
    root_path: str = _setting("", 'Prefix that a proxy strips from every path, such as "/joulecast".')
    proxies: tuple[str, ...] = _setting(
        (), "Address or network of a proxy, whose X-Forwarded-For says which client asks."
    )
    max_body_bytes: int = _setting(4_000_000, "Most bytes in the body of a request.")
    max_bodies_bytes: int = _setting(64_000_000, "Most bytes in all large bodies that have not been answered.")
    max_batch: int = _setting(5_000, "Most networks in one question.")
    max_operations: int = _setting(5_000, "Most different operations in a network.")
    max_choices: int = _setting(10_000, "Most GPUs x clocks x precisions x batch sizes in a sweep.")
    max_work: int = _setting(
        5_000_000, "Most operations x GPUs x clocks of all precisions and batch sizes of a sweep together."
    )
    max_seconds: float = _setting(60.0, "Longest time until an answer, including the time that it waits.")
    max_waiting: int = _setting(
        256,
        "Most requests that wait for a thread or are computed. Beyond that, the client with the most of them loses its "
        "newest one.",
    )
    max_connections: int = _setting(1_000, "Most open connections. Requests on further ones are answered with 503.")
    body_seconds: float = _setting(10.0, "Longest time for the body of a request to arrive.")
    threads: int = _setting(2, "Most requests of one client that are computed at once; of all clients, 16.")
    cached_answers_bytes: int = _setting(64_000_000, "Memory for finished answers.")
    calibrations: str = _setting(
        "", "Folder with files of `joulecast calibrate`. Requests name them, without .json, as their calibration."
    )
    extraction: bool = _setting(
        True, "Whether models without a template are extracted with torch, where it is installed."
    )
    watch_seconds: float = _setting(2.0, "Seconds between two checks of the zoo on this machine.")
    drain_seconds: float = _setting(10.0, "Time for running requests to finish after a signal to stop.")
    log_level: str = _setting("info", "Level of the log on stderr: debug, info, warning or error.")

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            least = _LEAST.get(each.name, 1 if each.type == "int" else 0)
            if each.type in ("int", "float") and not (value >= least if each.type == "int" else value > 0):
                raise InputError(
                    f"the setting {each.name} is too small",
                    given=value,
                    allowed=f"at least {least}" if each.type == "int" else "more than 0",
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


LOG_LEVELS = ("debug", "info", "warning", "error")
