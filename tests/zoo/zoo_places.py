"""Places that keep zoo entries, for tests: a web server and a bucket of S3."""

import contextlib
import hashlib
import http.server
import itertools
import threading
from urllib.parse import parse_qs, unquote, urlsplit


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(handler):
    """The address of a server in a thread of this process."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def answering(status, location):
    class Answering(QuietHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Location", location)
            self.end_headers()

    return Answering


class Bucket(QuietHandler):
    """The requests of S3 that are needed, for boto3 to talk to."""

    protocol_version = "HTTP/1.1"  # With HTTP/1.0, boto3 waits a second for permission to send.
    wbufsize = -1  # An answer is sent at once; a body sent after its head would wait 40 ms for an acknowledgement.
    objects: dict[str, bytes]

    def handle_expect_100(self):
        allowed = super().handle_expect_100()
        self.wfile.flush()
        return allowed

    versions = itertools.count()
    writing = threading.Lock()

    def _etag(self):
        return f'"{hashlib.md5(self.objects[self._key()]).hexdigest()}"'  # noqa: S324  # as S3 computes it

    def _key(self):
        return unquote(urlsplit(self.path).path).removeprefix("/bucket").lstrip("/")

    def _answer(self, status, body=b"", etag=""):
        self.send_response(status)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if "list-type" in query:
            keys = "".join(
                f"<Contents><Key>{key}</Key></Contents>" for key in self.objects if key.startswith(query["prefix"][0])
            )
            listing = f"<ListBucketResult><IsTruncated>false</IsTruncated>{keys}</ListBucketResult>"
            self._answer(200, listing.encode())
        elif self._key() in self.objects:
            self._answer(200, self.objects[self._key()], self._etag())
        elif "secret" in self.path:
            self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def do_PUT(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            size, rest = data.split(b"\r\n", 1)
            data = rest[: int(size.split(b";")[0], 16)]
        with self.writing:
            there = self._key() in self.objects
            taken = self.headers.get("If-None-Match") and there
            wanted = self.headers.get("If-Match")
            if taken or (wanted and not (there and wanted == self._etag())):
                self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            else:
                self.objects[self._key()] = data
                self._answer(200)

    def do_DELETE(self):
        self.objects.pop(self._key(), None)
        self._answer(204)
