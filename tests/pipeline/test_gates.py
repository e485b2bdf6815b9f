"""Planted faults: each stops the run at the right step, for money not to be wasted after it, and leaves its account.

Three end the bare command: a stop of Dagster's own process, of a worker, and of a stage. The others run in this one.
"""

from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from test_train_job import COST, SHARED
from toy_project import FIRST, Done, Toy, plant, unbroken
from webhook_receiver import receiving

from trainworthy.lifecycle.gates.diagnosis import ORDER
from trainworthy.lifecycle.protocol.records import STEPS, StageReport


def stops_at(toy: Toy, step: str, check: str, done: Done) -> str:
    """The run stopped at the step, by that check, with record, cost, report, observation; gives the error's text."""
    assert done.code == 1, done.out[-3000:]
    before = list(STEPS[: STEPS.index(step)])
    assert list(toy.materialized(done.run_id)) == before
    record = toy.record(done.run_id, step)
    assert not record.passed
    stopping = {found.name: found for found in record.checks if found.stops}
    assert check in stopping, stopping
    assert stopping[check].fix
    assert record.cost.wall_seconds > 0
    assert record.cost.usd > 0
    observed = toy.observed(done.run_id)
    assert list(observed) == [step]
    assert observed[step].keys() >= SHARED | {"report", "mlflow/report"}
    assert observed[step]["decision"] == "stopped"
    assert "Fix" in observed[step]["reasons"]
    assert [observed[step][name] for name in COST] == pytest.approx(
        [record.cost.usd, record.cost.cpu_seconds, record.cost.gpu_seconds, record.cost.wall_seconds]
    )
    report = toy.var / "reports" / "toy" / f"{done.run_id}.html"
    assert f"report: {report}" in done.out
    page = report.read_text()
    assert f"stopped at {step}" in page.lower()
    tracked = toy.mlflow_run(done.run_id)
    assert (tracked.info.status, tracked.data.tags[f"step/{step}"]) == ("FAILED", "stopped")
    assert tracked.data.metrics[f"cost/{step}/usd"] == pytest.approx(record.cost.usd)
    assert toy.status(done.run_id) == "FAILURE"
    assert "Traceback" not in done.out.split(f"toy stopped at {step}")[1], done.out
    return done.out.split(f"toy stopped at {step}")[1]


def failed_checks(toy: Toy, run_id: str) -> set[str]:
    """Names of the asset checks that failed with severity ERROR, by step."""
    with toy.instance() as instance:
        logs = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        found = [entry.get_dagster_event().asset_check_evaluation_data for entry in logs]
    bad = [check for check in found if not check.passed and check.severity == dg.AssetCheckSeverity.ERROR]
    return {f"{check.asset_key.path[-1]}/{check.check_name}" for check in bad}


def worker_output(toy: Toy, run_id: str, step: str) -> tuple[str, str]:
    """Stdout and stderr of the workers, as Dagster's page of the run asks for them when the step is selected."""
    from dagster_graphql.schema import create_schema

    captured = "... on LogsCapturedEvent { fileKey stepKeys }"
    events = f'{{ logsForRun(runId: "{run_id}") {{ ... on EventConnection {{ events {{ {captured} }} }} }} }}'
    with toy.instance() as instance:
        context = SimpleNamespace(instance=instance, records_for_run_default_limit=None)

        def ask(query: str) -> dict[str, Any]:
            answer = create_schema().execute(query, context_value=context)
            assert not answer.errors
            return answer.data or {}

        found = ask(events)["logsForRun"]["events"]
        (key,) = [event["fileKey"] for event in found if step in event.get("stepKeys", ())]
        logs = ask(f'{{ capturedLogs(logKey: ["{run_id}", "compute_logs", "{key}"]) {{ stdout stderr }} }}')
    return logs["capturedLogs"]["stdout"], logs["capturedLogs"]["stderr"]


def publish(toy: Toy, old: str, new: str, version: str = "v8") -> None:
    """A dataset version with a fault that a build of the data would have, declared by the use case."""
    from trainworthy.resources.dvc import DatasetStore

    toy.edit("dataset.py", old, new)
    # Its own name: a next version of toy_rows may only add files, and these rows differ.
    for name in ("dvc.yaml", "data/versions.yaml"):
        path = toy.root / name
        path.write_text(path.read_text().replace("toy_rows", "faulty"))
    (toy.root / "data" / "versions.yaml").unlink()
    (toy.root / "data" / "toy_rows.yaml").rename(toy.root / "data" / "faulty.yaml")
    toy.edit("use_case.yaml", "{name: toy_rows, version: v1}", f"{{name: faulty, version: {version}}}")
    DatasetStore(toy.var).publish(toy.root, "faulty", version, {"days": 120, "seed": 1})
    toy.commit()


SHOP = '"shop": shop,'
UNKNOWN_SHOP = '"shop": np.where((day == 7) & (np.arange(rows) < 3), "souht", shop),'
X2 = '"x2": x2,'
NAN_X2 = '"x2": np.where((day == 7) & (np.arange(rows) < 3), np.nan, x2),'


def test_gate_unknown_value_in_the_data_stops_at_snapshot(toy):
    publish(toy, SHOP, UNKNOWN_SHOP)
    done = toy.execute()
    told = stops_at(toy, "snapshot", "contract", done)
    assert "known_shops" in told
    assert failed_checks(toy, done.run_id) == {"snapshot/contract"}
    # The toy was promoted before: its verdict stands, and what happened since is told.
    shown = toy.call("-m", "trainworthy.pipeline.cli", "verdict", "toy")
    assert shown.code == 0
    assert f"Since then: run {done.run_id} was stopped at snapshot: " in shown.out
    assert not list((toy.var / "snapshots" / "toy").glob("*/*.tmp"))


def test_gate_feature_that_is_known_only_later_stops_at_snapshot(toy):
    toy.edit(
        "contract.yaml",
        "logicalTypeOptions: {minimum: -10, maximum: 10}\n"
        "        customProperties: [{property: role, value: feature}, {property: availableAt, value: PT0S}]",
        "logicalTypeOptions: {minimum: -10, maximum: 10}\n"
        "        customProperties: [{property: role, value: feature}, {property: availableAt, value: P1D}]",
    )
    done = toy.run()
    told = stops_at(toy, "snapshot", "availability", done)
    assert "x1" in told


def test_gate_budget_below_the_forecast_stops_at_preflight(toy):
    toy.edit("use_case.yaml", "run_usd: 0.5", "run_usd: 0.0001")
    # Budget is no part of preflight's identity, so the trained record would be reused; another width is not.
    toy.edit("use_case.yaml", "{width: 32}", "{width: 33}")
    with receiving() as receiver:
        done = toy.run(TRAINWORTHY_WEBHOOK=receiver.url)
    told = stops_at(toy, "preflight", "cost_forecast", done)
    assert "budget.run_usd" in told
    # Judged by no run: why the newest ended is the answer.
    (toy.var / "verdicts" / "toy.jsonl").unlink()
    (toy.var / "records" / "toy" / "newest" / "all" / "promotion").unlink()
    shown = toy.call("-m", "trainworthy.pipeline.cli", "verdict", "toy")
    assert shown.code == 1
    assert "there is no verdict yet: the newest run was stopped at preflight: " in shown.out
    assert done.run_id in shown.out
    assert receiver.told() == [("error", "budget", "toy_rows@v1")]


def test_gate_model_that_raises_stops_at_preflight_and_names_the_line(toy):
    said = 'os.write(1, b"out of the worker"); os.write(2, b"err of the worker"); raise ValueError("planted")'
    toy.edit("model.py", "import torch\n", "import os\n\nimport torch\n")
    toy.edit("model.py", "return torch.sigmoid(outputs)", said)
    with receiving() as receiver:
        done = toy.finish(toy.start(toy.command("train_toy"), TRAINWORTHY_WEBHOOK=receiver.url))
    # What it raised may quote a value of a row: it stays in the log and the records.
    assert receiver.told() == [("error", "stopped run", "toy_rows@v1")]
    assert "planted" not in str(receiver.taken)
    told = stops_at(toy, "preflight", "one_batch", done)
    out, err = worker_output(toy, done.run_id, "toy__preflight")
    assert "== toy/preflight: worker for preflight\n" in out
    assert ("out of the worker" in out, "err of the worker" in err) == (True, True)
    # The run's own lines go to the terminal alone, the worker's there as well.
    assert "stopped at preflight" not in out + err
    assert "err of the worker" in done.out
    assert "planted" in told
    assert "in predict)" in told


@pytest.mark.slow
def test_gate_missing_values_in_an_input_stop_at_snapshot(toy):
    publish(toy, X2, NAN_X2)
    assert "x2" in stops_at(toy, "snapshot", "contract", toy.run())


@pytest.mark.slow
def test_gate_missing_values_that_the_contract_allows_stop_at_preflight(toy):
    publish(toy, X2, NAN_X2)
    toy.edit("contract.yaml", "name: x2\n        logicalType: number\n        required: true",
             "name: x2\n        logicalType: number\n        required: false")  # fmt: skip
    done = toy.run()
    # Three rows of 5,700: all of these are in preflight's sample.
    told = stops_at(toy, "preflight", "inputs", done)
    assert "inputs.finite" in told
    assert "numbers" in told


@pytest.mark.slow
def test_gate_labels_of_other_rows_never_promote(toy):
    publish(toy, '"score": np.where(generator.random(rows) < 0.02, np.nan, score),',
            '"score": generator.permutation(np.where(generator.random(rows) < 0.02, np.nan, score)),')  # fmt: skip
    done = toy.run()
    (found,) = [check for check in toy.record(done.run_id, "pilot").checks if check.name == "references"]
    assert found.status in ("insufficient", "fail")
    assert found.observed < found.threshold
    if "promotion" in toy.materialized(done.run_id):
        assert toy.verdict(done.run_id).decision != "promote"
    assert toy.champion() == "1"


@pytest.mark.slow
def test_gate_network_that_trains_on_other_rows_than_the_labels_stops_at_pilot(toy):
    # Logistic regression still finds the signal in these rows, so the network should have.
    plant(toy, "pilot", "def loss_fn(outputs, targets):\n", "targets = targets[torch.randperm(len(targets))]")
    done = toy.run()
    told = stops_at(toy, "pilot", "references", done)
    assert "labels that do not belong to their rows" in told
    # What full would have cost, by preflight's forecast.
    pilot, observed = toy.record(done.run_id, "pilot"), toy.observed(done.run_id)["pilot"]
    assert isinstance(pilot, StageReport)
    assert pilot.avoided_usd is not None
    # Of all parts the loss is the smallest whose exchange recovers.
    assert pilot.diagnosis is not None
    assert pilot.diagnosis.at_fault == "loss"
    (learned,) = [check for check in pilot.checks if check.name == "references"]
    assert [row["part"] for row in learned.details[: len(ORDER)]] == list(ORDER)
    # The command asks again, in a folder where the fault is not in effect: then the recipe is as good as another.
    asked = toy.call("-m", "trainworthy.pipeline.cli", "diagnose", done.run_id[:8], "--parts", "recipe")
    assert asked.code == 0, asked.out
    assert f"toy, run {done.run_id[:8]}" in asked.out
    assert "AdamW" in asked.out
    assert 0 < pilot.avoided_usd.low < observed["cost/avoided_usd"] < pilot.avoided_usd.high
    assert "The stop avoided" in unbroken(observed["reasons"])
    assert "The stop avoided" in (toy.var / "reports" / "toy" / f"{done.run_id}.html").read_text()


@pytest.mark.slow
def test_gate_model_that_raises_in_training_stops_at_smoke(toy):
    plant(toy, "smoke", "def loss_fn(outputs, targets):\n", 'raise ValueError("planted")')
    with receiving() as receiver:
        assert "planted" in stops_at(toy, "smoke", "completed", toy.run(TRAINWORTHY_WEBHOOK=receiver.url))
    (alert,) = receiver.taken
    assert "bug.ValueError" in alert["evidence"]
    assert "planted" not in str(alert)


@pytest.mark.slow
def test_gate_worker_that_is_killed_stops_with_a_word_about_it(toy):
    plant(toy, "smoke", "def loss_fn(outputs, targets):\n", "os.kill(os.getpid(), 9)")
    assert "SIGKILL" in stops_at(toy, "smoke", "completed", toy.run())


@pytest.mark.slow
def test_gate_loss_that_is_not_finite_stops_at_smoke_before_an_update(toy):
    plant(toy, "smoke", "def loss_fn(outputs, targets):\n", 'targets = targets * float("nan")')
    with receiving() as receiver:
        told = stops_at(toy, "smoke", "finite", toy.run(TRAINWORTHY_WEBHOOK=receiver.url))
    assert "the update was not applied" in told
    assert "row_id" not in str(receiver.taken)
    assert receiver.told() == [("error", "incident", "toy_rows@v1"), ("error", "stopped run", "toy_rows@v1")]


@pytest.mark.slow
def test_gate_deployment_that_is_killed_gives_no_verdict(toy):
    plant(toy, "deployment/toy", "def predict(outputs):\n", "os.kill(os.getpid(), 9)")
    before = toy.verdict_log()
    stops_at(toy, "promotion", "completed", toy.run())
    assert toy.verdict_log() == before


@pytest.mark.slow
def test_gate_deployment_that_raises_rejects(toy):
    plant(toy, "deployment/toy", "def predict(outputs):\n", 'raise ValueError("planted")')
    done = toy.run()
    assert done.code == 0, done.out[-3000:]
    assert toy.verdict(done.run_id).decision == "reject"
    assert {c.name: c.status for c in toy.verdict(done.run_id).controls}["deployment"] == "fail"
    assert toy.champion() == "1"


@pytest.mark.slow
def test_gate_first_run_of_all_stops_at_its_first_step_with_a_report(fresh):
    versions = fresh.root / "data" / "versions.yaml"
    versions.write_text(versions.read_text().replace("6d3bcf110628", "6d3bcf110629"))
    fresh.commit()
    told = stops_at(fresh, "dataset", "completed", fresh.run(intent=FIRST))
    assert "other content than published" in told
