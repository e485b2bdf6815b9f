"""`trainworthy new` sees the kind of task from the target's values, or says what is wrong with them."""

import decimal

import numpy as np
import pandas as pd
import pytest
import yaml
from shop_rows import found, table, told
from test_new import new, set_up

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.spec.task import KINDS, TaskSpec
from trainworthy.lifecycle.tasks.regression import Regression
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.pipeline.cli import main
from trainworthy.pipeline.commands import new as new_command
from trainworthy.pipeline.scaffold.project import judged_by, rounded
from trainworthy.pipeline.scaffold.roles import least_alone_auc
from trainworthy.pipeline.scaffold.target import FoundTarget

ROWS = len(table())
X = table()["x"].to_numpy()
NOISY = X + np.random.default_rng(7).normal(size=ROWS)
# Three classes of 300 rows or more, and a number with two digits behind the point.
CLASS = np.digitize(NOISY, [-0.7, 0.7])
NAMED = np.array(["low", "middle", "high"])[CLASS]
NUMBER = (50 + 10 * NOISY).round(2)
EVERY = np.arange(ROWS)
# Any of three names, an empty text where a row has none of them.
SONGS = ("jazz", "live", "loud")
HELD = np.stack([NOISY > 0.3, EVERY % 3 == 1, NOISY < -0.5], axis=1)
TAGS = np.array(["|".join(np.array(SONGS)[row]) for row in HELD])
NAMED_TAGS = np.where(TAGS == "", "loud", TAGS)


def with_target(values, **columns) -> pd.DataFrame:
    return table().assign(bought=values, **columns)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("values", "kind", "why"),
    [
        (NAMED, "multiclass", "'bought' holds 3 different texts: kind multiclass"),
        (CLASS + 1, "multiclass", "3 different whole numbers, each in 3"),
        (CLASS * 10.0, "multiclass", "3 different whole numbers"),
        (np.char.zfill(CLASS.astype(str), 2), "multiclass", "'bought' holds 3 different texts"),
        (NUMBER, "regression", "different numbers: kind regression"),
        (NUMBER.astype(str), "regression", "different numbers: kind regression"),
        ((100 * NUMBER).round().astype(int), "regression", "different whole numbers: kind regression"),
        (CLASS / 2, "regression", "'bought' holds 3 different numbers: kind regression"),
        (np.where(EVERY < 3, 9, CLASS), "regression", "4 different whole numbers, 9 in 3 rows, too few for a class"),
        (EVERY % 11, "regression", "'bought' holds 11 different whole numbers: kind regression"),
        (CLASS > 0, "binary", "'bought' holds two values: kind binary"),
        # As many parts as there are places: two of them share a state.
        (np.array(["Portland, OR", "Salem, OR", "Austin, TX"])[CLASS], "multiclass", "3 different texts"),
    ],
)
def test_kind_is_seen_from_the_target_s_values_and_why_is_told(tmp_path, values, kind, why, suffix):
    result, problems = found(with_target(values), tmp_path, suffix=suffix)
    assert problems == []
    assert result is not None
    assert result.target.task.kind == kind
    assert why in result.target.why
    labels = result.target.label
    assert labels.classes == (tuple(sorted(set(np.asarray(values).tolist()))) if kind == "multiclass" else ())


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("separator", ["|", ";", ",", ", "])
def test_texts_of_names_that_combine_are_several_labels(tmp_path, separator, suffix):
    result, problems = found(with_target(np.char.replace(NAMED_TAGS, "|", separator)), tmp_path, suffix=suffix)
    assert problems == []
    assert result is not None
    told = f"'bought' holds 5 different texts, made of 3 names with {separator!r} between them: kind multilabel"
    assert (result.target.task.kind, result.target.why) == ("multilabel", told)
    label = result.target.label
    assert (label.type, label.classes, label.separator) == ("labels", SONGS, separator)


def test_empty_texts_have_none_of_the_labels_and_a_csv_file_s_are_told(tmp_path):
    result, problems = found(with_target(TAGS), tmp_path)
    assert problems == []
    assert result is not None
    assert (result.rows["bought"] == "").sum() == (TAGS == "").sum() > 0
    (tmp_path / "csv").mkdir()
    rows = with_target(np.where(EVERY % 9 == 0, "", NAMED_TAGS))
    result, problems = found(rows, tmp_path / "csv", suffix=".csv")
    assert problems == []
    assert result is not None
    assert "134 rows are empty and train nothing: if these have none of the labels, say so" in result.target.why


@pytest.mark.parametrize(
    ("values", "asked", "task"),
    [
        (CLASS, {"kind": "regression"}, {"kind": "regression"}),
        (CLASS, {"quantiles": "0.1,0.5,0.9"}, {"kind": "regression", "quantiles": (0.1, 0.5, 0.9)}),
        (CLASS > 0, {"kind": "binary"}, {"kind": "binary"}),
        ((CLASS > 0) * 1, {"kind": "multiclass"}, {"kind": "multiclass"}),
        (NAMED_TAGS, {"kind": "multiclass"}, {"kind": "multiclass"}),
        (np.array(["a", "b;c"])[CLASS % 2], {"kind": "multilabel"}, {"kind": "multilabel"}),
        ((CLASS > 0) * 1, {"kind": "regression"}, {"kind": "regression"}),
        (EVERY, {"kind": "regression"}, {"kind": "regression"}),
        ([f"town {place % 60}" for place in EVERY], {"kind": "multiclass"}, {"kind": "multiclass"}),
        ([f"town {place}" for place in EVERY], {"kind": "language_model"}, {"kind": "language_model", "length": 16}),
        (np.where(EVERY % 9, NAMED, "LOW"), {"kind": "multiclass"}, {"kind": "multiclass"}),
        ([decimal.Decimal(f"{value:.2f}") for value in NUMBER], {}, {"kind": "regression"}),
        (pd.Categorical(NAMED), {}, {"kind": "multiclass"}),
        (pd.array(CLASS, dtype="Int64"), {}, {"kind": "multiclass"}),
    ],
)
def test_kind_that_is_asked_for_or_typed_otherwise_is_taken(tmp_path, values, asked, task):
    result, problems = found(with_target(values), tmp_path, **asked)
    assert problems == []
    assert result is not None
    assert result.target.task.model_dump(exclude_defaults=True) == task
    assert ("as asked" in result.target.why) == bool(asked)


@pytest.mark.parametrize(
    ("values", "asked", "texts"),
    [
        (NAMED, {"kind": "binary"}, ("'bought' has 3 different values and is not binary", "whether bought is middle")),
        (NAMED, {"positive": "low"}, ("is not binary", "leave --kind and --positive out")),
        (NAMED, {"kind": "regression"}, ("regression needs numbers", "'bought' holds texts: 'middle' in")),
        (CLASS > 0, {"kind": "regression"}, ("holds true and false",)),
        (CLASS > 0, {"kind": "multiclass"}, ("holds true and false", "it is binary")),
        (NUMBER, {"kind": "multiclass"}, ("classes are texts or whole numbers",)),
        (NUMBER, {"kind": "regression", "positive": "1"}, ("--positive", "belongs to a target of two values")),
        (NAMED, {"kind": "multiclass", "quantiles": "0.5"}, ("--quantiles", "belong to numbers")),
        (NUMBER, {"quantiles": "0.9,0.1"}, ("--quantiles", "are no quantiles", "0.1,0.5,0.9")),
        (NUMBER, {"quantiles": "half"}, ("are no quantiles", "'half'")),
        (NAMED, {"kind": "multilabel"}, ("no text of 'bought' holds one of the separators '|', ';', ','", "as a|b")),
        (NUMBER, {"kind": "segmentation"}, ("segmentation needs masks, and a table holds none", "--data FOLDER")),
        (NUMBER, {"kind": "multilabel"}, ("labels are texts, and 'bought' holds numbers",)),
        (np.where(EVERY == 5, "odd|jazz", TAGS), {}, ("a label needs 10 rows", "'odd' in 1 row", "out of the texts")),
        (np.where(EVERY == 5, "jazz", np.char.add("all|", NAMED_TAGS)), {}, ("rows without it", "'all' in 1,199 rows")),
        (np.where(EVERY % 5 == 1, "Jazz", TAGS), {}, ("differ by case or by a blank alone", "'Jazz'")),
        (np.where(EVERY == 5, "jazz|jazz", TAGS), {"kind": "multilabel"}, ("hold a name twice", "'jazz|jazz' in 1")),
        (3.5, {}, ("'bought' has one value only, 3.5 in 1,200 rows",)),
        (3.5, {"kind": "regression"}, ("'bought' has one value only",)),
        ("low", {}, ("'bought' has one value only, 'low' in 1,200 rows",)),
        (np.where(EVERY == 5, "odd", NAMED), {}, ("a class needs 10 rows", "'odd' in 1 row", "into one class")),
        (np.where(EVERY < 3, 9, CLASS), {"kind": "multiclass"}, ("a class needs 10 rows", "9 in 3 rows")),
        ([f"name {place}" for place in EVERY], {}, ("1,200 different texts in 1,200 rows: they look like names",)),
        ([f"town {place % 200}" for place in EVERY], {}, ("200 different texts in 1,200 rows",)),
        (EVERY + 7, {}, ("names rows", "one for each row, without a gap", "write --kind")),
        (np.where(EVERY % 9, NAMED, "LOW"), {}, ("differ by case or by a blank alone", "'LOW'")),
        ([f"{value:.2f}".replace(".", ",") for value in NUMBER], {}, ("decimal comma, such as '", "decimal point")),
        (np.where(EVERY % 9, NUMBER.astype(str), "n/a?"), {}, ("134 are no numbers: 'n/a?' in 134 rows",)),
        (np.where(EVERY % 9, NUMBER.astype(str), "n/a?"), {"kind": "regression"}, ("134 are no numbers",)),
        (np.where(EVERY % 9, NAMED, ""), {}, ("an empty text in 134 rows",)),
        (np.where(EVERY % 9, NUMBER, np.inf), {}, ("column 'bought'", "infinite values", "leave these values empty")),
        (table()["at"], {}, ("holds times", "days until then")),
    ],
)
def test_target_that_no_model_can_predict_is_told_with_its_values_and_a_fix(tmp_path, values, asked, texts):
    problems = told(with_target(values), tmp_path, **asked)
    assert all(text in problems for text in texts), problems


def test_target_whose_name_is_an_identifier_s_is_told(tmp_path):
    rows = with_target(NAMED).rename(columns={"bought": "won"}).assign(customer_id=EVERY % 300)
    assert "its name says that it is an identifier" in told(rows, tmp_path, target="customer_id")


@pytest.mark.parametrize("values", [NAMED, NUMBER])
def test_target_without_a_value_leaves_rows_without_a_label(tmp_path, values):
    rows = with_target(values)
    rows.loc[::11, "bought"] = None
    result, problems = found(rows, tmp_path, suffix=".csv")
    assert problems == []
    assert result is not None
    assert result.rows["bought"].isna().tolist() == (rows.index % 11 == 0).tolist()


@pytest.mark.parametrize("asked", [{}, {"split": "stratified"}, {"split": "hash"}, {"group": "block"}])
@pytest.mark.parametrize("values", [NAMED, CLASS, TAGS, NUMBER], ids=["texts", "classes", "labels", "numbers"])
def test_rows_without_times_are_split_for_every_kind(tmp_path, values, asked):
    rows = with_target(values, block=EVERY % 150).drop(columns="at")
    result, problems = found(rows, tmp_path, time=None, **asked)
    assert problems == []
    assert result is not None
    chosen = "hash" if values is NUMBER else "stratified"
    assert result.windows.split.by == ("group" if "group" in asked else asked.get("split", chosen))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("values", [NAMED, CLASS, NUMBER], ids=["texts", "classes", "numbers"])
def test_copy_of_the_target_is_no_input_and_a_strong_input_is_one(tmp_path, values, suffix):
    numbers = NUMBER if values is NUMBER else CLASS * 1.0
    noise = np.random.default_rng(3).normal(size=ROWS)
    copies = {"scaled": numbers * 3 - 1, "blurred": numbers + noise * 0.02 * numbers.std()}
    # The end alone of what is predicted, which an honest input may decide.
    part = np.where(CLASS == 2, 1.0, 0.0) + 0.1 * noise
    result, problems = found(with_target(values, part=part, **copies), tmp_path, suffix=suffix)
    assert problems == []
    assert result is not None
    roles = {column.name: (column.role, column.remark) for column in result.columns}
    assert all(roles[name][0] == "other" and "probably a leak" in roles[name][1] for name in copies), roles
    assert (roles["x"][0], roles["part"][0]) == ("feature", "feature")


def test_column_that_decides_one_of_several_labels_is_no_input(tmp_path):
    noise = np.random.default_rng(3).normal(size=ROWS)
    rows = with_target(TAGS, copied=HELD[:, 1] * 2.0 + 0.1 * noise, strong=HELD[:, 0] + noise)
    result, problems = found(rows, tmp_path)
    assert problems == []
    assert result is not None
    roles = {column.name: (column.role, column.remark) for column in result.columns}
    assert (roles["copied"][0], roles["strong"][0], roles["x"][0]) == ("other", "feature", "feature")
    assert "probably a leak" in roles["copied"][1]


def test_class_between_two_others_is_found_in_a_copy_by_numbers():
    middle = pd.Series((CLASS == 1) * 1)
    events = [middle, pd.Series((CLASS == 0) * 1), pd.Series((CLASS == 2) * 1)]
    assert least_alone_auc(pd.Series(CLASS * 1.0), events, 0.97) > 0.99
    assert least_alone_auc(pd.Series(np.random.default_rng(0).normal(size=ROWS)), events, 0.97) < 0.6


@pytest.mark.parametrize(("value", "one_digit"), [(1234.5, 1000), (0.0347, 0.03), (0.96, 1), (5.4, 5), (1e-7, 1e-7)])
def test_drafted_margin_has_one_digit(value, one_digit):
    assert rounded(value) == one_digit


@pytest.mark.parametrize(
    ("kind", "values"),
    [("multiclass", ["a", "a"]), ("regression", [7.0, 7.0]), ("regression", [7.0])],
    ids=["a class", "a number", "a row"],
)
def test_label_of_one_value_gives_no_margin_and_is_told(kind, values):
    """`trainworthy new` refuses such a target before, so this guards whoever else drafts."""
    target = FoundTarget(
        "bought", TaskSpec(kind=kind), "", "number", classes=("a", "b") if kind != "regression" else ()
    )
    with pytest.raises(DatasetError, match="'bought' varies too little"):
        judged_by(target, pd.DataFrame({"bought": values}))


@pytest.mark.parametrize(
    ("values", "options", "judged"),
    [
        (NAMED, (), ("log_loss", 0.008, [{"metric": "calibration_error", "at_most": 0.1}])),
        (TAGS, (), ("log_loss", 0.005, [{"metric": "calibration_error", "at_most": 0.1}])),
        (NUMBER * 1e4, (), ("rmse", 1000, [{"metric": "bias", "at_most": 30000}])),
        (NUMBER / 1e4, (), ("rmse", 1e-5, [{"metric": "bias", "at_most": 3e-4}])),
        (NUMBER, ("--quantiles", "0.1,0.9"), ("pinball", 0.1, [{"metric": "interval_coverage", "at_least": 0.7}])),
        (NUMBER, ("--quantiles", "0.9"), ("pinball", 0.1, [{"metric": "coverage[0.9]", "at_least": 0.8}])),
    ],
    ids=["classes", "labels", "prices", "shares", "quantiles", "quantile"],
)
def test_drafted_use_case_of_each_kind_passes_check(tmp_path, monkeypatch, values, options, judged, capsys):
    project = set_up(tmp_path, monkeypatch)
    rows = with_target(values)
    assert new(project, rows, "--target", "bought", "--time", "at", *options, suffix=".parquet") == 0
    assert "task     'bought' holds " in capsys.readouterr().out
    folder = project / "use_cases" / "shop"
    spec, contract = load_use_case(folder).spec, load_contract(folder / "contract.yaml")
    benchmark = yaml.safe_load((folder / "use_case.yaml").read_text())["benchmark"]
    assert (spec.benchmark.primary.metric, spec.benchmark.primary.margin, benchmark["guardrails"]) == judged
    assert contract.label.type == {"multiclass": "class", "multilabel": "labels"}.get(spec.task.kind, "number")
    assert main(["check", "shop"]) == 0, capsys.readouterr().out
    assert "✓ predict" in capsys.readouterr().out


def test_labels_of_numbers_are_told_as_people_write_them():
    told = Regression().in_words(np.array([0.00123, 2.5, 152_400.0]))
    assert told == "median 2.5, 80 % from 0.501 to 121,920"


def test_kinds_that_may_be_asked_for_are_all():
    assert new_command.KINDS == KINDS


def test_classes_with_hostile_names_stay_as_they_are(tmp_path, monkeypatch, capsys):
    project = set_up(tmp_path, monkeypatch)
    names = np.array(["no", "null", "1", "a: b", "{{ x }}", 'größe "L"', "line\nbreak", "# x"])
    rows = with_target(names[EVERY * 7919 % len(names)])
    assert new(project, rows, "--target", "bought", "--time", "at", suffix=".parquet") == 0, capsys.readouterr().err
    contract = load_contract(project / "use_cases" / "shop" / "contract.yaml")
    assert contract.label.classes == tuple(sorted(names.tolist()))
    assert main(["check", "shop"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("values", "margin"),
    [
        # Half and half, one in ten and one in a hundred: as hard to beat, and not as large.
        (np.arange(ROWS) % 2, 0.005),
        ((np.arange(ROWS) % 10 == 0) * 1, 0.002),
        ((np.arange(ROWS) % 100 == 0) * 1, 0.0004),
        (NAMED, 0.008),
        (TAGS, 0.005),
    ],
    ids=["even", "a tenth", "a hundredth", "three classes", "labels"],
)
def test_drafted_margin_of_classes_goes_by_how_uncertain_they_are(tmp_path, values, margin):
    result, problems = found(with_target(values), tmp_path)
    assert problems == []
    assert result is not None
    assert judged_by(result.target, result.rows).primary == {"metric": "log_loss", "margin": margin}
