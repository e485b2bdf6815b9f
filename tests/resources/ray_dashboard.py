"""A server that speaks as the dashboard of Ray's head does, as far as it is asked for versions and nodes."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ray_cluster import SKU

# As Ray 2.60 tells them: one that lives, the head, which has no SKU, and one that has gone.
NODES = [
    {"state": "ALIVE", "resources_total": {"CPU": 2.0, SKU: 1.0}},
    {"state": "ALIVE", "resources_total": {"node:__internal_head__": 1.0}},
    {"state": "DEAD", "resources_total": {"CPU": 2.0, SKU: 1.0}},
]


@contextlib.contextmanager
def dashboard(version: str, nodes: object = NODES) -> Iterator[str]:
    """The address of a server that plays the dashboard, whose `nodes` None it does not tell for as long as it runs."""
    over = threading.Event()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told = {"version": "4", "ray_version": version}
            if self.path.startswith("/api/v0/nodes"):
                if nodes is None:
                    over.wait()
                told = {"result": True, "data": {"result": {"result": nodes}}}
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            over.set()
            server.shutdown()
