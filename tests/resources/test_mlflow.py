"""Runs and the registry in a real MLflow on SQLite, also after the state folder was moved, copied or is used twice."""

import http.server
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from registry import register, used

from trainworthy.assets.metadata import figure_key
from trainworthy.lifecycle.errors import ChampionError, SettingsError
from trainworthy.lifecycle.protocol.operating_point import OperatingPoint
from trainworthy.lifecycle.protocol.training_figures import CurvePoint
from trainworthy.lifecycle.spec.benchmark import DecisionSpec
from trainworthy.lifecycle.storage.metrics_file import MetricsLine
from trainworthy.resources.mlflow import DataInput, Judged, Tracking, figures_of_point, refuse_silent
from trainworthy.resources.settings import read_settings

ROOT = Path(__file__).parents[2]


def test_mlflow_run_of_a_dagster_run_is_made_once_and_names_it(state):
    first = Tracking().run("toy", "22222222-0000", {"intent": "experiment"})
    assert Tracking().run("toy", "22222222-0000", {}) == first
    tags = Tracking().client.get_run(first.run_id).data.tags
    assert (tags["dagster/run_id"], tags["intent"]) == ("22222222-0000", "experiment")
    assert tags["dagster/url"].endswith("/runs/22222222-0000")
    assert first.run_id in first.url


def test_mlflow_values_curves_and_files_are_kept_and_repeats_change_no_parameter(state):
    tracking = Tracking()
    run = tracking.run("toy", "33333333-0000", {})
    for width in (32, 64):
        tracking.log_values(run, parameters={"width": width}, metrics={"cost/smoke/usd": 0.5}, tags={"step": "passed"})
    points = [CurvePoint(step=n, rows=n, loss=1 / n, standard_error=0.1, learning_rate=0.1) for n in range(1, 1202)]
    for _ in range(2):
        tracking.log_curve(run, "smoke", [MetricsLine(at_ms=1, point=point) for point in points])
    tracking.log_files(run, {"records/smoke.json": b"{}", "report.html": b"<html>"})
    found = tracking.client.get_run(run.run_id).data
    assert (found.params, found.metrics["cost/smoke/usd"]) == ({"width": "32"}, 0.5)
    assert len(tracking.client.get_metric_history(run.run_id, "smoke/progressive_loss")) == 1201
    assert {file.path for file in tracking.client.list_artifacts(run.run_id)} == {"records", "report.html"}


def test_mlflow_takes_metrics_of_any_class_and_keeps_them_apart(state):
    tracking = Tracking()
    run = tracking.run("toy", "3b333333-0000", {})
    names = ("recall[late]", "recall[a & b]", "recall[a _ b]", "coverage[0.9]", "recall[a=b]", "recall[é]", "f1[a[b]]")
    metrics = {f"evaluation/{figure_key(f'candidate_{name}')}": float(place) for place, name in enumerate(names)}
    tracking.log_values(run, parameters={}, metrics=metrics, tags={})
    logged = tracking.client.get_run(run.run_id).data.metrics
    assert sorted(logged.values()) == sorted(metrics.values())
    assert logged["evaluation/candidate_recall:late"] == 0
    assert logged["evaluation/candidate_coverage:0.9"] == 3


def test_mlflow_takes_windows_of_any_slice_and_keeps_them_apart(state):
    tracking = Tracking()
    run = tracking.run("toy", "3a333333-0000", {})
    names = ("shop=a", "shop=a b", "shop=a_b", "0.1 < x <= 2", "x missing", "shop=../é", "shop=" + 300 * "long")
    windows = [
        CurvePoint(step=1, rows=30, loss=number, standard_error=0.1, learning_rate=0.1, slice=name)
        for number, name in enumerate(names)
    ]
    tracking.log_curve(run, "full", [MetricsLine(at_ms=1, point=window) for window in windows])
    logged = tracking.client.get_run(run.run_id).data.metrics
    assert sorted(logged.values()) == list(range(len(names)))
    assert logged["full/progressive_loss/shop_a"] == 0


def test_mlflow_names_windows_for_what_they_are():
    window = {"step": 1, "rows": 1, "loss": 0.5, "standard_error": 0.1, "learning_rate": 0.1}
    marks = [
        {}, {"pass_number": 2}, {"mode": "evaluation"}, {"pass_number": 2, "mode": "evaluation", "scored": "reserve"}
    ]  # fmt: skip
    names = [next(iter(figures_of_point("full", CurvePoint(**window, **mark)))) for mark in marks]
    assert names == [
        "full/progressive_loss",
        "full/training_loss",
        "full/progressive_loss_evaluated",
        "full/reserve_loss",
    ]


@pytest.mark.parametrize("status", ["FINISHED", "FAILED", "KILLED"])
def test_mlflow_run_shows_running_until_it_is_ended(state, status):
    tracking = Tracking()
    run = tracking.run("toy", "44444444-0000", {})
    assert tracking.client.get_run(run.run_id).info.status == "RUNNING"
    tracking.end(run, status)
    assert tracking.client.get_run(run.run_id).info.status == status


def test_mlflow_equal_artifact_is_registered_once(state):
    tracking = Tracking()
    run = tracking.run("toy", "55555555-0000", {})
    assert register(tracking, run, state / "again", "a" * 64).version == "1"
    assert register(tracking, run, state / "other", "b" * 64).version == "2"
    assert [model.version for model in tracking.versions("toy")] == ["2", "1"]


def test_mlflow_equal_artifact_with_another_decision_is_another_version_and_none_is_rewritten(state):
    tracking = Tracking()
    run = tracking.run("toy", "5a555555-0000", {})
    points = [OperatingPoint(decision=DecisionSpec(capacity=0.1), threshold=at) for at in (0.3, 0.4)]
    made, found = (
        [register(tracking, run, state / "again", "a" * 64, point) for point in (None, *points)] for _ in range(2)
    )
    assert made == found
    assert [model.version for model in found] == ["1", "2", "3"]
    assert [model.decides for model in found] == [None, *points]
    assert [model.tags.get("threshold") for model in found] == [None, "0.3", "0.4"]
    # One whose file was changed or lost is not what its tags say.
    found[1].decision_file.write_bytes(found[2].decision_file.read_bytes())
    found[2].decision_file.unlink()
    again = [register(tracking, run, state / "again", "a" * 64, point).version for point in points]
    assert again == ["4", "5"]


def test_mlflow_version_from_before_decisions_were_frozen_is_found_again_and_gives_answers_alone(state):
    tracking = Tracking()
    run = tracking.run("toy", "5b555555-0000", {})
    point = OperatingPoint(decision=DecisionSpec(capacity=0.1), threshold=0.3)
    declared = DecisionSpec(capacity=0.1).model_dump_json()
    for name, value in (("decision", declared), ("threshold", "0.3")):
        tracking.client.set_model_version_tag("toy", "1", name, value)
    found = register(tracking, run, state / "again", "a" * 64, point)
    assert (found.version, found.decides) == ("1", None)
    assert register(tracking, run, state / "again", "a" * 64).version == "2"


def test_mlflow_model_never_registered_has_no_champion_and_no_versions(state):
    assert Tracking().champion("unheard_of") is None
    assert Tracking().versions("unheard_of") == []
    assert Tracking().champion("toy") is None


def test_mlflow_promotion_points_champion_and_rollback(state):
    tracking = Tracking()
    register(tracking, tracking.run("toy", "66666666-0000", {}), state / "other", "b" * 64)
    tracking.set_champion("toy", "1", None)
    tracking.set_champion("toy", "2", "1")
    assert tracking.champion("toy").version == "2"
    assert str(tracking.client.get_model_version_by_alias("toy", "rollback").version) == "1"


def test_mlflow_version_is_found_without_importing_mlflow_also_in_a_copied_state(state):
    code = (
        "import sys; from trainworthy.resources.mlflow import Tracking; found = Tracking().version('toy', '1');"
        "print(found.source, found.artifact.is_dir(), Tracking().version('toy', '2'), 'mlflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    (known,) = Tracking().versions("toy")
    assert done.stdout.split() == [*known.source.split(), "True", "None", "False"]


def test_mlflow_version_on_a_server_is_asked_for_there(state, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", Tracking().uri)
    monkeypatch.setattr("trainworthy.resources.mlflow.source_of", lambda *_: pytest.fail("read the file of a server"))
    assert Tracking().version("toy", "1") == Tracking().versions("toy")[0]
    assert Tracking().version("toy", "2") is None


def test_mlflow_server_that_is_away_is_one_error_at_once_without_its_password(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://bob:SECRET@127.0.0.1:{port}")
    with pytest.raises(SettingsError) as caught:
        Tracking().run("toy", "11111111-0000", {})
    assert (caught.value.code, caught.value.value) == ("mlflow_away", f"http://127.0.0.1:{port}")
    assert "SECRET" not in str(caught.value)


def test_mlflow_server_whose_answer_is_no_page_is_there():
    class Missing(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(404)

        def log_message(self, format, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Missing) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        refuse_silent(f"http://127.0.0.1:{server.server_port}")


def test_mlflow_server_that_is_busy_is_left_to_mlflow(monkeypatch):
    monkeypatch.setattr("trainworthy.resources.mlflow.ANSWER_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        refuse_silent(f"http://127.0.0.1:{busy.getsockname()[1]}")


@pytest.mark.parametrize("address", ["http://127.0.0.1:{port}", "http://127.0.0.1:abc", "http://local host:5000"])
def test_mlflow_address_of_something_else_or_of_nothing_is_one_error(address):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            client, _ = server.accept()
            with client:
                client.recv(4096)
                client.sendall(b"220 a mail server\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(SettingsError) as caught:
            refuse_silent(address.format(port=server.getsockname()[1]))
    assert caught.value.code == "mlflow_away"


def test_mlflow_rollback_moves_champion_and_rollback_and_removes_the_last_one(state):
    tracking = Tracking()
    for number, sha256 in (("6a", "b" * 64), ("6b", "c" * 64)):
        register(tracking, tracking.run("toy", f"{number}666666-0000", {}), state / number, sha256)
    tracking.set_champion("toy", "3", "2")
    found = []
    for version, next_back in (("2", "1"), ("1", None)):
        tracking.set_champion("toy", version, next_back)
        aliases = tracking.client.get_registered_model("toy").aliases
        found.append({name: str(alias) for name, alias in aliases.items()})
    assert found == [{"champion": "2", "rollback": "1"}, {"champion": "1"}]
    # An alias that is gone already is as good.
    tracking.set_champion("toy", "1", None)


def test_mlflow_champion_without_its_files_is_an_error_and_not_no_champion(state):
    tracking = Tracking()
    tracking.set_champion("toy", "1", None)
    shutil.rmtree(tracking.champion("toy").artifact.parents[1])
    with pytest.raises(ChampionError, match="toy version 1 is registered, its artifact is gone") as caught:
        tracking.champion("toy")
    assert "restore" in caught.value.fix


def test_mlflow_server_champion_is_downloaded_once_and_only_when_it_is_used(state, monkeypatch):
    import mlflow.artifacts

    asked = []

    def download(uri: str, dst_path: str) -> str:
        asked.append(uri)
        # Workers on other machines read what lies below the state folder alone.
        assert Path(dst_path).is_relative_to(read_settings().var)
        return str(state / "down")

    monkeypatch.setattr(mlflow.artifacts, "download_artifacts", download)
    (state / "down" / "artifacts" / "artifact").mkdir(parents=True)
    tracking = Tracking()
    version = tracking.client.create_model_version("toy", "s3://bucket/model")
    tracking.set_champion("toy", str(version.version), None)
    champion = tracking.champion("toy")
    assert asked == []
    assert [champion.artifact, champion.artifact] == [state / "down" / "artifacts" / "artifact"] * 2
    assert asked == ["s3://bucket/model"]


def test_mlflow_register_needs_no_files_of_other_versions_and_replaces_lost_ones(state):
    tracking = Tracking()
    run = tracking.run("toy", "88888888-0000", {})
    shutil.rmtree(tracking.versions("toy")[0].artifact.parents[1])
    other = register(tracking, run, state / "other", "b" * 64)
    again = register(tracking, tracking.run("toy", "99999999-0000", {}), state / "again", "a" * 64)
    assert [(model.version, model.artifact.is_dir()) for model in (other, again)] == [("2", True), ("3", True)]


@pytest.mark.parametrize("how", ["moved", "copied"])
def test_mlflow_state_elsewhere_reads_and_writes_there_only(state, tmp_path, monkeypatch, how):
    Tracking().set_champion("toy", "1", None)
    there = tmp_path / "100%_there"
    before = files(state)
    (shutil.move if how == "moved" else shutil.copytree)(state, there)
    used(monkeypatch, there)
    tracking = Tracking()
    champion = tracking.champion("toy")
    assert (champion.artifact / "model.txt").read_text() == "a" * 64
    assert champion.artifact.is_relative_to(there)
    run = tracking.run("toy", "77777777-0000", {})
    tracking.log_files(run, {"report.html": b"<html>"})
    assert register(tracking, run, there / "other", "b" * 64).artifact.is_relative_to(there)
    assert files(state) == (before if how == "copied" else {})


def files(folder):
    """Every file by name with its time of change."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_mlflow_registered_model_loads_no_pickle(state):
    model = Tracking().champion("toy") or Tracking().versions("toy")[0]
    saved = [path.suffix for path in model.artifact.parents[1].rglob("*")]
    assert not {".pkl", ".pickle", ".cloudpickle"} & set(saved)


@pytest.mark.slow
def test_mlflow_four_processes_on_a_fresh_state_all_get_one_experiment(tmp_path):
    code = (
        "import sys; from trainworthy.resources.mlflow import Tracking; "
        "print(Tracking().run('toy', sys.argv[1], {}).experiment_id)"
    )
    environment = {**os.environ, "TRAINWORTHY_VAR": str(tmp_path / "fresh"), "PYTHONPATH": str(ROOT / "src")}
    started = [
        subprocess.Popen([sys.executable, "-c", code, f"{n}"], env=environment, stdout=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    told = [process.communicate(timeout=200)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0, 0]
    assert len(set(told)) == 1


def test_mlflow_first_use_that_was_killed_leaves_no_half_made_database(tmp_path, monkeypatch):
    folder = used(monkeypatch, tmp_path / "state") / "mlflow"
    # Killed when the migrations are done and the file would get its name.
    kill = "import os; os.replace = lambda *to: os.kill(os.getpid(), 9)"
    code = f"{kill}\nfrom trainworthy.resources.mlflow import Tracking\nTracking().client"
    killed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert killed.returncode == -9
    assert not (folder / "mlflow.db").exists()
    (folder / ".new-mlflow.db").write_bytes(b"half a database")
    assert Tracking().client.search_experiments()
    assert (folder / "mlflow.db").is_file()
    assert list(folder.glob(".new-*")) == []


def test_mlflow_ui_opens_on_the_runs_with_the_columns_that_people_compare(state, tmp_path):
    from trainworthy.pipeline.doctor.ports import runs_at

    tracking, address = Tracking(), "http://127.0.0.1:5000"
    run = tracking.run("toy", "77777777-0000", {}, name="rows@v1 · candidate")
    page = f"runs of toy: {address}/#/experiments/{run.experiment_id}/runs?workflowType=machine_learning"
    assert runs_at(state / "mlflow", address) == [page]
    tracking.show_columns(run, ["auc"])
    assert runs_at(state / "mlflow", address) == [f"{page}&viewStateShareKey=trainworthy"]
    assert runs_at(tmp_path / "empty", address) == [f"there are no runs yet; {address} shows them once there are"]
    assert tracking.client.get_experiment(run.experiment_id).tags["mlflow.experimentKind"] == (
        "custom_model_development"
    )


def test_mlflow_run_has_its_name_and_says_how_it_ended(state):
    tracking = Tracking()
    run = tracking.run("toy", "88888888-0000", {}, name="rows@v1 · candidate")
    assert tracking.client.get_run(run.run_id).info.run_name == "rows@v1 · candidate"
    tracking.end(run, "FAILED", "rows@v1 · stopped at smoke")
    ended = tracking.client.get_run(run.run_id)
    assert (ended.info.run_name, ended.info.status) == ("rows@v1 · stopped at smoke", "FAILED")


def test_mlflow_inputs_of_a_run_are_kept_once_by_the_hash_of_their_content(state):
    tracking = Tracking()
    run = tracking.run("toy", "99999999-0000", {})
    for _ in range(2):
        tracking.log_inputs(run, [DataInput("rows@v1/training", "f" * 64, "file:///rows", 30, "training")])
    inputs = tracking.client.get_run(run.run_id).inputs
    assert inputs is not None
    (found,) = inputs.dataset_inputs
    assert (found.dataset.name, found.dataset.digest) == ("rows@v1/training", "f" * 36)
    assert found.tags[0].value == "training"


def test_mlflow_version_and_its_logged_model_say_what_the_verdict_was(state):
    tracking = Tracking()
    run = tracking.run("toy", "aaaaaaaa-0000", {})
    model = register(tracking, run, state / "judged", "c" * 64)
    judged = Judged("**shadow** on rows@v1", {"verdict": "shadow"}, {"auc": 0.9})
    tracking.describe(run, "toy", model.version, judged)
    version = tracking.client.get_model_version("toy", model.version)
    assert (version.description, version.tags["verdict"]) == ("**shadow** on rows@v1", "shadow")
    logged = tracking.client.get_logged_model(version.tags["logged_model"])
    assert (logged.tags["verdict"], [metric.value for metric in logged.metrics or ()]) == ("shadow", [0.9])


@pytest.mark.parametrize(("status", "user"), [(401, None), (403, "reader")])
def test_mlflow_server_that_refuses_who_asks_is_told_with_what_to_set(status, user, tmp_path, monkeypatch):
    class Refuses(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, format, *args): ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.server_port}")
        for name, value in (("MLFLOW_TRACKING_USERNAME", user), ("MLFLOW_TRACKING_PASSWORD", user and "s3cret")):
            monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
        with pytest.raises(SettingsError) as caught:
            Tracking().reach()
        server.shutdown()
    who = f"the user {user}" if user else "a request without a user"
    assert caught.value.problem == f"MLflow's server refuses {who}"
    assert "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD" in str(caught.value)
    assert "s3cret" not in str(caught.value)
