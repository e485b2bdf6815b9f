"""Dagster's storage and the table of attempts in one PostgreSQL database, whose server crashes while a run works."""

import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from toy_project import product, until

sys.path.insert(0, str(Path(__file__).parents[1] / "resources"))
from postgres_server import postgres_server

from trainworthy.resources.attempt_table import AttemptTable, database_url
from trainworthy.resources.settings import DATABASE


@pytest.mark.slow
def test_run_on_postgresql_goes_on_after_its_server_crashed_and_all_of_it_is_there(fresh, tmp_path):
    pytest.importorskip("dagster_postgres", reason="dagster-postgres is not installed: make setup")
    settings = yaml.safe_load((product() / "dagster.yaml").read_text())
    settings["storage"] = {"postgres": {"postgres_url": {"env": "DAGSTER_DATABASE"}}}
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(yaml.safe_dump(settings))
    with postgres_server() as server:
        server.execute("CREATE DATABASE trainworthy")
        url = server.url("trainworthy")
        table = AttemptTable(database_url(url))
        # Dagster sends a statement with values in it that psycopg 3 refuses.
        both = {DATABASE: url, "DAGSTER_DATABASE": url.replace("postgresql:", "postgresql+psycopg2:")}
        process = fresh.start(fresh.command("preflight_toy"), DAGSTER_HOME=str(home), **both)
        until(lambda: table.rows(only_open=True) or process.poll() is not None, 240, "until the worker is started")
        assert process.poll() is None, process.communicate()[0][-3000:]
        server.crash()
        server.start()
        out, _ = process.communicate(timeout=280)
        assert process.returncode == 0, out[-3000:]
        assert not (fresh.var / "dagster" / "history").exists()
        assert not (fresh.var / "attempts.db").exists()
        (row,) = table.rows()
        assert row.ended is not None
        assert (row.started.job_kind, row.ended.outcome) == ("preflight", "answered")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DAGSTER_DATABASE", both["DAGSTER_DATABASE"])
            with dg.DagsterInstance.from_config(str(home)) as instance:
                (run,) = instance.get_runs()
                assert (run.run_id, run.status.value) == (row.started.charged_to.run_id, "SUCCESS")
                kind = dg.DagsterEventType.ASSET_MATERIALIZATION
                assert len(instance.all_logs(run.run_id, of_type=kind)) == 3
