"""What a run declares about the champion, what is compared with it, and which verdict moves the alias."""

import re
import shutil
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from toy_project import FIRST
from webhook_receiver import receiving

from trainworthy.assets.committed import entry_is_committed, tell_uncommitted
from trainworthy.lifecycle.protocol.records import STEPS
from trainworthy.lifecycle.storage.records import record_sha256
from trainworthy.lifecycle.use_case import load_use_case


@pytest.fixture
def unjudged(toy):
    """Trained and evaluated, but never judged: no registry and no verdict."""
    shutil.rmtree(toy.var / "mlflow")
    shutil.rmtree(toy.var / "verdicts")
    return toy


def test_champion_missing_and_not_declared_stops_at_preflight_with_the_fix(unjudged):
    done = unjudged.run()
    assert done.code == 1
    assert list(unjudged.materialized(done.run_id)) == ["dataset", "snapshot"]
    assert list(unjudged.observed(done.run_id)) == ["preflight"]
    assert "there is no champion to compare with" in done.out
    assert "fix: train as the first model until one is promoted: trainworthy train " in done.out
    assert not (unjudged.var / "verdicts" / "toy.jsonl").exists()


@pytest.mark.slow
def test_champion_that_exists_refuses_a_declared_first_model_before_training(toy):
    toy.edit("use_case.yaml", "{width: 32}", "{width: 16}")
    # Passed, so that it could be reused: the question must be asked all the same.
    assert toy.run("preflight_toy").code == 0
    done = toy.run(intent=FIRST)
    assert done.code == 1
    assert list(toy.observed(done.run_id)) == ["preflight"]
    assert "first_model is declared, but there is a champion" in done.out
    assert "fix: leave first_model out" in done.out
    training = {path.name for path in (toy.var / "training" / "toy").iterdir()}
    assert len(training) == 1


@pytest.mark.parametrize("intent", [FIRST, {}])
def test_champion_whose_alias_was_deleted_is_no_reason_to_promote_without_a_comparison(toy, intent):
    with toy.tracking() as tracking:
        tracking.client.delete_registered_model_alias("toy", "champion")
    before = toy.verdict_log()
    toy.edit("use_case.yaml", "seed: 7", "seed: 8")
    done = toy.run(intent=intent)
    assert done.code == 1
    assert list(toy.observed(done.run_id)) == ["preflight"]
    assert "the verdict log and the alias champion disagree" in done.out
    assert "{'verdict log': '1', 'alias': None}" in done.out
    assert toy.verdict_log() == before


def test_champion_after_a_crash_before_the_alias_moved_is_mended_by_the_doctor(toy):
    with toy.tracking() as tracking:
        tracking.client.delete_registered_model_alias("toy", "champion")
    # Nothing else changed: the reuse of every step must not hide it.
    done = toy.run(intent=FIRST)
    assert done.code == 1
    assert "Traceback" not in done.out, done.out
    assert "trainworthy doctor --fix" in done.out
    toy.call("-m", "trainworthy.pipeline.cli", "doctor", "--fix")
    assert toy.champion() == "1"
    mended = toy.run(intent=FIRST)
    assert mended.code == 0, mended.out
    assert len(toy.verdict_log()) == 1


def test_champion_that_saw_days_of_the_benchmark_stops_the_candidate_before_preflight(toy):
    before = toy.verdict_log()
    with toy.tracking() as tracking:
        tracking.client.set_model_version_tag("toy", "1", "calibrated_until", "2024-04-20")
    done = toy.run()
    assert done.code == 1
    assert list(toy.observed(done.run_id)) == ["preflight"]
    assert "the champion saw days of this benchmark" in done.out
    assert "champion's calibration ends 2024-04-20" in done.out
    assert "champion version 1 of toy_rows@v1, this run toy_rows@v1" in done.out
    assert '"dataset_version": "v2"' in done.out
    assert toy.verdict_log() == before
    # An experiment meets no champion and no benchmark.
    assert toy.run("experiment_toy").code == 0


@pytest.mark.slow
def test_champion_judged_on_a_dirty_tree_waits_until_the_code_is_committed(unjudged):
    (unjudged.folder / "notes.txt").write_text("not committed")
    dirty = unjudged.run(intent=FIRST)
    assert dirty.code == 0, dirty.out
    verdict = unjudged.verdict(dirty.run_id)
    assert verdict.decision == "shadow"
    assert any("commit it" in reason for reason in verdict.reasons)
    assert "control.reproducibility.insufficient" in verdict.held_back_codes
    assert unjudged.champion() is None
    unjudged.commit()
    clean = unjudged.run(intent=FIRST)
    assert clean.code == 0, clean.out
    assert unjudged.verdict(clean.run_id).decision == "promote"
    assert unjudged.champion() == "1"
    assert [entry["action"] for entry in unjudged.verdict_log()] == ["shadow", "promote"]
    shown = unjudged.materialized(clean.run_id)
    assert {step for step in STEPS if shown[step]["lineage/reused"] == "true"} == set(STEPS[:-1])


@pytest.mark.slow
def test_champion_against_an_equal_model_stays_unless_the_purpose_is_refresh(second_seed, trained, tmp_path):
    toy = second_seed.copied(tmp_path / "equal")
    (toy.folder / "slices").mkdir()
    (toy.folder / "slices" / "some.csv").write_text("row_id\n" + "\n".join(map(str, range(5000))) + "\n")
    declared = [
        "{where: x1 > 0 and shop != 'west', name: warm, at_most: 5, champion_margin: 3}",
        "{rows: slices/some.csv, name: none_of_them, at_most: 5, on_underpowered: warn}",
    ]
    toy.edit("use_case.yaml", "slices: [shop]", f"slices: [shop, {', '.join(declared)}]", commit=False)
    costs = "  decision: {costs: {false_positive: 3, false_negative: score}}\n"
    toy.edit("use_case.yaml", "  latency_ms: 50", f"{costs}  latency_ms: 50")
    with receiving() as receiver:
        second = toy.run(TRAINWORTHY_WEBHOOK=receiver.url)
    assert second.code == 0, second.out
    verdict, first = toy.verdict(second.run_id), trained.toy.verdict(trained.done.run_id)
    assert verdict.decision in ("shadow", "reject")
    assert [alert for alert in receiver.told() if alert[1] != "incident"] == [("info", "verdict", "toy_rows@v1")]
    assert (verdict.champion, verdict.model_version, verdict.first_model) == ("1", "2", False)
    assert verdict.previous_verdict_sha256 == record_sha256(first)
    assert verdict.binds["benchmark" if "benchmark" in verdict.binds else "split"] == first.binds["split"]
    assert verdict.binds["model"] != first.binds["model"]
    (gain,) = [found.gain for found in verdict.comparisons if found.reference == "champion"]
    assert gain.low <= gain.value <= gain.high
    assert gain.low <= 0
    assert toy.champion() == "1"
    warm, _ = verdict.slices
    assert warm.estimate is not None
    assert warm.gain is not None
    assert 0 < warm.rows < len(answers := pd.read_parquet(toy.var / verdict.answers.path))
    assert {"key:row_id", "candidate", "champion", "linear"} <= set(answers.columns)
    evaluation = toy.record(second.run_id, "evaluation")
    changes = {change.key: change for change in verdict.changed_limits}
    assert changes["slices[warm]"].before == "null"
    assert changes["decision"].by.startswith("use_case.yaml: commit ")
    # What a missed row costs is the row's, so one column is of both models.
    assert {"cost:row", "decision:champion"} <= set(answers.columns)
    spent = {one.model: one.estimate.value for one in evaluation.metrics if one.metric == "decision_cost"}
    assert spent["candidate"] == pytest.approx(
        answers["cost:row"].where(answers["decision:candidate"] != answers["label"], 0.0).mean()
    )
    (theirs,) = [one for one in verdict.champion_figures.metrics if one.metric == "decision_cost"]
    assert 0 < theirs.estimate.value < spent["prior"]
    assert ((answers["candidate"] >= evaluation.thresholds["candidate"]) == answers["decision:candidate"]).all()
    # The first model was judged without a decision: its own answers to the calibration rows give its threshold.
    assert 0 < answers["decision:champion"].mean() < 0.5
    with toy.tracking() as tracking:
        tags = next(model.tags for model in tracking.versions("toy") if model.version == "2")
    assert float(tags["threshold"]) == evaluation.thresholds["candidate"]
    assert len(list((toy.var / "champion" / "toy").iterdir())) == 1
    assert verdict.binds["suite"] == evaluation.suite.sha256
    # On the same rows the champion measures what it measured when it was the candidate.
    theirs = {(one.metric, one.slice): one.estimate for one in verdict.champion_figures.metrics}
    then = [one for one in toy.record(trained.done.run_id, "evaluation").metrics if one.model == "candidate"]
    assert all(theirs[one.metric, one.slice] == one.estimate for one in then)
    assert {one.model for one in verdict.champion_figures.calibration} == {"champion"}
    (aged,) = verdict.earlier_champions
    assert (aged.version, aged.metric, aged.reason) == ("1", "log_loss", "")
    assert aged.now == aged.then == theirs["log_loss", None]
    served = {one.quantity: one for one in verdict.serving}
    assert list(served) == ["latency", "batch_latency", "cold_load", "memory", "size"]
    assert all(one.low <= one.ratio <= one.high for one in served.values()), served
    assert {one.standing for one in served.values()} == {"not_asked"}
    assert first.serving == ()
    assert f"batch of {served['batch_latency'].rows} rows" in next(
        control.reason for control in verdict.controls if control.name == "deployment"
    )

    # The same verdict again: whether it fails the run is the run's choice.
    for fail_on, code in (("never", 0), ("reject", 1 if verdict.decision == "reject" else 0), ("shadow", 1)):
        again = toy.run(intent={"fail_on": fail_on})
        assert (fail_on, again.code) == (fail_on, code), again.out
        assert toy.verdict(again.run_id) == verdict
    assert len(toy.verdict_log()) == 2

    beside = "at_most_champion: {memory: 1.5, size: 1.5}"
    toy.edit("use_case.yaml", "  latency_ms: 50", f"  {beside}\n  latency_ms: 50", commit=False)
    toy.edit("use_case.yaml", "purpose: improve", "purpose: refresh")
    refreshed = toy.run()
    assert refreshed.code == 0, refreshed.out
    verdict = toy.verdict(refreshed.run_id)
    assert {one.quantity: one.standing for one in verdict.serving if one.limit} == {"memory": "pass", "size": "pass"}
    assert "at_most_champion" in {change.key for change in verdict.changed_limits}
    assert verdict.decision == ("promote" if gain.low > -0.01 else "shadow")
    page = tmp_path / "compared.html"
    shown = toy.call("-m", "trainworthy.pipeline.cli", "compare", "toy", "2", "1", "--page", str(page))
    assert "log loss" in shown.out
    assert "warm" in shown.out
    # As the verdict between these two measured it, not as each was measured at its own time.
    served = next(one for one in verdict.serving if one.quantity == "size")
    assert re.search(rf"size in MB, in turns +{served.candidate:.3g} +{served.champion:.3g}\n", shown.out)
    assert "Version 2 against version 1" in page.read_text()
    # The other way round every gain has the other sign.
    back = toy.call("-m", "trainworthy.pipeline.cli", "compare", "toy", "1", "2")
    told = f"{gain.value:+.4f}".translate(str.maketrans("+-", "-+"))
    assert told.lstrip("-+") in back.out
    assert re.search(rf"size in MB, in turns +{served.champion:.3g} +{served.candidate:.3g}\n", back.out)
    said = toy.call("-m", "trainworthy.pipeline.cli", "verdict", "toy").out
    assert ("held back by" in said) == (verdict.decision != "promote")
    never = toy.call("-m", "trainworthy.pipeline.cli", "compare", "toy", "7")
    assert (never.code, "this version was never judged" in never.out) == (1, True)
    # Judged by another rule on the same rows: the champion's answers are there.
    assert len(list((toy.var / "champion" / "toy").iterdir())) == 1
    if verdict.decision == "promote":
        assert toy.champion() == "2"
        with toy.tracking() as tracking:
            assert str(tracking.client.get_model_version_by_alias("toy", "rollback").version) == "1"
    with toy.tracking() as tracking:
        assert [model.version for model in tracking.versions("toy")] == ["2", "1"]


@pytest.mark.slow
def test_champion_that_is_given_a_decision_or_another_is_a_version_of_its_own_that_decides_as_it_was_evaluated(toy):
    """Version 1 decides nothing, 2 by a capacity, 3 by costs: one artifact, and nothing is trained."""
    import mlflow.pyfunc

    def declared(old: str, new: str):
        toy.edit("use_case.yaml", old, new)
        done = toy.run()
        assert done.code == 0, done.out
        return done.run_id, toy.verdict(done.run_id)

    def decided(version: str) -> pd.DataFrame:
        """What the registered version says of the benchmark's rows."""
        with toy.tracking() as tracking:
            model = tracking.version("toy", version)
            rows = pd.read_parquet(next((toy.var / "snapshots" / "toy").glob("*/benchmark.parquet")))
            return mlflow.pyfunc.load_model(model.source).predict(rows[["shop", "x1", "x2"]])

    capacity, costs = "decision: {capacity: 0.2}", "decision: {costs: {false_positive: 1, false_negative: 4}}"
    first_run, second = declared("  latency_ms: 50", f"  {capacity}\n  latency_ms: 50")
    assert (second.decision, second.model_version, second.champion) == ("promote", "2", "1")
    # Never compared with itself: it meets what version 1 met.
    assert (second.compared_with, second.first_model, second.of_champion) == (None, True, True)
    second_run, third = declared(capacity, costs)
    assert (third.decision, third.model_version, third.champion) == ("promote", "3", "2")
    assert second.binds["model"] == third.binds["model"]
    assert second.binds["decision"] != third.binds["decision"]
    assert len(list((toy.var / "training" / "toy").iterdir())) == 1
    assert toy.champion() == "3"
    with toy.tracking() as tracking:
        assert str(tracking.client.get_model_version_by_alias("toy", "rollback").version) == "2"
        models = {model.version: model for model in tracking.versions("toy")}
    assert isinstance(decided("1"), np.ndarray)
    for run_id, verdict in ((first_run, second), (second_run, third)):
        evaluation, found = toy.record(run_id, "evaluation"), decided(verdict.model_version)
        table = pd.read_parquet(toy.var / evaluation.predictions.path)
        assert found["decision"].tolist() == table["decision:candidate"].tolist()
        assert verdict.decides.threshold == evaluation.thresholds["candidate"]
        assert models[verdict.model_version].tags["threshold"] == repr(verdict.decides.threshold)
    assert 0 < found["decision"].mean() < 1
    # Of the earlier champions none is told twice: all are one artifact, that which is judged.
    assert (second.earlier_champions, third.earlier_champions) == ((), ())
    told = toy.call("-m", "trainworthy.pipeline.cli", "verdict", "toy").out
    assert "served      it decides: 1 from an answer of 0.2 on; the artifact is that of version 2" in told

    rolled_back = toy.run("rollback_toy")
    assert rolled_back.code == 0, rolled_back.out
    assert "version 3 is withdrawn: the artifact stays, and decides by its operating point of then" in rolled_back.out
    assert toy.champion() == "2"
    again = toy.run()
    assert (toy.verdict(again.run_id).decision, toy.verdict(again.run_id).model_version) == ("reject", "3")
    # What was taken off is one decision of the artifact, and not the other.
    _, fourth = declared(costs, capacity)
    assert (fourth.decision, fourth.model_version, toy.champion()) == ("promote", "2", "2")
    # Taken away, it is the version that never had one, which goes back to the one that has it as it was bound.
    _, fifth = declared(f"  {capacity}\n", "")
    assert (fifth.decision, fifth.model_version, fifth.decides, toy.champion()) == ("promote", "1", None, "1")
    models["2"].decision_file.write_bytes(models["3"].decision_file.read_bytes())
    refused = toy.run("rollback_toy")
    assert refused.code == 1
    assert "version 2 does not decide by what its verdict was about" in refused.out
    assert toy.champion() == "1"


def test_candidate_is_told_before_it_trains_what_no_commit_holds(fresh):
    use_case, told = load_use_case(fresh.folder), []
    run: Any = SimpleNamespace(
        use_case=use_case, intent="candidate", context=SimpleNamespace(log=SimpleNamespace(warning=told.append))
    )
    tell_uncommitted(run)
    assert not any("use_case.yaml" in line for line in told)
    told.clear()
    (fresh.folder / "use_case.yaml").write_text((fresh.folder / "use_case.yaml").read_text() + "\n# changed\n")
    run.intent = "experiment"
    tell_uncommitted(run)
    assert told == []
    run.intent = "candidate"
    tell_uncommitted(run)
    assert len(told) == 1
    assert told[0].startswith("the verdict of this run will be shadow at most: what the verdict is about differs from")
    assert "use_case.yaml: commit it" in told[0]


@pytest.mark.slow
def test_champion_of_a_moved_state_is_compared_where_it_lies_now(second_seed, tmp_path):
    toy = second_seed.copied(tmp_path / "a")
    shutil.move(toy.var, tmp_path / "moved state")
    moved = type(toy)(toy.root, tmp_path / "moved state")
    done = moved.run()
    assert done.code == 0, done.out
    assert {found.reference for found in moved.verdict(done.run_id).comparisons} >= {"champion"}
    assert not toy.var.exists()


def test_entry_of_a_dataset_version_counts_once_the_commit_has_it_as_it_is_here(fresh):
    use_case, path = load_use_case(fresh.folder), fresh.root / "data" / "versions.yaml"
    assert entry_is_committed(use_case)
    # Another version or dataset that somebody published meanwhile says nothing about this one.
    path.write_text(path.read_text().replace("  v2:", "  v3:"))
    assert entry_is_committed(use_case)
    assert not entry_is_committed(use_case.at_version("v3"))
    fresh.commit()
    assert entry_is_committed(use_case.at_version("v3"))
