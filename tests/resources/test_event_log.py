"""Dagster's storage with its files kept open: every other process must see what this one writes, at once."""

import os
import shutil
import threading
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from one_asset_job import JOB, number

from trainworthy.resources.event_log import KEPT_OPEN, KeptOpenEventLog


@pytest.fixture
def instance(tmp_path, monkeypatch):
    """A persistent instance as dagster.yaml declares it, below a state folder of its own."""
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "var"))
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(
        "telemetry: {enabled: false}\n"
        "storage: {custom: {module: trainworthy.resources.storage, class: StateFolderStorage, config: {}}}\n"
    )
    with dg.DagsterInstance.from_config(str(home)) as made:
        yield made


def kept(instance) -> KeptOpenEventLog:
    assert isinstance(instance.event_log_storage, KeptOpenEventLog)
    return instance.event_log_storage


def events(storage: SqliteEventLogStorage, run_id: str) -> list[str]:
    return [
        str(entry.dagster_event_type.value) for entry in storage.get_logs_for_run(run_id) if entry.dagster_event_type
    ]


def stock(instance) -> SqliteEventLogStorage:
    """Dagster's own storage over the same files, as another process would open them."""
    return SqliteEventLogStorage(kept(instance)._base_dir)


def test_run_events_are_seen_by_dagsters_own_storage(instance, tmp_path):
    run = JOB.execute_in_process(instance=instance)
    assert (tmp_path / "var" / "dagster" / "history" / "runs" / f"{run.run_id}.db").is_file()
    seen = events(stock(instance), run.run_id)
    assert seen == events(kept(instance), run.run_id)
    assert {"ASSET_MATERIALIZATION", "PIPELINE_SUCCESS"} <= set(seen)
    assert stock(instance).get_latest_materialization_events([number.key])[number.key] is not None


def test_event_of_another_process_is_seen_at_once(instance):
    run = JOB.execute_in_process(instance=instance)
    before = len(events(kept(instance), run.run_id))
    last = stock(instance).get_logs_for_run(run.run_id)[-1]
    stock(instance).store_event(last)
    assert len(events(kept(instance), run.run_id)) == before + 1


def test_runs_more_than_are_kept_open_close_the_oldest(instance):
    runs = [JOB.execute_in_process(instance=instance).run_id for _ in range(KEPT_OPEN + 1)]
    assert len(kept(instance)._engines) == KEPT_OPEN
    assert all("PIPELINE_SUCCESS" in events(kept(instance), run) for run in runs)
    opened = {os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    assert sum(f"{run}.db" in name for run in runs for name in opened) <= 3 * KEPT_OPEN


def test_file_replaced_while_open_is_opened_anew(instance):
    run = JOB.execute_in_process(instance=instance).run_id
    before = kept(instance)._engine(run)
    assert kept(instance)._engine(run) is before
    path = Path(kept(instance).path_for_shard(run))
    with before.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    copy = path.with_suffix(".copy")
    shutil.copyfile(path, copy)
    copy.replace(path)
    assert kept(instance)._engine(run) is not before
    assert "PIPELINE_SUCCESS" in events(kept(instance), run)


def test_dispose_closes_all_files(instance):
    JOB.execute_in_process(instance=instance)
    kept(instance).dispose()
    assert not kept(instance)._engines


def test_watch_calls_back_while_another_process_keeps_the_file_open(instance):
    # As the UI's run page: the events come over files that this storage did not write.
    ui = KeptOpenEventLog(kept(instance)._base_dir)
    run = dg.DagsterRun(job_name="job")
    instance.add_run(run)
    instance.report_engine_event("first", run)
    seen: list[str] = []
    ended = threading.Event()

    def told(entry: dg.EventLogEntry, cursor: str) -> None:
        seen.append(entry.message)
        if entry.message == "last":
            ended.set()

    ui.watch(run.run_id, None, told)
    instance.report_engine_event("last", run)
    assert ended.wait(30)
    assert seen == ["first", "last"]
    ui.end_watch(run.run_id, told)
    ui.dispose()
