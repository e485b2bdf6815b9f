"""trainworthy doctor: each check passes on a healthy set-up and finds a planted fault; repairs only with --fix."""

import dataclasses
import fcntl
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pandas as pd
import psutil
import pytest
from doctor_checks import bad, only
from toy_project import ROOT, until
from verdict_logs import log_in, logged

from trainworthy.lifecycle.errors import ChampionError
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.worker import NOTICE
from trainworthy.pipeline.doctor import examine, machine, ports, project, runs, sensitive, stores
from trainworthy.resources.mlflow import Tracking
from trainworthy.resources.mlflow_folder import champion_alias
from trainworthy.resources.settings import Settings, read_settings


def test_doctor_tells_what_is_wrong_first_and_what_is_well_by_its_count():
    well = CheckResult(name="python", status="pass", evidence="Python 3.11")
    absent = CheckResult(name="shared_state", status="not_applicable", evidence="named nowhere")
    warning = CheckResult(name="git a", status="fail", severity="warning", evidence="not in it: a.py", fix="commit")
    dirty = [warning, warning.model_copy(update={"name": "git b"})]
    full = CheckResult(name="disk", status="fail", evidence="0 GB free", fix="free space")
    results = [well, *dirty, absent, full]
    # A warning that use cases share is told once.
    brief = "✗ disk: 0 GB free\n    fix: free space\n! git a, b: not in it: a.py\n    fix: commit"
    assert examine.in_brief(results) == brief
    assert examine.summary(results) == "5 checks: 1 failed, 2 warnings, 1 passed, 1 not applicable"
    assert len(examine.text(results).splitlines()) == 8
    assert examine.in_brief([well, absent]) == ""
    assert examine.summary([well, absent]) == "✓ all is well: 1 passed, 1 not applicable"
    assert examine.summary([well, well]) == "✓ all is well: 2 passed"
    assert examine.summary([]) == "! nothing was checked: 0 passed"
    assert examine.summary([absent]) == "! nothing was checked: 0 passed, 1 not applicable"
    # What has no name of its own needs none where it is told once.
    port = CheckResult(name="port", status="fail", evidence="taken", fix="free it")
    assert examine.in_brief([port, port]).splitlines()[0] == "✗ port: taken"


def test_doctor_python_outside_the_range_fails(place, monkeypatch):
    assert bad(machine.python) == []
    monkeypatch.setattr(machine, "PYTHONS", ((3, 8), (3, 9)))
    only(machine.python, "✗ python", sys.executable, "make setup PYTHON=")


def test_doctor_package_that_is_missing_or_of_another_version_is_named(place, monkeypatch):
    assert [line for line in bad(machine.packages) if line.startswith("✗")] == []
    real = machine.installed
    monkeypatch.setattr(machine, "installed", lambda name: {"dvc": "1.0", "jinja2": None}.get(name, real(name)))
    missing, other = [line for line in bad(machine.packages) if not line.startswith("! torch")]
    assert "✗ packages: wrong or missing: dvc<4,>=3.67 (found 1.0), jinja2>=3.1 (found none)" in missing
    assert "! exact versions: dvc 1.0 (not 3." in other


def test_doctor_torch_that_cannot_use_the_gpu_is_a_warning(place, monkeypatch):
    monkeypatch.setattr(machine, "installed", lambda name: "2.13.0+cpu")
    monkeypatch.setattr(machine, "GPU", place / "none")
    assert bad(lambda settings: machine._torch()) == []
    (place / "gpu").touch()
    monkeypatch.setattr(machine, "GPU", place / "gpu")
    only(lambda settings: machine._torch(), "! torch", "will not be used", "CUDA build")


def test_doctor_variables_without_effect_or_to_nowhere_are_warnings(place, monkeypatch):
    assert bad(machine.environment) == []
    monkeypatch.setenv("TRAINWORTHY_VARR", "x")
    only(machine.environment, "TRAINWORTHY_VARR is set and has no effect", "did you mean 'TRAINWORTHY_VAR'?")
    monkeypatch.delenv("TRAINWORTHY_VARR")
    monkeypatch.setenv("DAGSTER_HOME", str(place))
    only(machine.environment, "without dagster.yaml", str(place), "unset DAGSTER_HOME")
    (place / "dagster.yaml").touch()
    only(machine.environment, f"Dagster follows {place}/dagster.yaml")
    monkeypatch.delenv("DAGSTER_HOME")
    monkeypatch.chdir(place)
    only(machine.environment, str(place), f"cd {ROOT}")


def test_doctor_says_where_alerts_go_and_never_the_address(place, monkeypatch):
    monkeypatch.delenv("TRAINWORTHY_WEBHOOK", raising=False)
    (found,) = examine.examined(machine.alerts, read_settings())
    assert (found.status, found.evidence) == ("pass", "go to the run's log; TRAINWORTHY_WEBHOOK names no webhook")
    monkeypatch.setenv("TRAINWORTHY_WEBHOOK", "https://example.org/s3cret")
    (found,) = examine.examined(machine.alerts, read_settings())
    assert (found.status, found.evidence) == ("pass", "go to the run's log and a webhook")
    assert bad(machine.environment) == []
    monkeypatch.setenv("TRAINWORTHY_WEBHOOK", "http://example.org/s3cret")
    only(machine.alerts, "! alerts", "unencrypted")
    assert "s3cret" not in "".join(bad(machine.alerts))


def test_doctor_disk_that_is_nearly_full_warns_then_fails(place, monkeypatch):
    monkeypatch.setattr(machine, "COMFORTABLE_FREE_GB", 0.0)
    monkeypatch.setattr(machine, "LEAST_FREE_BYTES", 0)
    assert bad(machine.disk) == []
    monkeypatch.setattr(machine, "COMFORTABLE_FREE_GB", 1e9)
    only(machine.disk, "! disk", "GB free", "TRAINWORTHY_VAR")
    monkeypatch.setattr(machine, "LEAST_FREE_BYTES", 1e18)
    only(machine.disk, "✗ disk")


def test_doctor_folder_bytes_counts_every_file(place):
    for name, size in (("a", 10), ("deep/er/b", 32)):
        path = place / "sizes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
    assert machine.folder_bytes(place / "sizes") == 42


def test_doctor_port_that_is_taken_names_the_process_and_another_port(place, capsys):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert ports.is_free("ui", port)
        assert f"http://127.0.0.1:{port}" in capsys.readouterr().out
        server.listen()
        assert not ports.is_free("ui", port)
        told = capsys.readouterr().err
        assert f"port {port} is taken by" in told
        assert f"pid {os.getpid()}" in told
        assert f"make ui PORT={port + 1}" in told
        own = ports.program_of(ports.command_of(psutil.Process()))
        same = ports.port_check(ports.Ui("ui", port, (own,)), port)
        assert f"it looks like this UI: open http://127.0.0.1:{port}" in same.fix
        assert same.severity == "warning"


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("/x/bin/python3 /x/bin/dagster dev", "dagster"),
        ("/x/bin/python3.11 -X importtime -W ignore -m dagster_webserver.cli -p 3000", "dagster_webserver"),
        ("/x/bin/python -B /x/bin/mlflow ui", "mlflow"),
        ("/usr/bin/make ui", "make"),
        ("python3 -m http.server --directory /home/me/dagster-notes", "http"),
        ("python3 -u /home/me/dagster/notes.py dagster", "notes.py"),
        ("python3 -c pass dagster", "python3"),
        ("", ""),
    ],
)
def test_doctor_program_of_a_command_line_is_no_argument_of_it(command, program):
    assert ports.program_of(command.split()) == program


def test_doctor_port_of_a_program_below_one_that_only_mentions_the_ui_is_not_the_ui(place):
    server = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "print(s.getsockname()[1], flush=True); s.accept(); input()"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {server!r}])"
    command = [sys.executable, "-c", parent, "/home/me/dagster-notes"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        port = int(process.stdout.readline())
        found = ports.port_check(ports.UIS["ui"], port)
        process.stdin.close()
    assert "-c" in found.evidence
    assert found.fix == f"make ui PORT={port + 1}"


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


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("use_case.yaml", "epochs: 6", "epochs: many", "training.epochs"),
        ("use_case.yaml", "version: v1", "version: v7", "no such published version"),
        ("use_case.yaml", "sku: local-2cpu", "sku: local-3cpu", "did you mean 'local-2cpu'?"),
    ],
)
def test_doctor_use_case_that_cannot_run_fails(place, name, old, new, told):
    assert bad(project.use_cases) == []
    path = place / "project" / "use_cases" / "toy" / name
    path.write_text(path.read_text().replace(old, new))
    only(project.use_cases, "✗ use case toy", told)


def test_doctor_folder_of_use_cases_that_is_empty_or_missing_fails(place, monkeypatch):
    (place / "none").mkdir()
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(place / "none"))
    only(project.use_cases, "there is no use case")
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(place / "nowhere"))
    settings, wrong = examine.settings_there()
    assert (settings.var, settings.use_cases) == (place / "state", ())
    assert wrong is not None
    assert "nowhere" in wrong.evidence


def test_doctor_project_that_init_has_just_made_lacks_nothing(place, monkeypatch):
    (place / "fresh" / "use_cases").mkdir(parents=True)
    folders, var = (place / "fresh" / "use_cases",), place / "fresh" / "var"
    fresh = dataclasses.replace(read_settings(), use_cases=folders, var=var)
    monkeypatch.delenv("TRAINWORTHY_USE_CASES")
    (found,) = project.use_cases(fresh)
    assert found.status == "not_applicable"
    assert "trainworthy new NAME" in found.evidence
    # With state of runs, use cases have gone.
    (place / "fresh" / "var").mkdir()
    only(project.use_cases, "there is no use case", settings=fresh)


def test_doctor_prices_that_are_old_or_broken_are_told(place):
    prices = place / "prices.yaml"
    settings = Settings(project=place, var=place / "state", use_cases=(), prices=prices)
    only(project.prices, "✗ prices", "prices.yaml is missing", settings=settings)
    prices.write_text("dated: 2001-01-01\nskus: {a: {usd_per_hour: 1}}\n")
    only(project.prices, "! prices", "2001-01-01", settings=settings)
    prices.write_text("dated: 2999-01-01\nskus: {a: {usd_per_hour: 1}}\n")
    assert bad(project.prices, settings) == []


def test_doctor_tells_the_project_and_warns_where_dagster_has_no_settings(place):
    settings = read_settings()
    (told,) = examine.examined(project.location, settings)
    assert (told.status, str(ROOT) in told.evidence) == ("pass", True)
    bare = replace(settings, project=place / "project")
    only(project.location, f"! project: {place}/project", "trainworthy init", settings=bare)


def test_doctor_code_that_no_commit_holds_is_a_warning(place, monkeypatch):
    monkeypatch.setattr(project, "git_state", lambda folder: ("0" * 40, False))
    assert bad(project.git) == []
    monkeypatch.undo()
    folder = place / "project" / "use_cases" / "toy"
    (folder / "notes.py").touch()
    settings = Settings(project=place, var=place, use_cases=(folder.parent,), prices=place)
    only(project.git, "! git toy: commit", "not in it: use_cases/toy/notes.py", "git commit", settings=settings)
    shutil.rmtree(place / "project" / ".git")
    only(project.git, "in no git repository", "git init", settings=settings)


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


def mark_sensitive(place: Path, column: str) -> None:
    """Call the column sensitive in the contract."""
    contract = place / "project" / "use_cases" / "toy" / "contract.yaml"
    text = contract.read_text()
    assert text.count(f"name: {column}") == 1
    before, _, after = text.partition(f"name: {column}")
    sign = "customProperties: ["
    sensitive = f"{sign}{{property: sensitive, value: true}}, "
    contract.write_text(before + f"name: {column}" + after.replace(sign, sensitive, 1))


def test_doctor_predictions_with_a_sensitive_column_in_the_clear_are_told_and_mended(place):
    mark_sensitive(place, "shop")
    path = place / "state" / "evaluation" / "toy" / "planted" / "predictions.parquet"
    path.parent.mkdir(parents=True)
    kept = pd.DataFrame({"candidate": [0.1, 0.2], "slice:day": ["a", "b"]})
    kept.assign(**{"slice:shop": ["value 1", "value 2"]}).to_parquet(path)
    assert bad(sensitive.sensitive) == []
    kept.assign(**{"slice:shop": ["Mrs Smith's", "value 2"]}).to_parquet(path)
    only(sensitive.sensitive, "shop", str(path), "--fix")
    (line,) = [line for line in examine.repairs() if "predictions" in line]
    assert line.startswith("repaired: shop taken out of")
    pd.testing.assert_frame_equal(pd.read_parquet(path), kept)
    assert bad(sensitive.sensitive) == []
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "file", ["evaluation/toy/planted/reference.parquet", "champion/toy/planted/predictions.parquet",
             "deployment/toy/planted/predictions.parquet"],
)  # fmt: skip
def test_doctor_predictions_with_sensitive_groups_in_the_clear_are_told_and_mended(place, file):
    path = place / "state" / file
    path.parent.mkdir(parents=True)
    rows = pd.DataFrame({"group": ["Smith", "Jones", None, "Smith"], "candidate": [0.1, 0.2, 0.3, 0.4]})
    rows.to_parquet(path)
    assert bad(sensitive.sensitive) == []
    mark_sensitive(place, "day")
    only(sensitive.sensitive, "day", str(path), "--fix")
    (line,) = [line for line in examine.repairs() if "taken out of" in line]
    assert line == f"repaired: day taken out of {path}"
    mended = pd.read_parquet(path)
    assert mended["group"].fillna("").tolist() == ["value 1", "value 2", "", "value 1"]
    pd.testing.assert_series_equal(mended["candidate"], rows["candidate"])
    assert bad(sensitive.sensitive) == []


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


# pytest-xdist shows a test's name as its process's command, and a parent named after Dagster counts as one of its.
def test_doctor_worker_that_nobody_started_is_told(place):
    assert bad(runs.workers) == []
    script = "import time; time.sleep(600)"
    command = [sys.executable, "-c", script, "trainworthy.lifecycle.worker", f"{place}/state/training/job.json"]
    with subprocess.Popen(command) as process:
        try:
            until(lambda: bad(runs.workers))
            only(runs.workers, "! left workers", f"pid {process.pid}", f"kill {process.pid}")
        finally:
            process.kill()


def test_doctor_check_that_breaks_is_told_and_hides_no_other(place, monkeypatch):
    def breaks(settings):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(examine, "CHECKS", (breaks, project.prices))
    broken, prices = examine.examine()
    assert (broken.name, broken.status, broken.stops) == ("breaks", "error", True)
    assert "ZeroDivisionError: planted" in broken.evidence
    assert prices.name == "prices"


def test_doctor_command_on_a_trained_state_is_well_and_changes_nothing(trained):
    before = {path: path.stat().st_mtime_ns for path in trained.toy.var.glob("[!d]*/**/*") if path.is_file()}
    done = trained.toy.call("-X", "importtime", "-m", "trainworthy.pipeline.cli", "doctor")
    assert done.code == 0, done.out
    assert "✗" not in done.out
    imported = {line.rpartition("|")[2].strip() for line in done.out.splitlines() if "|" in line}
    assert "trainworthy.pipeline.doctor.examine" in imported
    assert not {"mlflow", "torch", "pandas", "numpy"} & imported
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_doctor_command_before_any_run_writes_nothing_and_a_failure_is_exit_code_1(fresh):
    assert fresh.call("-m", "trainworthy.pipeline.cli", "doctor").code == 0
    assert not fresh.var.exists()
    fresh.edit("use_case.yaml", "version: v1", "version: v7")
    done = fresh.call("-m", "trainworthy.pipeline.cli", "doctor")
    assert (done.code, "1 failed" in done.out, "Traceback" in done.out) == (1, True, False)
    assert (done.out[0], "✓" in done.out) == ("✗", False)
    nothing = fresh.call("-m", "trainworthy.pipeline.cli", "doctor", "--fix")
    assert (nothing.code, nothing.out.splitlines()[0]) == (1, "nothing to repair")
    assert not fresh.var.exists()


def test_doctor_on_a_read_only_state_looks_at_the_databases_and_says_what_it_left_out(place, trained, monkeypatch):
    shutil.copytree(trained.toy.var, place / "state", ignore=shutil.ignore_patterns("work"))
    found = {result.name: result.status for result in examine.runs_checks(read_settings())}
    assert {"attempts", "open_attempts"} < found.keys()
    assert set(found.values()) == {"pass"}
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert bad(stores.dagster_store) == []
    only(examine.runs_checks, "! runs: not looked at")


def test_doctor_with_settings_that_fail_leaves_dagster_out(place, monkeypatch):
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(place / "nowhere"))
    only(examine.runs_checks, "! runs: not looked at", settings=examine.settings_there()[0])
