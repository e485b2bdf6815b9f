"""The whole lifecycle through `dagster job execute`, first and second time, with every tool real."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from known import known
from toy_project import FIRST, unbroken
from verdict_logs import log_in, logged

from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.protocol.records import STAGES, STEPS, EvaluationReport, Verdict
from trainworthy.lifecycle.storage.metrics_file import windows_in
from trainworthy.lifecycle.storage.records import record_sha256

COST = ["cost/usd", "cost/cpu_seconds", "cost/gpu_seconds", "cost/wall_seconds"]
LINEAGE = [
    "dataset_version", "content_hash", "git_commit", "git_dirty", "code_version", "environment_sha256", "seeds",
    "device", "identity", "record_sha256", "reused",
]  # fmt: skip
SHARED = {"decision", "reasons", *COST, "mlflow/run", *(f"lineage/{name}" for name in LINEAGE)}


@pytest.fixture(scope="module")
def shown(trained):
    return trained.toy.materialized(trained.done.run_id)


def test_train_first_run_keeps_its_history_without_dagster_home(trained):
    assert (trained.toy.var / "dagster" / "history" / "runs.db").is_file()
    assert trained.toy.status(trained.done.run_id) == "SUCCESS"


def test_train_first_run_is_found_by_its_dataset_version_and_its_verdict(trained):
    tags = trained.toy.tags(trained.done.run_id)
    assert (tags["trainworthy/dataset"], tags["trainworthy/verdict"]) == ("toy_rows@v1", "promote")
    assert "trainworthy/stopped_at" not in tags


def test_train_first_run_materializes_eight_assets_with_the_same_keys(shown):
    assert list(shown) == list(STEPS)
    for step, metadata in shown.items():
        assert metadata.keys() >= SHARED, step
        assert all(isinstance(metadata[name], float) for name in COST), step
        assert metadata["cost/wall_seconds"] > 0, step
        assert metadata["cost/usd"] == pytest.approx(metadata["cost/wall_seconds"] * 0.10 / 3600), step
        assert metadata["lineage/git_dirty"] == "false"
        assert metadata["lineage/dataset_version"] == "toy_rows@v1"
    # A step's code is what it uses: that of the three stages is the same.
    assert len({shown[stage]["lineage/code_version"] for stage in STAGES}) == 1
    assert len({metadata["lineage/code_version"] for metadata in shown.values()}) == len(STEPS) - len(STAGES) + 1


def test_train_first_run_shows_rows_figures_and_pictures(shown):
    assert shown["dataset"]["rows/dataset"] == shown["dataset"]["dagster/row_count"] == 9600
    snapshot = shown["snapshot"]
    assert snapshot["rows/labelled"] + snapshot["rows/excluded"] == 9600
    assert 0 < shown["smoke"]["rows/trained"] < shown["pilot"]["rows/trained"] < shown["full"]["rows/trained"]
    assert shown["full"]["rows/trained"] == snapshot["rows/training"]
    assert shown["evaluation"]["rows/benchmark"] == snapshot["rows/benchmark"]
    assert shown["evaluation"]["metric/gain_over_prior_low"] > 0
    pictures = {step: {name for name in metadata if name.startswith("picture/")} for step, metadata in shown.items()}
    assert pictures["full"] == {"picture/learning_curve"}
    assert pictures["evaluation"] == {"picture/reliability_curve", "picture/comparisons", "picture/slices"}
    for step, names in pictures.items():
        for name in names:
            assert shown[step][name].startswith(f"![{name.removeprefix('picture/')}](data:image/png;base64,")
            assert len(shown[step][name]) < 140_000


def test_train_first_run_tells_what_the_model_answers_if_its_inputs_change(trained):
    evaluation = trained.toy.record(trained.done.run_id, "evaluation")
    assert isinstance(evaluation, EvaluationReport)
    changed = known(evaluation.changed_inputs)
    assert changed.importance[0].column == "x1"
    assert changed.importance[0].loss.low > 0
    assert {one.column for one in changed.dependence} == {"shop", "x1", "x2"}
    (test,) = evaluation.behaviour
    assert known(test.estimate).high < test.declared.at_most
    reasons = trained.toy.verdict(trained.done.run_id).reasons
    assert [reason for reason in reasons if reason.startswith("Test of behaviour kept: the answer rises as x1 rises;")]


def test_train_first_run_says_of_every_step_what_was_decided_and_why(shown):
    decisions = {step: metadata["decision"] for step, metadata in shown.items()}
    assert decisions == {**dict.fromkeys(STEPS, "passed"), "promotion": "promote"}
    expected = {
        "dataset": "the content hash is the published one",
        "snapshot": "labelled rows",
        "preflight": "Forecast for the three stages",
        "pilot": "Go\\: validation loss",
        "full": "steps on",
        "evaluation": "Gain over logistic regression in log loss\\:",
        "promotion": "All five controls passed",
    }
    assert {step: text for step, text in expected.items() if text not in unbroken(shown[step]["reasons"])} == {}
    for step, metadata in shown.items():
        # What a person looks for comes first; Dagster shows up to 1,000 characters of Markdown in place.
        assert list(metadata)[:2] == ["decision", "reasons"], step
        assert len(metadata["reasons"]) < 1_000, step
    link = f"[open the report]({shown['promotion']['mlflow/run']}/artifacts/report.html)"
    assert shown["promotion"]["mlflow/report"] == link


def test_train_first_run_checks_all_pass_in_dagster(trained):
    import dagster as dg

    with trained.toy.instance() as instance:
        logs = instance.all_logs(trained.done.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        checks = [entry.get_dagster_event().asset_check_evaluation_data for entry in logs]
    assert {check.asset_key.path[-1] for check in checks} == set(STEPS)
    assert {f"{check.asset_key.path[-1]}/{check.check_name}" for check in checks if not check.passed} == set()


def test_train_first_run_promotes_and_logs_one_verdict(trained, shown):
    toy, verdict = trained.toy, trained.toy.verdict(trained.done.run_id)
    assert (verdict.decision, verdict.champion, verdict.first_model) == ("promote", None, True)
    assert shown["promotion"]["decision"] == "promote"
    assert {control.name: control.status for control in verdict.controls} == dict.fromkeys(
        ("dataset", "benchmark", "cost", "reproducibility", "deployment"), "pass"
    )
    (entry,) = toy.verdict_log()
    assert (entry["action"], entry["verdict_sha256"]) == ("promote", record_sha256(verdict))
    assert toy.champion() == verdict.model_version == "1"
    assert set(verdict.binds) == {
        "model", "dataset", "split", "suite", "contract", "label", "code", "training_code", "environment",
    }  # fmt: skip
    assert all(re.fullmatch(r"[0-9a-f]{64}", sha256) for sha256 in verdict.binds.values())


def test_train_first_run_snapshot_has_the_contract_s_columns(shown):
    schema = shown["snapshot"]["dagster/column_schema"]
    found = {one.name: (one.type, one.constraints.nullable, one.constraints.unique) for one in schema.columns}
    assert found["row_id"] == ("integer", False, True)
    assert found["x1"] == ("number", False, False)
    assert found["score"] == ("number", True, False)
    assert schema.columns[-1].description == "target source, known at P1D"


def test_train_first_run_books_each_step_in_the_verdict(trained, shown):
    verdict = trained.toy.verdict(trained.done.run_id)
    for step in STEPS[:-1]:
        assert verdict.step_costs[step].usd == pytest.approx(shown[step]["cost/usd"])
    assert verdict.model_cost.usd == pytest.approx(sum(cost.usd for cost in verdict.step_costs.values()))


def test_train_first_run_records_name_the_records_they_were_made_from(trained):
    from trainworthy.lifecycle.protocol.records import PARENTS

    for step in STEPS:
        record = trained.toy.record(trained.done.run_id, step)
        parents = {name: trained.toy.record(trained.done.run_id, name) for name in PARENTS[step]}
        assert record.parents == {name: record_sha256(parent) for name, parent in parents.items()}
        assert record.provenance.run_id == trained.done.run_id


def test_train_first_run_report_is_small_and_opens_offline(trained, shown):
    path = trained.toy.var / "reports" / "toy" / f"{trained.done.run_id}.html"
    assert shown["promotion"]["report"] == str(path)
    page = path.read_text()
    assert len(page) < 2_000_000
    fetched = re.findall(r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["']?(?!data:|#)([^"'> ]+)""", page)
    assert fetched == []
    assert "@import" not in page
    assert re.findall(r"url\((?!['\"]?data:)", page) == []
    assert (path.parent / "latest.html").read_text() == page


def test_train_first_run_is_one_finished_mlflow_run_linked_both_ways(trained, shown):
    found = trained.toy.mlflow_run(trained.done.run_id)
    assert found.info.status == "FINISHED"
    assert found.data.tags["intent"] == "candidate"
    assert found.data.tags["dagster/url"].endswith(f"/runs/{trained.done.run_id}")
    assert {metadata["mlflow/run"] for metadata in shown.values()} == {
        f"http://127.0.0.1:5000/#/experiments/{found.info.experiment_id}/runs/{found.info.run_id}"
    }
    assert found.data.params["training.optimizer.learning_rate"] == "0.01"
    assert found.data.params["hyperparameters.width"] == "32"
    for step in STEPS:
        assert found.data.tags[f"step/{step}"] == "passed"
        assert found.data.metrics[f"cost/{step}/usd"] == pytest.approx(shown[step]["cost/usd"])
    assert found.data.metrics["full/val_loss"] == pytest.approx(shown["full"]["metric/val_loss"])


def test_train_first_run_in_mlflow_has_a_name_that_people_know_its_data_and_the_columns_to_compare_by(trained):
    found = trained.toy.mlflow_run(trained.done.run_id)
    assert found.info.run_name == "toy_rows@v1 · promote"
    assert (found.data.tags["verdict"], found.data.metrics["auc"] > 0.5) == ("promote", True)
    snapshot = trained.toy.record(trained.done.run_id, "snapshot")
    inputs = {one.dataset.name: one.dataset.digest for one in found.inputs.dataset_inputs}
    assert inputs.pop("toy_rows@v1") == trained.toy.record(trained.done.run_id, "dataset").content_hash[:36]
    assert inputs == {f"toy_rows@v1/{name}": split.file.sha256[:36] for name, split in snapshot.splits.items()}
    with trained.toy.tracking() as tracking:
        tags = tracking.client.get_experiment(found.info.experiment_id).tags
    columns = json.loads(tags["mlflow.sharedViewState.trainworthy"])["selectedColumns"]
    assert [*columns] == [
        "tags.`verdict`", "metrics.`auc`", "metrics.`log_loss`", "metrics.`full/val_loss`"
    ]  # fmt: skip
    shown = {column.partition(".")[2].strip("`") for column in columns if column.startswith("metrics.")}
    assert shown <= found.data.metrics.keys()


def test_train_first_run_version_says_what_its_verdict_was_and_what_a_request_must_hold(trained):
    with trained.toy.tracking() as tracking:
        version = tracking.client.get_model_version("toy", "1")
        model = tracking.version("toy", "1")
        run = tracking.client.get_run(version.run_id)
    assert version.description.startswith("**promote** on toy_rows@v1: auc 0.")
    assert (version.tags["verdict"], version.tags["dataset"]) == ("promote", "toy_rows@v1")
    assert version.tags["verdict/held_back_by"] == "nothing"
    # By it doctor --fix tells a verdict of this state from another one's.
    assert version.tags["verdict/run_id"] == run.data.tags["dagster/run_id"]
    assert {"benchmark/auc", "benchmark/log_loss"} <= version.tags.keys()
    form = yaml.safe_load((model.local / "MLmodel").read_text())
    inputs = {one["name"]: (one["type"], one["required"]) for one in json.loads(form["signature"]["inputs"])}
    assert inputs == {"shop": ("string", True), "x1": ("double", True), "x2": ("double", True)}
    assert (model.local / "serving_input_example.json").is_file()


def test_train_first_run_windows_were_mirrored_with_the_worker_s_own_times_and_each_once(trained):
    found = trained.toy.mlflow_run(trained.done.run_id)
    (file,) = (trained.toy.var / "training" / "toy").glob("*/full/metrics.jsonl")
    lines = list(windows_in(file))
    points = [(line.at_ms, line.point) for line in lines if line.point]
    wanted = {(point.figure, point.step, at_ms) for at_ms, point in points if point.slice is None}
    with trained.toy.tracking() as tracking:
        logged = [
            (figure, metric.step, metric.timestamp)
            for figure in {figure for figure, _, _ in wanted}
            for metric in tracking.client.get_metric_history(found.info.run_id, f"full/{figure}")
        ]
    assert {figure for figure, _, _ in wanted} == {"progressive_loss", "training_loss"}
    assert sorted(logged) == sorted(wanted)
    assert 0 < found.data.metrics["full/goodput"] < 1
    # What the monitors saw of each window is drawn beside it.
    signals = {line.signals.step for line in lines if line.signals}
    assert signals == {point.step for _, point in points if point.mode == "training"}
    assert 0 < found.data.metrics["full/update_ratio"] < 1
    assert found.data.metrics["full/gradient_norm"] > 0


def test_train_first_run_artifacts_hold_records_report_and_model(trained):
    found = trained.toy.mlflow_run(trained.done.run_id)
    with trained.toy.tracking() as tracking:
        files = {file.path for file in tracking.client.list_artifacts(found.info.run_id)}
        records = {file.path for file in tracking.client.list_artifacts(found.info.run_id, "records")}
        (model,) = tracking.client.search_logged_models([found.info.experiment_id])
    assert {"records", "report.html"} <= files
    # The model's files lie with the logged model, once.
    assert Path(model.artifact_location.removeprefix("file://"), "artifacts", "artifact", "model.pt2").is_file()
    assert (model.source_run_id, str(model.status)) == (found.info.run_id, "READY")
    assert model.tags["verdict"] == "promote"
    assert {metric.key for metric in model.metrics} >= {"auc", "log_loss"}
    assert {path.removeprefix("records/").split("-")[0] for path in records} == set(STEPS)


def test_train_first_run_dagster_process_never_imported_torch(trained):
    imported = set(re.findall(r"^import time:.*\| +(\S+)$", trained.done.out, re.MULTILINE))
    assert {"dagster", "mlflow", "polars"} <= imported
    assert "torch" not in imported


def test_train_first_run_says_which_step_and_promises_no_time_before_the_forecast(trained):
    told = [re.sub(r"about .* left", "about", line) for line in re.findall(r"step \d of .*", trained.done.out)]
    forecast = [f"step {number} of 8, about" for number in range(4, 9)]
    assert told == ["step 1 of 8", "step 2 of 8", "step 3 of 8", *forecast]


def test_train_says_once_what_the_data_learning_curve_does_not_tell(trained):
    assert trained.done.out.count("data-learning curve: whether more rows would help is unknown") == 1


def test_train_first_run_says_what_it_does_as_it_begins_to(trained):
    out = trained.done.out
    said = [
        "loading the use cases, then step 1", "step 1 of 8", "registering the model in MLflow",
        "loading the registered files in a fresh process", "updates again: the same weights?",
        "whether the rows are still the published ones", "verdict: ",
    ]  # fmt: skip
    places = [out.find(text) for text in said]
    assert -1 not in places, out
    assert places == sorted(places)
    assert "comparing with the champion" not in out


def judged_later(toy) -> Verdict:
    """A newer shadow verdict on another model, and its report, as its run leaves them."""
    path = log_in(toy.var)
    newest = log.read(path)[-1]
    first = toy.records.get("toy", "promotion", newest.verdict_sha256)
    assert isinstance(first, Verdict)
    later = first.model_copy(update={"identity": "later", "decision": "shadow", "model_version": "2"})
    toy.records.put(later, "later")
    logged(
        path, action="shadow", model_version="2", verdict_sha256=record_sha256(later),
        previous_verdict_sha256=newest.verdict_sha256,
    )  # fmt: skip
    (toy.var / "reports" / "toy" / "latest.html").write_text("the report of the later verdict")
    return later


def test_train_second_identical_run_reuses_all_and_shows_the_last_judgement(toy, trained):
    later = judged_later(toy)
    before = toy.verdict_log()
    second = toy.run(intent=FIRST)
    assert second.code == 0, second.out
    shown = toy.materialized(second.run_id)
    assert list(shown) == list(STEPS)
    for step, metadata in shown.items():
        assert metadata["lineage/reused"] == "true", step
        assert [metadata[name] for name in COST] == [0.0, 0.0, 0.0, 0.0]
    assert toy.verdict_log() == before
    assert toy.verdict(second.run_id) == trained.toy.verdict(trained.done.run_id)
    # The older verdict was found again; what is shown is the last one, and that this is another.
    assert toy.records.newest("toy", "promotion") == later
    assert shown["promotion"]["decision"] == "shadow"
    for told in ("An existing verdict is reused", "The last judgement is another: shadow, model version 2"):
        assert told in second.out
        assert told in (toy.var / "reports" / "toy" / f"{second.run_id}.html").read_text()
        assert told in unbroken(shown["promotion"]["reasons"]).replace("\\", "")
    assert "The champion is version 1." in second.out
    assert "step 8 of 8, equal to this step of run" in second.out
    assert " left" not in second.out
    assert (toy.var / "reports" / "toy" / "latest.html").read_text() == "the report of the later verdict"
    with toy.tracking() as tracking:
        assert [model.version for model in tracking.versions("toy")] == ["1"]
    assert toy.mlflow_run(second.run_id).info.status == "FINISHED"


def test_train_after_the_dataset_was_lost_makes_it_again_and_judges_with_the_snapshot_that_stands(toy, trained):
    first = {step: toy.record(trained.done.run_id, step) for step in STEPS}
    shutil.rmtree(toy.var / first["dataset"].path)
    toy.edit("use_case.yaml", "{run_usd: 0.5}", "{run_usd: 0.4}")
    again = toy.run()
    assert again.code == 0, again.out[-3000:]
    made = {step: toy.record(again.run_id, step) for step in STEPS}
    assert made["snapshot"] == first["snapshot"]
    assert made["dataset"] != first["dataset"]
    assert made["dataset"].identity == first["dataset"].identity
    (control,) = [control for control in made["promotion"].controls if control.name == "dataset"]
    assert control.status == "pass", control.reason
