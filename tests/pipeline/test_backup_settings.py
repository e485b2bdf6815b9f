"""trainworthy backup of databases elsewhere: which there are by the settings, and what is told of one that is away."""

import json
import os
import shutil
import socket

import pytest
from backups import entered, restored, take_it, unfinished
from doctor_checks import bad

from tests.refusals import refused
from trainworthy.lifecycle.errors import BackupError, SettingsError, TrainworthyError
from trainworthy.pipeline import execute
from trainworthy.pipeline.backup import take
from trainworthy.pipeline.backup.places import places
from trainworthy.pipeline.backup.postgres import databases, dump
from trainworthy.pipeline.backup.take import take_backup
from trainworthy.pipeline.backup.verify import verified
from trainworthy.pipeline.cli import main
from trainworthy.pipeline.doctor import runs
from trainworthy.resources.dagster_settings import database_address, refuse_unset, storage_kind
from trainworthy.resources.settings import DATABASE, read_settings


def test_server_of_mlflow_is_named_or_left_out_on_purpose(state, place, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://somebody:secret@127.0.0.1:9")
    settings = read_settings()
    with pytest.raises(BackupError, match="registry is on a server") as caught:
        places(settings, [], None, [])
    assert "secret" not in str(caught.value)
    assert "--without mlflow" in caught.value.fix
    with pytest.raises(BackupError, match="not set"):
        places(settings, ["MLFLOW_DATABASE"], place, [])
    assert places(settings, [], None, ["mlflow"]).without == ("mlflow",)
    monkeypatch.setenv("MLFLOW_DATABASE", "postgresql://u:p@h/mlflow")
    with pytest.raises(BackupError, match="artifacts is not there"):
        places(settings, ["MLFLOW_DATABASE"], place / "mistyped", [])
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with pytest.raises(BackupError, match="has no server"):
        places(settings, ["MLFLOW_DATABASE"], place, [])


def test_shared_state_is_left_out_on_purpose_and_a_backup_of_a_folder_is_not_restored_beside_it(
    state, place, monkeypatch
):
    take_it(place / "backup")
    monkeypatch.setenv("TRAINWORTHY_STATE", "s3://models/team")
    settings = read_settings()
    with pytest.raises(BackupError, match="a backup is of the state folder alone") as caught:
        places(settings, [], None, [])
    assert caught.value.value == "s3://models/team"
    assert "--without shared_state" in caught.value.fix
    take_backup(settings, places(settings, [], None, ["shared_state"]), place / "without")
    assert verified(place / "without")[0].without == ("shared_state",)
    with pytest.raises(BackupError, match="TRAINWORTHY_STATE names another place"):
        restored(place / "backup", place / "other", monkeypatch)
    assert not (place / "other").exists()


def test_variable_that_dagster_yaml_asks_for_is_one_clear_error(state, place, monkeypatch, capsys):
    home = place / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("storage:\n  postgres: {postgres_url: {env: DAGSTER_DATABASE}}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.delenv("DAGSTER_DATABASE", raising=False)
    with refused(SettingsError, "dagster.unset"):
        places(read_settings(), [], None, [])
    # So do the commands that open Dagster or start it.
    (line,) = bad(runs.stuck)
    assert "asks for a variable that is not set: DAGSTER_DATABASE" in line
    assert "export DAGSTER_DATABASE=" in line
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    assert main(["ui", "--port", port]) == 1
    assert "not set: DAGSTER_DATABASE" in capsys.readouterr().err
    with refused(SettingsError, "dagster.unset"):
        execute.become("dagster job execute")
    # A label is no variable.
    labels = "run_launcher: {config: {run_k8s_config: {pod_template_spec_metadata: {labels: {env: production}}}}}\n"
    (home / "dagster.yaml").write_text(f"{labels}storage:\n  sqlite: {{base_dir: /elsewhere}}\n")
    refuse_unset(home)
    with pytest.raises(BackupError, match="neither the state folder nor PostgreSQL"):
        places(read_settings(), [], None, [])
    assert places(read_settings(), [], None, ["dagster"]).databases == ()


def test_places_of_another_kind_than_the_backups_are_refused(backup, place, state, monkeypatch):
    (state / "attempts.db").touch()
    entered("5" * 32)
    shutil.rmtree(backup)
    take_it(backup, running=True)
    monkeypatch.setenv(DATABASE, "postgresql://somebody:secret@127.0.0.1:9/none")
    with pytest.raises(BackupError, match="attempts as a file") as caught:
        restored(backup, place / "other", monkeypatch)
    assert "secret" not in str(caught.value)
    assert not (place / "other").exists()


def test_database_that_two_names_lead_to_is_one(state, place, monkeypatch):
    home = place / "home"
    home.mkdir()
    db = {"username": "u", "password": "p/@", "hostname": "h", "db_name": "trainworthy"}
    (home / "dagster.yaml").write_text(json.dumps({"storage": {"postgres": {"postgres_db": db}}}))
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.setenv(DATABASE, "postgresql://other:q@h:5432/trainworthy?sslmode=require")
    (one,) = places(read_settings(), [], None, []).databases
    assert one.holds == ("dagster", "attempts")
    assert "p%2F" not in repr(one)
    monkeypatch.setenv(DATABASE, "postgresql://other:q@h:5433/trainworthy")
    assert [found.holds for found in places(read_settings(), [], None, []).databases] == [("dagster",), ("attempts",)]


def test_database_of_dagsters_helm_chart_is_found_too(place, monkeypatch):
    """The chart writes three storages with one database, and the password in a variable of its own."""
    db = {
        "username": "u", "password": {"env": "DAGSTER_PG_PASSWORD"}, "hostname": "h", "db_name": "n", "port": 5433,
        "params": {"sslmode": "require"},
    }  # fmt: skip
    storage = {"module": "dagster_postgres.run_storage", "class": "PostgresRunStorage", "config": {"postgres_db": db}}
    (place / "dagster.yaml").write_text(json.dumps({"run_storage": storage}))
    monkeypatch.setenv("DAGSTER_PG_PASSWORD", "a/b@c")
    assert storage_kind(place) == "postgresql"
    assert database_address(place) == "postgresql://u:a%2Fb%40c@h:5433/n?sslmode=require"
    (place / "dagster.yaml").write_text(json.dumps({"run_storage": {"module": "dagster_mysql.run_storage"}}))
    assert storage_kind(place) == "other"


def test_missing_pg_dump_is_told_with_its_package(state, place, monkeypatch):
    monkeypatch.setenv(DATABASE, "postgresql://u:secret@127.0.0.1:9/none")
    monkeypatch.setattr(take, "in_progress", lambda settings, where: [])
    monkeypatch.setenv("PATH", str(place / "empty"))
    with pytest.raises(BackupError, match="pg_dump is missing") as caught:
        take_it(place / "backup")
    assert "apt-get install postgresql-client" in caught.value.fix
    assert not (place / "backup").exists()


@pytest.mark.parametrize("address", ["u:s3%2Fcret@127.0.0.1:9/none", "u@127.0.0.1:9/none?password=s3%2Fcret"])
def test_password_goes_by_the_environment_and_is_never_told(place, monkeypatch, address):
    """Also one in the address's query, which SQLAlchemy takes as well."""
    (programs := place / "programs").mkdir()
    (program := programs / "pg_dump").write_text('#!/bin/sh\necho "$@ and $PGPASSWORD" | tee "$OUT" >&2; exit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("OUT", str(place / "told"))
    (database,) = databases({"attempts": f"postgresql://{address}"})
    with pytest.raises(BackupError, match="pg_dump failed") as caught:
        dump(database, place / "a.dump")
    command, _, password = (place / "told").read_text().strip().partition(" and ")
    assert "--dbname=postgresql://u@127.0.0.1:9/none " in command
    assert password == "s3/cret"
    assert "cret" not in str(caught.value)


def test_database_that_is_away_is_told_without_its_password(state, place, monkeypatch):
    monkeypatch.setenv(DATABASE, "postgresql://u:s3cret@127.0.0.1:9/none")
    with pytest.raises(TrainworthyError) as caught:
        take_it(place / "backup")
    assert "s3cret" not in str(caught.value)


@pytest.mark.skipif(
    shutil.which("pg_dump") is None, reason="pg_dump is not installed: apt-get install postgresql-client"
)
def test_pg_dump_that_gets_no_answer_is_told_without_the_password(state, place, monkeypatch):
    monkeypatch.setenv(DATABASE, "postgresql://u:s3cret@127.0.0.1:9/none")
    monkeypatch.setattr(take, "in_progress", lambda settings, where: [])
    with pytest.raises(BackupError, match="pg_dump failed") as caught:
        take_it(place / "backup")
    assert "s3cret" not in str(caught.value)
    assert unfinished(place) == []
