"""trainworthy doctor on stores: folders, databases, the registry and its alias, servers, and the verdict log."""

import fcntl
import shutil
import socket
import sqlite3
import tempfile

import pytest
from doctor_checks import bad, only
from toy_project import ROOT
from verdict_logs import log_in, logged

from trainworthy.lifecycle.errors import ChampionError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.worker import NOTICE
from trainworthy.pipeline.doctor import examine, machine, stores
from trainworthy.resources.mlflow import Tracking
from trainworthy.resources.mlflow_folder import champion_alias
from trainworthy.resources.settings import Settings, read_settings


def test_doctor_state_folder_that_cannot_be_made_or_written_fails(place):
    assert bad(stores.state_folder) == []
    assert not (place / "state").exists()
    (place / "file").touch()
    for var in (place / "file", place / "file" / "state"):
        settings = Settings(project=ROOT, var=var, use_cases=(), prices=ROOT / "prices.yaml")
        only(stores.state_folder, "✗ state folder", str(var), settings=settings)


def test_doctor_durable_folder_that_takes_no_files_fails_and_is_never_made(place, monkeypatch):
    (found,) = examine.examined(stores.durable_folder, read_settings())
    assert found.status == "not_applicable"
    volume = place / "volume"
    volume.mkdir()
    monkeypatch.setenv("TRAINWORTHY_DURABLE", str(volume))
    monkeypatch.setenv(NOTICE, str(place / "notice"))
    assert bad(stores.durable_folder) == []
    assert bad(machine.environment) == []
    assert list(volume.iterdir()) == []
    monkeypatch.setenv("TRAINWORTHY_DURABLE", str(place / "unmounted"))
    only(stores.durable_folder, "✗ durable folder", str(place / "unmounted"), "mount it")
    assert not (place / "unmounted").exists()
    volume.rmdir()
    volume.touch()
    monkeypatch.setenv("TRAINWORTHY_DURABLE", str(volume))
    only(stores.durable_folder, "✗ durable folder", "is no folder")
    monkeypatch.setenv("TRAINWORTHY_DURABLE", "gs://models/team")
    only(stores.durable_folder, "✗ durable folder", "gs://models/team", "no address", "s3://BUCKET/PREFIX")


def test_doctor_shared_state_is_asked_and_a_registry_of_one_machine_is_told(place, monkeypatch):
    (found,) = examine.examined(stores.shared_place, read_settings())
    assert found.status == "not_applicable"
    monkeypatch.setenv("TRAINWORTHY_STATE", str(place / "unmounted"))
    only(stores.shared_place, "✗ shared state", str(place / "unmounted"), "mount it")
    (place / "unmounted").mkdir()
    only(stores.shared_place, "✗ shared registry", "this machine's state folder", "MLFLOW_TRACKING_URI")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert bad(stores.shared_place) == []
    assert bad(machine.environment) == []
    monkeypatch.setenv("TRAINWORTHY_STATE", "gs://models/team")
    only(stores.shared_place, "✗ shared state", "gs://models/team", "no address", "s3://BUCKET/PREFIX")


def test_doctor_durable_folder_that_refuses_files_fails(place, monkeypatch):
    def refuses(dir):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setenv("TRAINWORTHY_DURABLE", str(place))
    monkeypatch.setattr(tempfile, "TemporaryFile", refuses)
    only(stores.durable_folder, "✗ durable folder", "takes no files: Permission denied", "make it writable")


@pytest.mark.parametrize("declared", [True, False])
def test_doctor_spot_machine_without_storage_that_outlives_it_is_a_warning(place, monkeypatch, declared):
    path = place / "project" / "use_cases" / "toy" / "use_case.yaml"
    path.write_text(path.read_text().replace("compute: {", "compute: {spot: true, "))
    if declared:
        monkeypatch.setenv("TRAINWORTHY_DURABLE", str(place))
    monkeypatch.setattr(stores, "file_system", lambda folder: "nfs4")
    assert bad(stores.durable_folder) == []
    monkeypatch.setattr(stores, "file_system", lambda folder: "tmpfs")
    only(stores.durable_folder, "! durable folder", "tmpfs", "on spot machines train toy", "TRAINWORTHY_DURABLE")


def test_doctor_databases_of_the_installed_versions_pass_and_others_are_told(place, trained, monkeypatch):
    shutil.copytree(trained.toy.var, place / "state", ignore=shutil.ignore_patterns("work"))
    assert bad(stores.dagster_store) == []
    assert [line for line in bad(stores.mlflow_store) if "addresses" not in line] == []
    runs_db, mlflow_db = place / "state/dagster/history/runs.db", place / "state/mlflow/mlflow.db"
    with sqlite3.connect(runs_db) as connection:
        connection.execute("INSERT INTO alembic_version VALUES ('7e2f3204cf8e')")
    monkeypatch.chdir(place)
    migrate = f"DAGSTER_HOME={ROOT} dagster instance migrate"
    only(stores.dagster_store, "✗ dagster runs.db", migrate, "29b539ebc72a, 7e2f3204cf8e: one is needed")
    with sqlite3.connect(runs_db) as connection:
        connection.execute("DELETE FROM alembic_version WHERE version_num <> '7e2f3204cf8e'")
    only(stores.dagster_store, "schema 7e2f3204cf8e, newest 29b539ebc72a")
    with sqlite3.connect(mlflow_db) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'of_tomorrow'")
    assert any("of_tomorrow is unknown to the installed version" in line for line in bad(stores.mlflow_store))
    mlflow_db.write_bytes(b"no database" * 100)
    assert any("cannot be read" in line for line in bad(stores.mlflow_store))


@pytest.mark.parametrize(
    ("package", "folder"), [("dagster", "_core/storage/alembic/versions"), ("mlflow", "store/db_migrations/versions")]
)
def test_doctor_revisions_of_the_installed_packages_have_one_newest(package, folder):
    known = stores.revisions(package, folder)
    assert len(known) > 20
    assert len(known.keys() - set(known.values())) == 1


def test_doctor_moved_registry_is_told_and_mended(place, trained):
    shutil.copytree(trained.toy.var, place / "state", ignore=shutil.ignore_patterns("work"))
    only(stores.mlflow_store, "! mlflow addresses", trained.toy.var.as_uri())
    before = (place / "state/mlflow/mlflow.db").read_bytes()
    assert bad(stores.verdicts) == []
    assert (place / "state/mlflow/mlflow.db").read_bytes() == before
    assert list(stores.repair_addresses(read_settings())) == [f"MLflow's addresses are those of {place}/state/mlflow"]
    assert bad(stores.mlflow_store) == []
    assert list(stores.repair_addresses(read_settings())) == []
    champion = Tracking().champion("toy")
    assert champion is not None
    assert champion.source.startswith(place.as_uri())


def test_doctor_alias_that_left_the_log_is_told_and_follows_it_again(place, trained):
    shutil.copytree(trained.toy.var, place / "state", ignore=shutil.ignore_patterns("work"))
    list(stores.repair_addresses(read_settings()))
    assert bad(stores.verdicts) == []
    Tracking().client.delete_registered_model_alias("toy", "champion")
    only(stores.verdicts, "✗ verdicts toy", "disagree", "'verdict log': '1', 'alias': None")
    (told,) = stores.repair_aliases(read_settings())
    assert told == "toy: the alias champion points to version 1, as in the verdict log"
    assert champion_alias(place / "state/mlflow", "toy") == "1"
    assert bad(stores.verdicts) == []
    # Without a log the alias is all that is left: no repair removes it.
    (place / "state/verdicts/toy.jsonl").unlink()
    only(stores.verdicts, "disagree")
    assert list(stores.repair_aliases(read_settings())) == []
    assert champion_alias(place / "state/mlflow", "toy") == "1"


@pytest.fixture
def on_a_server(place, trained, monkeypatch):
    """The trained state, whose registry is asked as one on a server: through MLflow, by its address."""
    shutil.copytree(trained.toy.var, place / "state", ignore=shutil.ignore_patterns("work"))
    list(stores.repair_addresses(read_settings()))
    (place / "state/mlflow/mlflow.db").rename(place / "server.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place}/server.db")
    return place


def test_doctor_alias_on_a_server_is_asked_for_and_follows_the_log_again(on_a_server):
    assert bad(stores.verdicts) == []
    Tracking().client.delete_registered_model_alias("toy", "champion")
    only(stores.verdicts, "✗ verdicts toy", "disagree", "'verdict log': '1', 'alias': None")
    (told,) = stores.repair_aliases(read_settings())
    assert told == "toy: the alias champion points to version 1, as in the verdict log"
    assert bad(stores.verdicts) == []
    # A model that another state promoted there keeps the alias.
    client, tags = Tracking().client, {"artifact_sha256": "b" * 64}
    other = client.create_model_version("toy", (on_a_server / "other").as_uri(), tags=tags)
    client.set_registered_model_alias("toy", "champion", other.version)
    (refused,) = stores.repair_aliases(read_settings())
    assert isinstance(refused, ChampionError)
    assert refused.code == "champion.other_log"
    assert not (on_a_server / "state/mlflow/mlflow.db").exists()


def test_doctor_server_that_does_not_answer_is_a_warning_without_its_password(on_a_server, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://bob:SECRET@db/mlflow")
    only(stores.verdicts, "! verdicts toy: 1 entries", "nowhere://db/mlflow could not be asked", "MLFLOW_TRACKING_URI")
    (told,) = [line for line in examine.repairs() if "repair_aliases" in line]
    assert "could not be asked" in told
    (here,) = stores.mlflow_store(read_settings())
    assert "SECRET" not in told + here.evidence + "".join(bad(stores.verdicts))


def test_doctor_server_that_is_silent_is_not_waited_for(on_a_server, monkeypatch):
    monkeypatch.setattr(stores, "SERVER_SECONDS", 0.1)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        only(stores.verdicts, "! verdicts toy", "could not be asked: no answer within 0 s")


def test_doctor_server_is_not_asked_before_any_verdict(place, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place}/server.db")
    assert bad(stores.verdicts) == []
    assert list(stores.repair_aliases(read_settings())) == []
    assert not (place / "server.db").exists()
    assert not (place / "state").exists()


def test_doctor_mend_of_the_registry_waits_for_its_locks(place, trained, monkeypatch):
    shutil.copytree(trained.toy.var, place / "state", ignore=shutil.ignore_patterns("work"))
    held = []

    def locked(name):
        """True if another process could not take the lock now."""
        with (place / "state" / name).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    settle, read = stores.settle, log.read
    monkeypatch.setattr(stores, "settle", lambda folder: (held.append(locked("mlflow/.lock")), settle(folder)))
    assert len(list(stores.repair_addresses(read_settings()))) == 1
    monkeypatch.setattr(log, "read", lambda path: (held.append(locked("verdicts/toy.lock")), read(path))[1])
    assert list(stores.repair_aliases(read_settings())) == []
    assert held == [True, True]


def test_doctor_mend_without_a_registry_makes_none(place, trained):
    shutil.copytree(trained.toy.var, place / "state", ignore=shutil.ignore_patterns("work"))
    (place / "state/mlflow/mlflow.db").unlink()
    assert list(stores.repair_aliases(read_settings())) == []
    assert not (place / "state/mlflow/mlflow.db").exists()


def test_doctor_verdict_log_that_was_changed_is_told_and_never_mended(place):
    path = place / "state/verdicts/toy.jsonl"
    logged(
        log_in(place / "state"), action="shadow", model_version="1", verdict_sha256="1" * 64,
        previous_verdict_sha256=None,
    )  # fmt: skip
    assert bad(stores.verdicts) == []
    path.write_text(path.read_text().replace("shadow", "promote"))
    only(stores.verdicts, "✗ verdicts toy", "was changed after it was written", "restore the log")
    assert list(stores.repair_aliases(read_settings())) == []
