"""Web servers that keep zoo entries, for tests."""

import contextlib
import http.server
import threading


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
