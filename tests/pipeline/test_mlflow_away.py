"""MLflow that is away in the middle of a run costs nothing: what it missed is written with a later step."""

import socket

import pytest

from trainworthy.lifecycle.protocol.records import STEPS
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.pipeline.build import build_defs
from trainworthy.resources.mlflow import Tracking

# An experiment's steps end with the last stage.
EXPERIMENT = STEPS[: STEPS.index("full") + 1]
away: set[int] = set()
calls: list[str] = []


class Sometimes(Tracking):
    """Does not answer the calls whose numbers are in `away`."""

    def run(self, use_case, dagster_run_id, tags, name=""):
        calls.append(dagster_run_id)
        if len(calls) in away:
            raise ConnectionError("MLflow is away")
        return super().run(use_case, dagster_run_id, tags, name)


@pytest.fixture
def execute(toy, monkeypatch):
    """The experiment in this process, all of it reused; the calls of MLflow that fail."""
    monkeypatch.setenv("TRAINWORTHY_VAR", str(toy.var))
    monkeypatch.setenv("TRAINWORTHY_USE_CASES", str(toy.root / "use_cases"))

    def run(*numbers: int):
        calls.clear()
        away.clear()
        away.update(numbers)
        definitions = build_defs([load_use_case(toy.folder)], {"tracking": Sometimes()})
        config = {"loggers": {"console": {}}}
        return definitions.resolve_job_def("experiment_toy").execute_in_process(config, raise_on_error=False)

    return run


def test_run_goes_on_while_mlflow_is_away_and_writes_what_it_missed(toy, execute):
    done = execute(1, 3, 4)
    assert done.success
    found = toy.mlflow_run(done.run_id)
    assert {name for name in found.data.tags if name.startswith("step/")} == {f"step/{step}" for step in EXPERIMENT}
    for step in EXPERIMENT:
        assert f"cost/{step}/usd" in found.data.metrics
    # The first step's parameters too, which no other step writes.
    assert found.data.params["hyperparameters.width"] == "32"
    assert found.info.status == "FINISHED"


def test_last_step_needs_mlflow_and_fails_without_it(execute):
    done = execute(len(EXPERIMENT))
    assert not done.success
    assert [event.step_key.split("__")[-1] for event in done.get_step_failure_events()] == ["full"]


def test_last_step_whose_server_is_away_stops_with_its_fix_and_the_same_run_again_is_reused(toy, execute, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    done = execute()
    assert not done.success
    (failed,) = done.get_step_failure_events()
    told = failed.step_failure_data.user_failure_data.description
    assert "MLflow's server does not answer" in told
    assert "MLFLOW_TRACKING_URI" in told
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    again = execute()
    assert again.success
    assert toy.mlflow_run(again.run_id).info.status == "FINISHED"
