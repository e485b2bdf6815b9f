"""A webhook on this machine for tests."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer


class Receiver(HTTPServer):
    """What it was sent as `taken`, and what it answers."""

    answer = 200

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Taking)
        self.taken = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/hook/s3cret"

    def told(self):
        """Severity, what and dataset of each alert so far; forgets them."""
        told = [(alert["severity"], alert["what"], alert["dataset"]) for alert in self.taken]
        self.taken.clear()
        return told


class _Taking(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append(json.loads(body))
        self.send_response(self.server.answer)
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def receiving():
    """A receiver that serves until the block ends."""
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
