"""With a Dagster that lacks a private name: one error where state would lie elsewhere, and else what still works."""

import importlib.metadata
import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import click
import dagster as dg
import pytest
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from one_asset_job import JOB, number

from trainworthy.assets import step_run, stopped
from trainworthy.resources import dagster_private, event_log, storage

INSTALLED = importlib.metadata.version("dagster")


@pytest.fixture
def without(monkeypatch):
    """Takes a name away, as a Dagster would that moved it."""

    def remove(name: str, place: str = "dagster._core.moved") -> None:
        monkeypatch.setitem(dagster_private.PLACES, name, place)

    return remove


def loaded_anew(module: ModuleType) -> Any:
    """The module as a process would load it now, beside the one that is loaded."""
    spec = importlib.util.find_spec(module.__name__)
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    return copy


@pytest.mark.parametrize("name", dagster_private.PLACES)
def test_private_name_is_in_the_installed_dagster(name):
    assert getattr(dagster_private, name) is not None


@pytest.mark.parametrize("place", ["dagster._core.moved", "dagster._core.instance"], ids=["no module", "no name"])
def test_private_name_that_is_gone_is_an_error_with_versions(without, place):
    without("ModuleCodePointer", place)
    with pytest.raises(dagster_private.DagsterPrivateError) as told:
        getattr(dagster_private, "ModuleCodePointer")  # noqa: B009
    assert f"{place}.ModuleCodePointer" in told.value.problem
    assert dagster_private.NEWEST_TESTED in told.value.problem
    assert told.value.value == f"dagster {INSTALLED}"


def test_name_that_nobody_declared_is_no_private_one():
    with pytest.raises(AttributeError):
        _ = dagster_private.Unknown


def test_storage_without_its_base_is_one_error(without):
    without("DagsterSqliteStorage")
    with pytest.raises(click.ClickException, match=f"dagster {INSTALLED}"):
        loaded_anew(storage)


def test_stop_without_the_error_in_words_still_ends_the_step(without):
    without("DagsterUserCodeProcessError")
    error = loaded_anew(stopped).StoppedError("toy stopped at smoke")

    @dg.op
    def breaks():
        raise error

    @dg.job
    def job():
        breaks()

    result = job.execute_in_process(raise_on_error=False)
    (failed,) = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    data = failed.step_failure_data.user_failure_data
    assert data is not None
    assert (data.description, error.allow_retries) == ("toy stopped at smoke", False)


def test_location_of_a_run_is_unknown_without_the_pointer(without):
    pointer = ModuleCodePointer("m", "defs", "/here")
    origin = SimpleNamespace(repository_origin=SimpleNamespace(code_pointer=pointer))
    run: Any = SimpleNamespace(remote_job_origin=None, job_code_origin=origin)
    assert step_run.module_of(run) == "m"
    assert step_run.module_of(SimpleNamespace()) is None  # pyright: ignore[reportArgumentType]
    without("ModuleCodePointer")
    assert step_run.module_of(run) is None


@pytest.mark.parametrize("name", ["SqliteEventLogStorage", "SqliteEventLogStorageWatchdog"])
def test_event_log_without_its_base_is_dagsters_own(without, monkeypatch, tmp_path, name):
    stock = SqliteEventLogStorage(str(tmp_path))
    assert isinstance(storage.kept_open(stock, str(tmp_path)), event_log.KeptOpenEventLog)
    without(name)
    monkeypatch.delitem(sys.modules, event_log.__name__)
    assert storage.kept_open(stock, str(tmp_path)) is stock


def test_event_log_whose_parts_were_renamed_is_dagsters_own_and_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(event_log, "USED", (*event_log.USED, "_renamed"))
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "var"))
    (tmp_path / "dagster.yaml").write_text(
        "telemetry: {enabled: false}\n"
        "storage: {custom: {module: trainworthy.resources.storage, class: StateFolderStorage, config: {}}}\n"
    )
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert type(instance.event_log_storage) is SqliteEventLogStorage
        run = JOB.execute_in_process(instance=instance)
        assert (tmp_path / "var" / "dagster" / "history" / "runs" / f"{run.run_id}.db").is_file()
        assert instance.get_latest_materialization_event(number.key) is not None
