"""State in a bucket: what one machine trained and judged is another one's, which begins with an empty folder."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from toy_project import FIRST, Toy, until

from tests import s3_servers
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.log import VerdictLog
from trainworthy.lifecycle.protocol.records import STEPS
from trainworthy.lifecycle.storage.durable.bucket import Bucket
from trainworthy.lifecycle.storage.records import StateRecords, record_sha256
from trainworthy.lifecycle.storage.shared.bucket import BucketState

sys.path.insert(0, str(Path(__file__).parents[1] / "resources"))
from postgres_server import free_port

CLI = ("-m", "trainworthy.pipeline.cli")


@contextlib.contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """The address of MLflow's server on loopback, without users."""
    folder.mkdir()
    port = free_port()
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts"),
    ]  # fmt: skip
    with (folder / "mlflow.log").open("w") as written:
        # A process of its own group: uvicorn has workers.
        server = subprocess.Popen(command, stdout=written, stderr=written, start_new_session=True)
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        time.sleep(0.5)
        with contextlib.suppress(OSError), urlopen(f"{address}/health", timeout=5):
            return True
        return server.poll() is not None

    try:
        until(answers, 240, "until MLflow's server answers")
        assert server.poll() is None, (folder / "mlflow.log").read_text()[-3000:]
        yield address
    finally:
        os.killpg(server.pid, 15)
        server.wait()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_verdict_of_one_machine_is_shown_reused_and_followed_on_another(fresh, tmp_path, monkeypatch):
    with s3_servers.moto_server() as server, mlflow_server(tmp_path / "registry") as registry:
        place = f"{s3_servers.reached(monkeypatch, server)}/team"
        shared = {"TRAINWORTHY_STATE": place, "MLFLOW_TRACKING_URI": registry}
        done = fresh.run(intent=FIRST, **shared)
        assert done.code == 0, done.out[-4000:]
        assert not (fresh.var / "records").exists()
        assert not (fresh.var / "verdicts").exists()
        store = BucketState(Bucket(place))
        verdict = StateRecords(store).of_run("toy", "promotion", done.run_id)
        assert verdict is not None
        (entry,) = log.read(VerdictLog(store, "toy"))
        assert (entry.verdict_sha256, entry.token) == (record_sha256(verdict), 1)

        second = Toy(fresh.root, tmp_path / "second" / "state")
        told = second.call(*CLI, "verdict", "toy", **shared)
        assert told.code == 0, told.out
        assert f"toy: {entry.action.upper()}" in told.out
        report = f"reports/toy/{done.run_id}.html"
        assert (second.var / report).read_bytes() == (fresh.var / report).read_bytes()

        again = second.run(intent=FIRST, **shared)
        assert again.code == 0, again.out[-4000:]
        shown = second.materialized(again.run_id)
        # The dataset's bytes are DVC's, and fetched anew.
        assert {step for step in STEPS if shown[step]["lineage/reused"] == "true"} == set(STEPS[1:])
        assert StateRecords(store).of_run("toy", "promotion", again.run_id) == verdict
        assert log.read(VerdictLog(store, "toy")) == (entry,)
        for pattern in ("snapshots/toy/*/*.parquet", "training/toy/*/full/artifact/manifest.json"):
            found = {path.relative_to(fresh.var): path.read_bytes() for path in fresh.var.glob(pattern)}
            assert found
            assert {name: (second.var / name).read_bytes() for name in found} == found
        assert not list(second.var.glob("training/toy/*/*/job.json"))

        # Judged anew by the second machine, with the splits and the artifact that it fetched.
        second.edit("use_case.yaml", "purpose: improve", "purpose: refresh")
        later = second.run(intent=FIRST, **shared)
        assert later.code == 0, later.out[-4000:]
        shown = second.materialized(later.run_id)
        assert {step for step in STEPS if shown[step]["lineage/reused"] == "true"} == set(STEPS[:-1])
        judged = StateRecords(store).of_run("toy", "promotion", later.run_id)
        assert judged is not None
        _, newest = log.read(VerdictLog(store, "toy"))
        # Each judgement has taken the lease once, also the one that was reused.
        assert (newest.verdict_sha256, newest.token) == (record_sha256(judged), 3)
        told = fresh.call(*CLI, "verdict", "toy", **shared)
        assert f"toy: {newest.action.upper()}" in told.out
        assert later.run_id in told.out
