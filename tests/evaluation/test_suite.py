"""A suite's identity, how often its rows were looked at, and answers that are kept."""

import json

import numpy as np
import pandas as pd
import pytest

from trainworthy.lifecycle.errors import EvaluationError, RecordError
from trainworthy.lifecycle.evaluation.kept_answers import keep_answers, kept_answers, side_by_side
from trainworthy.lifecycle.evaluation.suite import changed_limits, look, looks_check, suite_of
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec

PLAIN = {
    "primary": {"metric": "log_loss", "margin": 0.01},
    "baselines": ["prior", "linear"],
    "guardrails": [{"metric": "auc", "at_least": 0.6}],
    "latency_ms": 1,
    "size_mb": 1,
}
HASHES = {"rows": "r", "label": "l", "code": "c", "files": {}}


def suite(values=None, **changed):
    return suite_of("toy", BenchmarkSpec.model_validate({**PLAIN, **(values or {})}), **{**HASHES, **changed})


def test_a_suite_is_its_rows_label_code_files_and_all_that_is_declared():
    plain = suite()
    others = [
        suite({"latency_ms": 2}), suite({"slices": ["a"]}), suite(rows="s"), suite(label="m"), suite(code="d"),
        suite(files={"slices/a.csv": "f"}),
    ]  # fmt: skip
    assert len({plain.sha256, *(one.sha256 for one in others)}) == 7
    # A name, a version and how often one may look say nothing of what is measured.
    assert suite({"suite": "shared", "version": 3, "looks": 9}).sha256 == plain.sha256
    assert (plain.name, suite({"suite": "shared"}).name) == ("toy", "shared")


def test_looks_count_models_by_rows_and_label_and_each_once(tmp_path):
    path = tmp_path / "suites" / "toy.jsonl"

    def seen(artifact: str, at: str = "2026-01-02T00:00:00+00:00", **changed):
        return look(path, suite(**changed), artifact, use_case="toy", run_id="1", at=at)

    assert seen("a", "2026-01-01T00:00:00+00:00").models == 1
    assert seen("a").models == 1
    assert seen("b", values={"latency_ms": 2}).models == 2
    assert seen("c", rows="fresh").models == 1
    last = seen("d")
    assert (last.models, last.since[:10]) == (3, "2026-01-01")
    assert looks_check(last, suite(), None).status == "pass"
    assert looks_check(last, suite(), 4).status == "pass"
    warned = looks_check(last, suite(), 3)
    assert (warned.status, warned.severity, warned.stops) == ("fail", "warning", False)


def test_a_line_that_a_crash_cut_short_is_no_look(tmp_path):
    path = tmp_path / "toy.jsonl"
    look(path, suite(), "a", use_case="toy", run_id="1", at="2026-01-01")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-9])
    assert look(path, suite(), "b", use_case="toy", run_id="1", at="2026-01-02").models == 2
    assert len(path.read_bytes().splitlines()) == 2
    assert look(path, suite(), "c", use_case="toy", run_id="1", at="2026-01-02").models == 3


@pytest.mark.parametrize("content", ["{", "[]", '{"rows": "r"}', "5"])
def test_looks_that_cannot_be_read_are_an_error(tmp_path, content):
    path = tmp_path / "toy.jsonl"
    path.write_text(content + "\n")
    with pytest.raises(RecordError, match="cannot be read"):
        look(path, suite(), "a", use_case="toy", run_id="1", at="2026-01-01")


def changes(before=None, now=None, **changed):
    return list(changed_limits(suite(before), suite(now, **changed)))


def test_changed_limits_name_what_was_and_what_is():
    assert changes() == []
    now = {
        "guardrails": [{"metric": "auc", "at_least": 0.5}],
        "slices": [{"where": "a > 1", "name": "x", "at_most": 1}],
    }
    assert changes(None, now) == [
        ("guardrails[auc at_least].at_least", 0.6, 0.5),
        ("slices[x]", None, {"where": "a > 1", "name": "x", "at_most": 1.0}),
    ]
    # Two slices of one metric are told apart, and so is one that is gone, how often one may look, and other rows.
    two = [{"where": "a == 1", "metric": "auc", "at_least": 0.9}, {"where": "b == 1", "metric": "auc", "at_least": 0.6}]
    lowered = [{**two[0], "at_least": 0.1}, two[1]]
    assert changes({"slices": two}, {"slices": lowered}) == [("slices[a == 1].at_least", 0.9, 0.1)]
    assert changes({"slices": two}, {"slices": two[1:]}) == [("slices[a == 1]", two[0], None)]
    assert changes({"looks": 5}, {"looks": 500}) == [("looks", 5, 500)]
    assert changes(files={"slice:slices/a.csv": "f"}) == [("files.slice:slices/a.csv", None, "f")]


def table(**changed) -> pd.DataFrame:
    plain = {"row": [0, 1], "group": ["a", "b"], "label": [0, 1], "candidate": [0.1, 0.2], "prior": 0.5}
    return pd.DataFrame({**plain, **changed})


def test_kept_answers_come_back_and_changed_bytes_do_not(tmp_path):
    path, _, size = keep_answers(tmp_path / "a", table())
    assert path.stat().st_size == size
    found = kept_answers(tmp_path / "a")
    assert found is not None
    pd.testing.assert_frame_equal(found, table())
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert kept_answers(tmp_path / "a") is None
    assert kept_answers(tmp_path / "none") is None
    (tmp_path / "a" / "answers.json").write_text(json.dumps([1]))
    assert kept_answers(tmp_path / "a") is None


def test_side_by_side_holds_both_models_by_key():
    theirs = table(candidate=[0.3, 0.4]).drop(columns="prior")
    found = side_by_side(table(), theirs, pd.DataFrame({"flight": [7, 8]}))
    assert found.columns.tolist() == ["key:flight", "row", "group", "label", "candidate", "prior", "champion"]
    assert found["champion"].tolist() == [0.3, 0.4]


@pytest.mark.parametrize("theirs", [table(label=[1, 1]), table(row=[1, 0]), table().head(1), table(group=["a", "c"])])
def test_rows_that_differ_between_models_are_refused(theirs):
    with pytest.raises(EvaluationError, match="did not answer the same rows"):
        side_by_side(table(), theirs, pd.DataFrame({"flight": [7, 8]}))
    assert np.isfinite(theirs["candidate"]).all()
