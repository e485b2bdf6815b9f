"""The champion behind `mlflow models serve`, asked over HTTP: answers, and words for what is refused."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from toy_project import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(trained, tmp_path_factory) -> Iterator[tuple[str, Path]]:
    """Address of the served champion, and the folder of its artifact; ended by its process group."""
    toy = trained.toy.copied(tmp_path_factory.mktemp("served"))
    with toy.tracking() as tracking:
        champion, uri = tracking.champion("toy"), tracking.uri
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", "models:/toy@champion"]
    server = subprocess.Popen(
        [*command, "--env-manager", "local", "-h", "127.0.0.1", "-p", port], cwd=toy.root.parent,
        env=os.environ | {"MLFLOW_TRACKING_URI": uri, "MLFLOW_DISABLE_TELEMETRY": "true"}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: server.poll() is not None or answers(port), 120, "until the server answers")
        assert server.poll() is None
        yield f"http://127.0.0.1:{port}/invocations", champion.artifact
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


def answers(port: str) -> bool:
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=2).status == 200
    except OSError:
        return False


def ask(address: str, *rows: dict) -> tuple[int, dict]:
    """Status and answer of a request with these rows."""
    body = json.dumps({"dataframe_records": rows}).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_served_champion_answers_as_its_golden_requests_say(served):
    from trainworthy.lifecycle.artifact import artifact_kind
    from trainworthy.lifecycle.golden import read_golden

    address, artifact = served
    golden = read_golden(artifact, artifact_kind(artifact))
    assert golden is not None
    status, told = ask(address, *golden.requests.to_dict("records"))
    assert status == 200, told
    np.testing.assert_allclose(told["predictions"], golden.answers, atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "told"),
    [({"x1": "a text"}, "x1"), ({"x1": None, "shop": 3}, "shop"), ({"x2": ...}, "missing inputs ['x2']")],
)
def test_served_champion_refuses_what_the_contract_does_not_allow_in_words(served, changed, told):
    row = {
        name: value for name, value in ({"shop": "north", "x1": 0.5, "x2": 1.0} | changed).items() if value is not ...
    }
    status, answer = ask(served[0], row)
    assert (status, told in answer["message"]) == (400, True), answer
    assert "Traceback" not in json.dumps(answer)
