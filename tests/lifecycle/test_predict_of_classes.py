"""Answers of a model of classes, as they are kept row by row, and slices by the label's own column."""

from pathlib import Path
from typing import Any, cast

import kind_jobs
import numpy as np
import pandas as pd
import pytest
import report_records
import yaml
from known import known

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.data.files import SplitFiles
from trainworthy.lifecycle.data.snapshot import with_label
from trainworthy.lifecycle.declarations import agreement_problems
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.evaluation.decision import cheapest, cost_table, decision_column
from trainworthy.lifecycle.evaluation.evaluate import evaluate
from trainworthy.lifecycle.evaluation.metadata_columns import DescribedRows, described_rows
from trainworthy.lifecycle.evaluation.predicate import parse
from trainworthy.lifecycle.evaluation.slice_levels import training_cuts
from trainworthy.lifecycle.evaluation.slice_parts import columns_of_parts, slice_parts
from trainworthy.lifecycle.evaluation.slice_results import measured_slices
from trainworthy.lifecycle.predict import run_predict
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.jobs import PredictJob
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec, DecisionSpec
from trainworthy.lifecycle.storage.state import StateFolder
from trainworthy.lifecycle.tasks.multiclass import Multiclass, log_loss
from trainworthy.lifecycle.tasks.statistic_columns import from_columns
from trainworthy.lifecycle.use_case import UseCase, load_use_case

TOP = {"top": {"low": 9.0, "middle": 9.0, "high": 9.0}}


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> kind_jobs.KindCase:
    return kind_jobs.kind_case("multiclass", tmp_path_factory.mktemp("graded") / "case")


@pytest.fixture(scope="module")
def job(graded, tmp_path_factory) -> PredictJob:
    """Answers of a trained model by slices of the label's own column."""
    trained = graded.train(tmp_path_factory.mktemp("trained"), "full")
    return PredictJob(
        use_case_folder=str(graded.folder), out=str(tmp_path_factory.mktemp("scored")), device="cpu", rows=graded.rows,
        artifact=trained.artifact, artifact_sha256=trained.artifact_sha256,
        rows_file=str(graded.splits / "benchmark.parquet"), columns=("grade", "shop"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def scored(graded, job) -> pd.DataFrame:
    """The same by a matrix, and beside baselines."""
    files = {f"{name}_file": str(graded.splits / f"{name}.parquet") for name in ("training", "calibration")}
    changed = {"baselines": ("prior", "linear"), "decision": DecisionSpec(cost_matrix=TOP), **files}
    result = run_predict(job.model_copy(update=changed))
    assert result.thresholds == {}
    return pd.read_parquet(result.predictions.path)


def test_what_each_model_decided_is_kept_row_by_row(graded, scored):
    kind, costs = Multiclass(kind_jobs.GRADES), cost_table(TOP, kind_jobs.GRADES)
    for model in ("candidate", "prior", "linear"):
        found = from_columns(kind, model, scored)
        assert scored[decision_column(model)].tolist() == cheapest(found, costs).tolist()
    assert (scored["decision:candidate"] != from_columns(kind, "candidate", scored).argmax(axis=1)).any()


def sliced(case: kind_jobs.KindCase, *slices: dict[str, Any] | str) -> BenchmarkSpec:
    values = case.spec.benchmark.model_dump(mode="json", exclude_none=True)
    values |= {"slices": slices, "slice_rows": 30, "baselines": ["prior", "linear"], "decision": {"cost_matrix": TOP}}
    return BenchmarkSpec.model_validate(values | {"behaviour": [], "fairness": {"columns": ["grade"]}})


def checked(case: kind_jobs.KindCase, benchmark: BenchmarkSpec, contract: Path | None = None) -> list[str]:
    """What `trainworthy check` says of conditions."""
    use_case = load_use_case(case.folder)
    changed = UseCase(spec=use_case.spec.model_copy(update={"benchmark": benchmark}), folder=case.folder)
    found = agreement_problems(changed, load_contract(contract or case.folder / "contract.yaml"))
    return [str(one) for one in found if "slices" in one.where]


def described(case: kind_jobs.KindCase) -> DescribedRows:
    return DescribedRows(SplitFiles(case.splits), {}, Path(), Path(), case.contract.label_values)


def grades(case: kind_jobs.KindCase) -> np.ndarray:
    """The classes of the benchmark's rows, whose files keep their places."""
    return np.array(kind_jobs.GRADES)[pd.read_parquet(case.splits / "benchmark.parquet")["grade"]]


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ('shop == "north" and grade == "top"', lambda grade, shop: (grade == "top") & (shop == "north")),
        ('grade in ["low", "top"]', lambda grade, shop: (grade == "low") | (grade == "top")),
        ('not grade == "low"', lambda grade, shop: grade != "low"),
    ],
)
def test_a_condition_on_the_label_means_the_class_by_its_name_in_check_and_evaluation(graded, scored, where, wanted):
    benchmark = sliced(graded, {"where": where, "name": "some", "at_most": 5.0})
    assert checked(graded, benchmark) == []
    rows = described(graded).read("benchmark", columns_of_parts(benchmark, ()))
    (part,) = slice_parts(benchmark, scored, rows, Path(), ())
    statistics = [f"candidate:{name}" for name in kind_jobs.GRADES]
    shop = pd.read_parquet(graded.splits / "benchmark.parquet")["shop"].to_numpy()
    assert part.mask.tolist() == wanted(grades(graded), shop).tolist()
    assert part.mask.any()
    (measured,) = measured_slices(scored, (part,), benchmark, Multiclass(kind_jobs.GRADES))
    inside = log_loss(scored["label"].to_numpy()[part.mask], scored[statistics].to_numpy()[part.mask])
    assert known(measured.estimate).value == pytest.approx(inside.mean())


@pytest.mark.parametrize("where", ["grade == 3", 'grade == "tpo"'])
def test_a_condition_on_the_label_that_names_no_class_is_refused_by_check(graded, where):
    assert len(checked(graded, sliced(graded, {"where": where, "at_most": 5.0}))) == 1


def test_a_number_of_a_class_is_no_text_of_the_rows_either(graded):
    with pytest.raises(EvaluationError, match="grade holds text"):
        parse("grade == 3").mask(described(graded).read("benchmark", ("grade",)))


def test_slices_by_the_label_are_told_by_the_classes_names(graded, scored):
    names = {f"grade={name}" for name in kind_jobs.GRADES}
    assert scored["slice:grade"].tolist() == grades(graded).tolist()
    assert scored["label"].tolist() == pd.read_parquet(graded.splits / "benchmark.parquet")["grade"].tolist()
    benchmark = sliced(graded, {"column": "grade", "at_most": 5.0}, "shop")
    own = described(graded)
    parts = slice_parts(benchmark, scored, own.read("benchmark", columns_of_parts(benchmark, ())), Path(), ())
    assert {part.name for part in parts} <= names | {"grade: small values"}
    assert {part.name for part in parts} & names
    features = own.read("benchmark", graded.rows.features)
    found = evaluate(
        scored, benchmark, Multiclass(kind_jobs.GRADES), benchmark_rows=len(scored), parts=parts, features=features,
        window=CheckResult(name="benchmark_window", status="pass", required=True), ordered=True,
        cuts=training_cuts(own.read("training", graded.rows.features)),
    )  # fmt: skip
    # All that is measured inside a class lacks other classes, and is told by the class's name as well.
    (groups,) = (check for check in found.checks if check.name == "groups")
    told = [one["slice"] for one in groups.details if "slice" in one] + [one.slice or "" for one in found.metrics]
    assert {one for one in told if one.startswith("grade=")} == names
    # What decides is measured inside a class as well, where it is a mean over rows.
    assert {one.slice for one in found.slices if one.estimate is not None} == {part.name for part in parts}
    values = {value.value for one in found.fairness if one.rate == "mean_loss" for value in one.values}
    assert values == names
    assert found.residuals is not None
    assert {axis.by for axis in found.residuals.axes} >= {f"answer {name}" for name in kind_jobs.GRADES}
    # The label's column is no feature, so that no rule of residuals or blind spots is about it.
    assert not any("grade" in one.rule for one in found.blind_spots)
    assert "grade" not in {axis.by for axis in found.residuals.axes}


def test_a_sensitive_label_is_told_by_no_name(graded, job, tmp_path):
    rows = graded.rows.model_copy(update={"sensitive": ("grade",)})
    result = run_predict(job.model_copy(update={"rows": rows, "out": str(tmp_path)}))
    told = pd.read_parquet(result.predictions.path)["slice:grade"]
    assert told.str.fullmatch(r"value \d").all()
    assert pd.crosstab(told, grades(graded)).gt(0).sum().eq(1).all()


def test_windows_of_a_training_name_slices_by_the_label_as_the_evaluation_does(graded, tmp_path):
    found = graded.train(tmp_path, "pilot", slices=("grade",))
    named = {point.slice for point in found.monitored if point.slice}
    assert named
    assert named <= {f"grade={name}" for name in kind_jobs.GRADES}


@pytest.mark.parametrize(
    ("column", "label", "values", "where", "wanted"),
    [
        ("integer", {"type": "class", "classes": [30, 10, 20]}, [10, 20, 30, 10], "what == 10",
         [True, False, False, True]),
        ("boolean", {}, [True, False, True, False], "what == True", [True, False, True, False]),
        ("boolean", {}, [True, False, True, False], "not what", [False, True, False, True]),
        ("integer", {}, [1, 0, 1, 0], "what == 1", [True, False, True, False]),
        # Beside a label of another name the column keeps its own values.
        ("string", {"name": "other", "type": "class", "classes": ["b", "a"]}, ["a", "b", "a", "b"], 'what == "a"',
         [True, False, True, False]),
    ],
)  # fmt: skip
def test_what_rows_keep_of_a_label_is_read_as_the_contract_has_it(
    graded, tmp_path, column, label, values, where, wanted
):
    document = yaml.safe_load((graded.folder / "contract.yaml").read_text())
    source = document["schema"][0]["properties"][-1]
    source |= {"name": "what", "logicalType": column}
    source.pop("quality", None)
    document["customProperties"][0]["value"] = {"name": "what", "version": 1, "column": "what"} | label
    (tmp_path / "contract.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    contract = load_contract(tmp_path / "contract.yaml")
    benchmark = sliced(graded, {"where": where, "at_most": 5.0})
    assert checked(graded, benchmark, tmp_path / "contract.yaml") == []
    with_label(pd.DataFrame({"what": values}), contract.label).to_parquet(tmp_path / "benchmark.parquet", index=False)
    own = DescribedRows(SplitFiles(tmp_path), {}, Path(), Path(), contract.label_values)
    assert parse(where).mask(own.read("benchmark", ("what",))).tolist() == wanted


def test_rows_are_described_by_the_contract_that_judged_them(graded, tmp_path):
    snapshot, dataset = report_records.snapshot(), report_records.dataset()
    found = described_rows(StateFolder(tmp_path), snapshot, graded.contract, cast("Any", dataset))
    assert found.values == {"grade": kind_jobs.GRADES}
