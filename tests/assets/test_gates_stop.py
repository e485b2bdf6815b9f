"""A check that fails ends its step there: what comes after is not begun, and the record says why.

Each gate is asked with one planted check and its healthy twin. Whole runs are in tests/pipeline/test_gates.py.
"""

import contextlib
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from tests.lifecycle import report_records
from trainworthy.assets import announce, dataset, freshness, preflight, promotion, step, step_lines, training
from trainworthy.assets.stopped import error_check
from trainworthy.lifecycle import snapshot
from trainworthy.lifecycle.cost.prices import Sku
from trainworthy.lifecycle.data.file_rows import FileRows
from trainworthy.lifecycle.errors import DatasetError, EvaluationError, RecordError, StateError
from trainworthy.lifecycle.evaluation import row_costs
from trainworthy.lifecycle.gates import host as host_looks
from trainworthy.lifecycle.gates import stage as stage_gates
from trainworthy.lifecycle.gates.stage import steps_check, training_checks
from trainworthy.lifecycle.gates.stage_words import fix_of
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.records import Control, Cost, Forecast
from trainworthy.lifecycle.protocol.results import OwnTrainer, TrainResult
from trainworthy.lifecycle.protocol.training_figures import StageSeconds
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.spec.benchmark import DecisionSpec
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.use_case import load_use_case

TOY = load_use_case(Path(__file__).parents[1] / "toy" / "use_cases" / "toy")


class BegunError(Exception):
    """Raised by what comes after a gate."""


def begun(*given, **how):
    raise BegunError


def check(name: str, status: str) -> CheckResult:
    return CheckResult.model_validate({"name": name, "status": status, "evidence": "planted", "fix": "mend it"})


def outcome_of(checks, body):
    return [one.name for one in checks if one.stops], body


@pytest.mark.parametrize(("history", "stopped"), [("fail", ["backfill"]), ("pass", [])])
def test_dataset_whose_past_was_rewritten_gives_no_version(monkeypatch, history, stopped):
    found = SimpleNamespace(rows=3, content_hash="c" * 64, dvc_hash="d", path="/state/rows", files=(), tree=None)
    monkeypatch.setattr(dataset, "DatasetStore", lambda root: SimpleNamespace(fetch=lambda *given, **how: found))
    monkeypatch.setattr(dataset, "kept_history", lambda run: check("backfill", history))
    monkeypatch.setattr(dataset, "published_version", lambda *given: SimpleNamespace(backfill=None))
    state = SimpleNamespace(root=Path("/state"), folder=Path, relative=str)
    run = SimpleNamespace(workspace=SimpleNamespace(state=state), use_case=TOY)
    outcome = dataset.fetch_dataset(run)  # pyright: ignore[reportArgumentType]
    assert outcome_of(outcome.checks, outcome.body is None) == (stopped, bool(stopped))


# Of each gate of the snapshot: the checks that it asks, and what comes after it.
SNAPSHOT = {
    "contract": "look_at_files", "availability": "look_at_files", "files": "read_columns", "splits": "judged_days",
    "class_balance": "judged_days", "history": "install_snapshot", "leakage": "install_snapshot",
    "drift": "install_snapshot", "": "install_snapshot",
}  # fmt: skip


@pytest.mark.parametrize("failing", SNAPSHOT)
def test_snapshot_with_a_check_that_stops_does_nothing_after_it(monkeypatch, failing):
    def asked(name):
        return lambda *given: check(name, "fail" if name == failing else "pass")

    with_label = SimpleNamespace(
        label=SimpleNamespace(name="label", column="y", kind=BINARY), feature_columns=(), primary_key=()
    )
    for name, given in {
        "availability_check": asked("availability"), "splits_check": asked("splits"),
        "class_balance_check": asked("class_balance"), "leakage": asked("leakage"), "drift_check": asked("drift"),
        "judged_days": lambda *given: (asked("history")(), None), "split_columns": lambda *given: (),
        "read_columns": lambda *given: [], "with_label": lambda *given: [], "key_hashes": lambda *given: None,
        "look_at_files": lambda *given: FileRows(asked("files")()),
        "split_rows": lambda *given: {"training": {"label": []}},
        "written_splits": lambda *given: contextlib.nullcontext(), SNAPSHOT[failing]: begun,
    }.items():  # fmt: skip
        monkeypatch.setattr(snapshot, name, given)
    state, rows = SimpleNamespace(absolute=Path), SimpleNamespace(path="rows", rows=1)

    def made():
        return snapshot.make_snapshot(state, TOY, with_label, rows, asked("contract"))  # pyright: ignore[reportArgumentType]

    if failing:
        assert outcome_of(*made()) == ([failing], None)
    else:
        with pytest.raises(BegunError):
            made()


@pytest.mark.parametrize("status", ["fail", "pass"])
def test_preflight_that_cannot_work_does_not_start_its_worker(monkeypatch, status):
    first = (Trial(check="configuration.steps", status=status, evidence="planted"),)
    monkeypatch.setattr(host_looks, "before_worker", lambda host: first)
    monkeypatch.setattr(preflight, "refuse_candidate", lambda run: None)
    monkeypatch.setattr(preflight, "host_of", lambda run: SimpleNamespace(spec=TOY.spec))
    monkeypatch.setattr(preflight, "worker_result", begun)
    run = SimpleNamespace(
        intent="experiment",
        use_case=TOY,
        sku=Sku(usd_per_hour=0.0),
        launcher=SimpleNamespace(uses_cuda=lambda compute: False),
    )
    if status == "pass":
        with pytest.raises(BegunError):
            preflight.try_out(run)  # pyright: ignore[reportArgumentType]
        return
    outcome = preflight.try_out(run)  # pyright: ignore[reportArgumentType]
    failed = {one.name: one.status for one in outcome.checks}
    assert (failed["configuration"], failed["memory_forecast"], failed["cost_forecast"]) == (
        "fail",
        *["insufficient"] * 2,
    )


def test_preflight_of_rows_without_a_cost_stops_before_anything_is_looked_at(monkeypatch):
    def refused(*given):
        raise EvaluationError("planted", fix="none")

    decision = DecisionSpec.model_validate({"costs": {"false_positive": 1, "false_negative": "score"}})
    benchmark = TOY.spec.benchmark.model_copy(update={"decision": decision})
    use_case = SimpleNamespace(name="toy", spec=TOY.spec.model_copy(update={"benchmark": benchmark}))
    file = SimpleNamespace(path="rows.parquet")
    splits = dict.fromkeys(("benchmark", "calibration"), SimpleNamespace(file=file))
    for name, given in {
        "refuse_candidate": lambda run: None, "host_of": begun, "job_base": lambda *given: {"rows": None},
    }.items():  # fmt: skip
        monkeypatch.setattr(preflight, name, given)
    state = SimpleNamespace(absolute=Path, folder=lambda *parts: Path(*parts))
    run = SimpleNamespace(
        intent="experiment", use_case=use_case, run_id="a", workspace=SimpleNamespace(state=state),
        record=lambda step, kind: SimpleNamespace(splits=splits),
    )  # fmt: skip
    monkeypatch.setattr(row_costs, "refuse_split_costs", refused)
    with pytest.raises(EvaluationError, match="planted"):
        preflight.try_out(run)  # pyright: ignore[reportArgumentType]
    asked = []
    monkeypatch.setattr(row_costs, "refuse_split_costs", lambda *given: asked.append(given[2]))
    with pytest.raises(BegunError):
        preflight.try_out(run)  # pyright: ignore[reportArgumentType]
    assert [set(paths) for paths in asked] == [{"benchmark", "calibration"}]


def answer() -> TrainResult:
    return TrainResult(
        alarm=None, rows=100, steps=10, planned_steps=10, resumed_from_step=0, parameters=3, parameters_sha256="a",
        prefix_steps=1, prefix_sha256="b", checkpoint=None, metrics={"val_loss": 0.5}, references=None, curve=(),
        seconds=StageSeconds(), device="cpu", gpu_seconds=0.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "ended", "status"),
    [(9, "early", "insufficient"), (25, "early", "pass"), (9, "", "fail"), (40, "", "pass")],
)
def test_training_that_ends_by_itself_stops_nothing_and_says_what_to_do(steps, ended, status):
    made = answer().model_copy(update={"steps": steps, "planned_steps": 40, "ended": ended})
    found = steps_check(made)
    assert (found.status, bool(found.fix)) == (status, status != "pass")
    assert ("ended by itself" in found.evidence) == (status == "insufficient")


@pytest.mark.parametrize(("status", "trained"), [("fail", [7]), ("pass", [7, 8])])
def test_pilot_whose_first_seed_fails_trains_no_others(monkeypatch, status, trained):
    monkeypatch.setattr(training, "train_job", lambda *given, **how: SimpleNamespace(out="out"))
    monkeypatch.setattr(training, "_mirrored", lambda run, folder: contextlib.nullcontext())
    monkeypatch.setattr(training, "training_checks", lambda stage, result: (check("finite", status),))
    monkeypatch.setattr(training, "_affordable_seconds", lambda run, spent: 1.0)
    monkeypatch.setattr(training, "seeds_of", lambda spec, stage: (7, 8))
    meter = SimpleNamespace(cost=lambda sku: SimpleNamespace(usd=0.0))
    run = SimpleNamespace(use_case=TOY, rented=None, in_worker=lambda job, left: answer(), context=None)
    results, _ = training._trainings(run, None, "run", "pilot", meter, 0.0)  # pyright: ignore[reportArgumentType]
    assert list(results) == trained


def stage_of(monkeypatch, found: CheckResult, preflight: Any = None, run_id: str = "own"):
    """What train_stage makes of a training whose only check is this, after this preflight."""
    still = Forecast(name="still_to_come", unit="usd", value=2.0, low=1.0, high=2.0)
    for name, given in {
        "training_run_id": "run", "_spent": 0.0, "_trainings": ({7: answer()}, {}), "_still_to_come": still,
        "stage_curve": (None, ()), "stage_checks": (found,), "job_kind": BINARY, "to_diagnose": None,
    }.items():  # fmt: skip
        monkeypatch.setattr(training, name, lambda *asked, given=given: given)
    state = SimpleNamespace(relative=str)
    records = SimpleNamespace(
        of_run=lambda use_case, step, run_id: {"own": preflight}.get(run_id), newest=lambda use_case, step: preflight
    )
    run = SimpleNamespace(
        intent="experiment", step="smoke", record=lambda name, kind: None, use_case=TOY, code_sha256="c",
        rented=Sku(usd_per_hour=0.0),
        workspace=SimpleNamespace(state=state, records=records), run_id=run_id,
    )  # fmt: skip
    return training.train_stage(run)  # pyright: ignore[reportArgumentType]


def test_stage_that_fails_for_what_a_rate_explains_names_first_what_preflight_measured_of_it(monkeypatch):
    rate = Trial(
        check="learning_rate.range", status="fail", severity="warning", code="rate_too_small", evidence="0.0001",
        cause="a rate that is too small", fix="declare a rate of about 0.03", own_cause=True,
    )  # fmt: skip
    family = CheckResult(
        name="learning_rate", status="fail", severity="warning", details=(rate.model_dump(mode="json"),)
    )
    fix = fix_of("references", "network")
    failed = CheckResult(name="references", status="fail", code="network", fix=fix)
    preflight, no_trials = (
        report_records.preflight().model_copy(update={"checks": found}) for found in ((family,), ())
    )
    (told,) = stage_of(monkeypatch, failed, preflight).checks
    measured = "a rate that is too small, as preflight's learning_rate.range measured: declare a rate of about 0.03"
    assert told.fix == f"{measured}; else: {fix}"
    assert stage_of(monkeypatch, failed, no_trials).checks == (failed,)
    # The newest preflight of another run measured other code, or another rate.
    assert stage_of(monkeypatch, failed, preflight, "another").checks == (failed,)


def test_fix_of_a_stage_names_its_own_run_in_the_command(monkeypatch):
    less = CheckResult(name="references", status="fail", severity="warning", fix=fix_of("references", "less"))
    (told,) = stage_of(monkeypatch, less, run_id="1f0c9d2e-77ab").checks
    assert told.fix.startswith("trainworthy diagnose 1f0c9d2e finds the part that holds it back")


@pytest.mark.parametrize(("status", "avoided"), [("fail", 2.0), ("pass", None)])
def test_stage_that_stops_tells_what_was_not_spent(monkeypatch, status, avoided):
    body = stage_of(monkeypatch, check("finite", status)).body
    assert body is not None
    assert (body.avoided_usd and body.avoided_usd.value) == avoided
    assert (body.steps, body.parameters_sha256, body.metrics["val_loss"]) == (10, "a", 0.5)


def test_message_of_a_step_names_what_stopped_it_and_nothing_else():
    message = step_lines.stopping_text((check("drift", "pass"), check("leakage", "fail")))
    assert ("leakage: fail" in message, "mend it" in message, "drift" in message) == (True, True, False)


def test_step_whose_work_raises_has_a_check_that_stops_it():
    found = error_check(DatasetError("the file is gone", value="x", fix="fetch it"))
    assert (found.name, found.stops, found.evidence, found.fix) == ("completed", True, "the file is gone", "fetch it")


@pytest.mark.parametrize(
    ("at", "error", "fix"),
    [
        ("smoke", KeyboardInterrupt(), "run again: finished steps are reused, and training resumes"),
        ("promotion", KeyboardInterrupt(), "run again: finished steps are reused"),
        ("promotion", RuntimeError("broken"), "see the traceback"),
    ],
    ids=["training", "judging", "broken"],
)
def test_step_that_was_interrupted_is_recorded_as_stopped(monkeypatch, at, error, fix):
    booked = []
    monkeypatch.setattr(step, "_record", lambda run, outcome, meter, message: outcome)
    monkeypatch.setattr(step, "step_metadata", lambda *given, **how: {})
    records = SimpleNamespace(put=lambda record, run_id: booked.append(record))
    cancelled = []
    started = SimpleNamespace(status=dg.DagsterRunStatus.STARTED)
    instance = SimpleNamespace(
        get_run_by_id=lambda run_id: started, report_run_canceling=lambda run, told: cancelled.append(run)
    )
    context = SimpleNamespace(
        log_event=lambda event: None, asset_key=dg.AssetKey("toy"), instance=instance, run=SimpleNamespace(run_id="r")
    )
    run = SimpleNamespace(
        workspace=SimpleNamespace(records=records), run_id="r", trains=False, context=context, step=at
    )
    step._book_interrupted(run, None, error)  # pyright: ignore[reportArgumentType]
    assert [(one.name, one.stops, one.fix) for one in booked[0].checks] == [("completed", True, fix)]
    # Only what somebody ended is shown as cancelled.
    assert cancelled == ([started] if isinstance(error, KeyboardInterrupt) else [])


def away(*given: object, **how: object) -> None:
    raise StateError("the shared state cannot be used: no answer", value="s3://models", fix="start it")


def test_step_that_was_interrupted_while_the_store_is_away_raises_what_interrupted_it(monkeypatch):
    def work(run):
        raise RuntimeError("broken")

    warned, ended = [], []
    monkeypatch.setattr(step, "_record", lambda run, outcome, meter, message: outcome)
    monkeypatch.setattr(step, "step_metadata", away)
    monkeypatch.setattr(step, "track", lambda *given, **how: None)
    run = SimpleNamespace(
        workspace=SimpleNamespace(records=SimpleNamespace(put=away)), run_id="r", trains=True, step="smoke",
        context=SimpleNamespace(log=SimpleNamespace(warning=warned.append)), tracked=lambda: None, named=str,
        tracking=SimpleNamespace(end=lambda tracked, status, name: ended.append(status)),
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="broken"):
        step._made(run, None, work)  # pyright: ignore[reportArgumentType]
    assert len(warned) == 2
    assert all("the shared state cannot be used" in line for line in warned)
    # MLflow hears of it all the same.
    assert ended == ["FAILED"]


@pytest.mark.parametrize("error", [StateError, RecordError])
def test_line_of_a_step_says_nothing_of_the_time_where_no_record_can_be_read(monkeypatch, error):
    def unread(*given: object) -> None:
        raise error("away", fix="start it")

    monkeypatch.setattr(step_lines, "steps_of", lambda run: ["dataset", "snapshot"])
    records = SimpleNamespace(of_run=unread, newest=unread)
    run = SimpleNamespace(workspace=SimpleNamespace(records=records), run_id="r", step="snapshot", use_case=TOY)
    assert step_lines.step_line(run) == "step 2 of 2"  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("error", "stops", "told"),
    [
        (None, False, "the step has its result again"),
        (ValueError("a value"), True, "ValueError, see the log of the run"),
        (dg.Failure("toy stopped\n  - contract"), True, "  - contract"),
    ],
)
def test_step_without_a_result_is_announced_in_our_own_words_only(error, stops, told):
    found = announce._completed(error)
    assert (found.stops, found.evidence) == (stops, told)


@pytest.mark.parametrize(("factor", "stopped"), [(1.01, True), (1.0, False), (math.nan, True)])
def test_promotion_of_a_model_that_cost_more_than_its_budget_ends_before_it_is_judged(monkeypatch, factor, stopped):
    monkeypatch.setattr(promotion, "model_cost", lambda run: Cost(usd=factor * TOY.spec.budget.run_usd))
    monkeypatch.setattr(promotion, "champion_of", begun)
    run = SimpleNamespace(use_case=TOY, record=lambda name, kind: None)
    if stopped:
        outcome = promotion.judge(run)  # pyright: ignore[reportArgumentType]
        assert outcome_of(outcome.checks, outcome.body) == (["cost"], None)
    else:
        with pytest.raises(BegunError):
            promotion.judge(run)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("status", ["pass", "insufficient", "fail"])
def test_control_is_shown_as_it_is_and_stops_nothing(status):
    found = promotion._control_check(Control(name="cost", status=status, reason="planted"))
    assert (found.name, found.status, found.stops) == ("cost", status, False)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DatasetError("no version is published", fix="publish one"), "no version is published"),
        (OSError("a value"), "OSError, see the log of the run"),
        (None, ""),
    ],
)
def test_freshness_that_cannot_be_judged_fails_the_run_and_announces_it(monkeypatch, error, told):
    def newest(use_case):
        if error:
            raise error
        return use_case

    announced = []
    monkeypatch.setattr(freshness, "newest_version", newest)
    monkeypatch.setattr(freshness, "judge_freshness", lambda use_case, workspace: check("freshness", "pass"))
    monkeypatch.setattr(freshness, "announce_checks", lambda *given: announced.extend(given[5]))
    log = SimpleNamespace(exception=lambda line: None)
    context = SimpleNamespace(log=log, run=SimpleNamespace(run_id="r"))
    asked = freshness.freshness_asset_check(TOY).op.compute_fn.decorated_fn(context, None)  # pyright: ignore
    if error is None:
        assert [shown.passed for shown in asked] == [True]
        return
    with pytest.raises(dg.Failure, match="toy stopped at freshness"):
        list(asked)
    assert [(one.status, one.evidence) for one in announced] == [("error", told)]


@pytest.mark.parametrize("script", [True, False])
def test_advice_beside_a_better_reference_exchanges_no_part_of_a_script(monkeypatch, script):
    less = CheckResult(
        name="references", status="fail", severity="warning", code="less", fix=fix_of("references", "less")
    )
    monkeypatch.setattr(stage_gates, "references_check", lambda *asked: less)
    made = answer().model_copy(
        update={"trainer": OwnTrainer(file="train.py", gradients=True, weights=True, checkpoints=1) if script else None}
    )
    (found,) = [check for check in training_checks("pilot", made) if check.name == "references"]
    assert ("trainworthy diagnose" in found.fix) is not script
    assert "is the model to ship" in found.fix
