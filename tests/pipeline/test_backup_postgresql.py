"""trainworthy backup and restore with all databases on a real PostgreSQL server."""

import os
import signal
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from toy_project import product

sys.path.insert(0, str(Path(__file__).parents[1] / "resources"))
from postgres_server import PostgresServer, postgres_server

from trainworthy.lifecycle.errors import BackupError
from trainworthy.lifecycle.protocol.attempts import ChargedTo, EndedAttempt, StartedAttempt
from trainworthy.pipeline.backup import postgres
from trainworthy.pipeline.backup.places import places
from trainworthy.pipeline.backup.restore import restore_backup
from trainworthy.pipeline.backup.signals import taken_back
from trainworthy.pipeline.backup.take import take_backup
from trainworthy.pipeline.backup.verify import verified
from trainworthy.resources.attempt_table import AttemptTable, attempt_table, database_url
from trainworthy.resources.attempts import this_process
from trainworthy.resources.settings import DATABASE, read_settings

REGISTRY = "REGISTRY_DATABASE"
RUN = "1" * 32


def named(server: PostgresServer, patch: pytest.MonkeyPatch, trainworthy: str, mlflow: str) -> None:
    """The settings of these two databases."""
    patch.setenv(DATABASE, server.url(trainworthy))
    patch.setenv("DAGSTER_DATABASE", server.url(trainworthy).replace("postgresql:", "postgresql+psycopg2:"))
    patch.setenv(REGISTRY, server.url(mlflow))


def models(server: PostgresServer, database: str) -> dict[str, str]:
    """Version of the alias `champion` of each registered model, by MLflow itself."""
    from mlflow import MlflowClient

    client = MlflowClient(registry_uri=server.url(database), tracking_uri=server.url(database))
    return {model.name: str(model.aliases["champion"]) for model in client.search_registered_models()}


def written_by_all(server: PostgresServer, home: Path) -> None:
    """A run of Dagster, an attempt that ended, and a registered model with its alias."""
    from mlflow import MlflowClient

    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.add_run(dg.DagsterRun(job_name="train_toy", run_id=RUN, status=dg.DagsterRunStatus.SUCCESS))
    table = attempt_table(read_settings())
    started = StartedAttempt(
        attempt="a", charged_to=ChargedTo(run_id=RUN, use_case="toy", step="full", identity="i"), job_kind="train",
        stage="full", launcher="local", process=this_process(), device="cpu", world_size=1, from_step=0,
        started_at=1e9,
    )  # fmt: skip
    table.start(started)
    table.end(EndedAttempt(attempt="a", outcome="answered", ended_at=1e9 + 7, seconds=7))
    client = MlflowClient(registry_uri=server.url("mlflow"), tracking_uri=server.url("mlflow"))
    client.create_registered_model("toy")
    version = client.create_model_version("toy", "file:///srv/artifacts/toy")
    client.set_registered_model_alias("toy", "champion", version.version)


@pytest.mark.slow
def test_databases_come_back_whole_or_not_at_all(place, monkeypatch):
    settings = yaml.safe_load((product() / "dagster.yaml").read_text())
    settings["storage"] = {"postgres": {"postgres_url": {"env": "DAGSTER_DATABASE"}}}
    (home := place / "home").mkdir()
    (home / "dagster.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    # Only its name: neither backup nor restore asks the server.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    (artifacts := place / "artifacts").mkdir()
    (artifacts / "model.pt2").write_bytes(b"weights")
    (place / "state" / "reports").mkdir(parents=True)
    (place / "state" / "reports" / "a.html").write_bytes(b"report")
    backup, other = place / "backup", place / "other"
    with postgres_server() as server:
        server.execute(*(f"CREATE DATABASE {name}" for name in ("trainworthy", "mlflow", "trainworthy2", "mlflow2")))
        named(server, monkeypatch, "trainworthy", "mlflow")
        written_by_all(server, home)
        where = places(read_settings(), [REGISTRY], artifacts, [])
        take_backup(read_settings(), where, backup)
        manifest, _ = verified(backup)
        assert sorted(manifest.dumps.values()) == [(REGISTRY,), ("dagster", "attempts")]
        assert "s3cret" not in (backup / "manifest.json").read_text()

        monkeypatch.setenv("TRAINWORTHY_VAR", str(other))
        with pytest.raises(BackupError, match="in use") as caught:
            restore_backup(read_settings(), backup, place / "artifacts2")
        assert isinstance(caught.value.value, list)
        assert len(caught.value.value) == 2
        named(server, monkeypatch, "trainworthy2", "mlflow2")
        with pytest.raises(BackupError, match="no place for them"):
            restore_backup(read_settings(), backup)
        second_fails(monkeypatch, lambda: restore_backup(read_settings(), backup, place / "artifacts2"))
        nothing_is_left(server, place)
        # As docker stop asks.
        second_fails(monkeypatch, lambda: restore_backup(read_settings(), backup, place / "artifacts2"), asked=True)
        nothing_is_left(server, place)

        restore_backup(read_settings(), backup, place / "artifacts2")
        # Nothing is left of what it came from.
        server.execute(*(f"DROP DATABASE {name} WITH (FORCE)" for name in ("trainworthy", "mlflow")))
        with dg.DagsterInstance.from_config(str(home)) as instance:
            assert [(run.run_id, run.status.value) for run in instance.get_runs()] == [(RUN, "SUCCESS")]
        (row,) = AttemptTable(database_url(server.url("trainworthy2"))).rows()
        assert (row.started.charged_to.run_id, row.ended and row.ended.outcome) == (RUN, "answered")
        assert models(server, "mlflow2") == {"toy": "1"}
    assert (place / "artifacts2" / "model.pt2").read_bytes() == b"weights"
    assert (other / "reports" / "a.html").read_bytes() == b"report"


def nothing_is_left(server: PostgresServer, place: Path) -> None:
    assert not (place / "other").exists()
    assert not (place / "artifacts2").exists()
    assert list(place.rglob("*unfinished*")) == []
    for name in ("trainworthy2", "mlflow2"):
        assert postgres.objects(postgres.Database((name,), server.url(name))) == []


def second_fails(patch: pytest.MonkeyPatch, restore, *, asked: bool = False) -> None:
    """The second database cannot be filled, by PostgreSQL's own words: its dump is of nothing. Or the process is asked
    to end meanwhile."""
    plain, done = postgres.restore, []

    def failing(database: postgres.Database, dumped: Path) -> None:
        done.append(database)
        if asked and len(done) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        plain(database, dumped if len(done) == 1 else dumped.with_name("none.dump"))

    with patch.context() as within:
        within.setattr(postgres, "restore", failing)
        if asked:
            with pytest.raises(SystemExit), taken_back("restore"):
                restore()
        else:
            with pytest.raises(BackupError, match="pg_restore failed"):
                restore()
    assert len(done) == 2
