"""All databases on PostgreSQL, MLflow behind a server with users: a run whose database server crashes."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import dagster as dg
import pytest
import yaml
from toy_project import product, until

sys.path.insert(0, str(Path(__file__).parents[1] / "resources"))
from postgres_server import PostgresServer, free_port, postgres_server

from trainworthy.resources.attempt_table import AttemptTable, database_url
from trainworthy.resources.mlflow import Tracking
from trainworthy.resources.settings import DATABASE

USER, PASSWORD = "admin", "a long password of tests"


@contextlib.contextmanager
def mlflow_server(database: PostgresServer, folder: Path) -> Iterator[str]:
    """The address of MLflow's server with its own users, on loopback, whose two databases are PostgreSQL's."""
    port, users = free_port(), database.url("mlflow_users").replace("%", "%%")
    (folder / "users.ini").write_text(
        f"[mlflow]\ndefault_permission = NO_PERMISSIONS\ndatabase_uri = {users}\nadmin_username = {USER}\n"
        f"admin_password = {PASSWORD}\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    environment = {
        **os.environ, "MLFLOW_AUTH_CONFIG_PATH": str(folder / "users.ini"),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "of tests",
    }  # fmt: skip
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--app-name", "basic-auth", "--backend-store-uri", database.url("mlflow"), "--artifacts-destination",
        str(folder / "artifacts"),
    ]  # fmt: skip
    with (folder / "mlflow.log").open("w") as log:
        # A process of its own group: uvicorn has workers.
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        until(lambda: server.poll() is not None or _answers(address), 240, "until MLflow's server answers")
        assert server.poll() is None, (folder / "mlflow.log").read_text()[-3000:]
        yield address
    finally:
        os.killpg(server.pid, 15)
        server.wait()


def _answers(address: str) -> bool:
    time.sleep(0.5)
    with contextlib.suppress(OSError), urlopen(f"{address}/health", timeout=5):
        return True
    return False


@pytest.mark.slow
def test_run_on_postgresql_goes_on_after_its_server_crashed_and_all_of_it_is_there(fresh, tmp_path, monkeypatch):
    pytest.importorskip("dagster_postgres", reason="dagster-postgres is not installed: make setup")
    settings = yaml.safe_load((product() / "dagster.yaml").read_text())
    settings["storage"] = {"postgres": {"postgres_url": {"env": "DAGSTER_DATABASE"}}}
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(yaml.safe_dump(settings))
    with postgres_server() as server:
        server.execute(*(f"CREATE DATABASE {name}" for name in ("trainworthy", "mlflow", "mlflow_users")))
        url = server.url("trainworthy")
        table = AttemptTable(database_url(url))
        # Dagster sends a statement with values in it that psycopg 3 refuses.
        services = {DATABASE: url, "DAGSTER_DATABASE": url.replace("postgresql:", "postgresql+psycopg2:")}
        with mlflow_server(server, tmp_path) as address:
            services |= {"DAGSTER_HOME": str(home), "MLFLOW_TRACKING_URI": address}
            with pytest.raises(HTTPError, match="401"):
                urlopen(f"{address}/api/2.0/mlflow/experiments/search?max_results=1")
            known = {"MLFLOW_TRACKING_USERNAME": USER, "MLFLOW_TRACKING_PASSWORD": PASSWORD}
            process = fresh.start(fresh.command("preflight_toy"), **services, **known)
            until(lambda: table.rows(only_open=True) or process.poll() is not None, 240, "until a worker is started")
            assert process.poll() is None, process.communicate()[0][-3000:]
            server.crash()
            server.start()
            out, _ = process.communicate(timeout=400)
            assert process.returncode == 0, out[-3000:]
            for name, value in (services | known).items():
                monkeypatch.setenv(name, value)
            monkeypatch.setenv("TRAINWORTHY_VAR", str(fresh.var))
            run_id = _dagster_has(home)
            (experiment,) = Tracking().client.search_experiments(filter_string="name = 'toy'")
            (tracked,) = Tracking().client.search_runs([experiment.experiment_id])
            assert (tracked.data.tags["dagster/run_id"], tracked.info.status) == (run_id, "FINISHED")
            # The report went through the server to the folder that only it knows.
            assert [one.path for one in Tracking().client.list_artifacts(tracked.info.run_id) if "report" in one.path]
            assert any((tmp_path / "artifacts").rglob("report.html"))
            assert {one.started.charged_to.run_id for one in table.rows()} == {run_id}
            assert {one.ended.outcome for one in table.rows() if one.ended} == {"answered"}
            # Nothing lies in SQLite, and without a user nothing is tracked.
            assert not (fresh.var / "dagster" / "history").exists()
            assert not (fresh.var / "attempts.db").exists()
            assert not (fresh.var / "mlflow" / "mlflow.db").exists()
            monkeypatch.delenv("MLFLOW_TRACKING_USERNAME")
            with pytest.raises(Exception, match="MLflow's server refuses a request without a user") as refused:
                Tracking().reach()
            assert "MLFLOW_TRACKING_USERNAME" in str(refused.value)


def _dagster_has(home: Path) -> str:
    """The one run, which succeeded with an event for each of its three steps."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        (run,) = instance.get_runs()
        assert run.status.value == "SUCCESS"
        kind = dg.DagsterEventType.ASSET_MATERIALIZATION
        assert len(instance.all_logs(run.run_id, of_type=kind)) == 3
        return run.run_id
