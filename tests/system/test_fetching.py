"""Servers that misbehave: they get no token, and take no more time and memory than is allowed."""

import contextlib
import itertools
import socket
import threading
import time
from urllib.request import Request

import pytest

import joulecast
from joulecast.errors import ServiceError, TrackingError, ZooError
from joulecast.system.limits import fetch, within
from joulecast.zoo.places import TOKEN, HttpPlace

SECRET = "a-token-that-is-nobody-elses"  # noqa: S105  # made up


class Server:
    """Sends the pieces that a function yields to every client, and remembers what it was asked."""

    def __init__(self, pieces):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._pieces, self.asked, self._is_closing = pieces, [], False
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection, contextlib.suppress(OSError):
                    self.asked.append(connection.recv(100_000))
                    for piece in itertools.takewhile(lambda _: not self._is_closing, self._pieces()):
                        connection.sendall(piece)

    def close(self):
        self._is_closing = True
        self._socket.close()
        # Closing alone does not wake a thread that waits in accept().
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", int(self.url.rsplit(":", 1)[1])), timeout=1).close()
        self._thread.join(10)


@pytest.fixture
def served():
    servers = []

    def serve(pieces):
        servers.append(Server(pieces))
        return servers[-1]

    yield serve
    for server in servers:
        server.close()


def request(server):
    return Request(server.url)  # noqa: S310  # our own


def endless(piece, every_s=0.02):
    def pieces():
        while True:
            yield piece
            time.sleep(every_s)

    return pieces


def whole(head, body=b""):
    return lambda: [head + f"\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body]


def after(head, pieces):
    def all_of_it():
        yield head
        yield from pieces()

    return all_of_it


OK = b"HTTP/1.1 200 OK"
SLOW = {
    "nothing": endless(b""),
    "a dripping head": after(OK, endless(b"x")),
    "headers without end": after(OK + b"\r\n", endless(b"X-A: b\r\n", 0.05)),
    "continues without end": endless(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a dripping body": after(OK + b"\r\nContent-Length: 900\r\n\r\n", endless(b"x")),
    "dripping chunks": after(OK + b"\r\nTransfer-Encoding: chunked\r\n\r\n", endless(b"1\r\nx\r\n")),
}


@pytest.mark.parametrize("slow", SLOW)
def test_one_deadline_for_all(served, slow):
    server = served(SLOW[slow])
    with pytest.raises(TimeoutError, match=r"within 0\.5 s"):
        fetch(request(server), seconds=0.5, most_bytes=1000)


def test_no_more_than_is_allowed(served):
    for head in (b"\r\nContent-Length: 99999999999\r\n\r\n", b"\r\n\r\n"):
        with pytest.raises(ValueError, match="more than"):
            fetch(request(served(after(OK + head, endless(b"x" * 500, 0)))), seconds=30, most_bytes=1000)


def test_what_is_cut_off_is_no_answer(served):
    with pytest.raises(Exception, match="IncompleteRead"):
        fetch(request(served(lambda: [OK + b"\r\nContent-Length: 90\r\n\r\nshort"])), seconds=60, most_bytes=1000)


def test_the_token_of_a_client_goes_to_its_service_only(served):
    other = served(whole(OK, b"{}"))
    location = other.url.replace("127.0.0.1", "localhost").encode()
    service = served(whole(b"HTTP/1.1 302 Found\r\nLocation: " + location + b"/v1/version"))
    with pytest.raises(ServiceError, match="refuses") as caught:
        joulecast.Client(service.url, token=SECRET).version()
    assert caught.value.status == 302
    assert SECRET.encode() in service.asked[0]
    assert other.asked == []


def test_the_token_of_a_zoo_goes_to_its_host_only(served, monkeypatch):
    monkeypatch.setenv(TOKEN, SECRET)
    other = served(whole(OK, b"found"))
    zoo = served(whole(b"HTTP/1.1 302 Found\r\nLocation: " + other.url.encode() + b"/x"))
    assert HttpPlace(zoo.url).read("index.json", 1000) == b"found"
    assert SECRET.encode() in zoo.asked[0]
    assert SECRET.encode() not in other.asked[0]


@pytest.mark.parametrize("where", ["ftp://127.0.0.1/x", "file:///etc/passwd", "data:,x"])
def test_other_schemes_are_not_followed(served, where):
    zoo = served(whole(b"HTTP/1.1 302 Found\r\nLocation: " + where.encode()))
    with pytest.raises(ZooError):
        HttpPlace(zoo.url).read("index.json", 1000)


@pytest.mark.parametrize(
    "body", [b"", b"3", b"[" * 100_000, b'{"type": 1}', b'{"Prediction": {"operations": 1}}', b"9" * 5000, b"\xff"]
)
def test_incomplete_answers_are_refused(served, body):
    service = served(whole(OK, body))
    # The connection of a server that sends more than was asked for may break before all of it is read.
    with pytest.raises(ServiceError, match=r"not an answer of a joulecast service|does not answer"):
        joulecast.Client(service.url).predict("resnet18", (1, 3, 64, 64), "A30")


def test_a_deadline_for_what_others_do():
    assert within(30, lambda: 7) == 7
    with pytest.raises(KeyError, match="its own"):
        within(30, lambda: {}["its own"])
    with pytest.raises(TimeoutError, match=r"within 0\.1 s"):
        within(0.1, threading.Event().wait)


def test_a_dripping_registry_has_a_deadline(served, monkeypatch):
    pytest.importorskip("mlflow")
    from joulecast.zoo import registry

    server = served(after(OK + b"\r\nContent-Length: 900\r\n\r\n", endless(b"x", 0.1)))
    monkeypatch.setattr(registry, "_SECONDS", 0.5)
    with pytest.raises(TrackingError, match=r"no complete answer within 0\.5 s"):
        registry.registry_folder("models:/mine@champion", server.url)
