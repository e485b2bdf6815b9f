"""Copies of a number and of a class are found, in disguise too; honest strong columns are not."""

import numpy as np
import pandas as pd
import pytest

from benchmarks import leakage as tables
from trainworthy.lifecycle.contract.model import Label
from trainworthy.lifecycle.leakage import separability
from trainworthy.lifecycle.leakage.battery import leakage_findings

NUMBER = Label(name="label", version=1, column="label", type="number")
LABELS = Label(name="label", version=1, column="label", type="labels", classes=("jazz", "live", "rare"), separator="|")
CLASS = Label(name="label", version=1, column="label", type="class", classes=("a", "b", "c", "d"))


def table(kind: str, seed: int = 3) -> pd.DataFrame:
    """The benchmark's table with a number, or a class in place of its label; the columns hardly tell anything of it."""
    rows, random = tables.table(seed, next(iter(tables.HEALTHY.values()))), np.random.default_rng(seed)
    number = np.exp(random.normal(size=len(rows)))
    place = random.choice(4, len(rows), p=[0.4, 0.3, 0.2, 0.1])
    return rows.assign(label=number if kind == "number" else place)


def correlated(values: np.ndarray, by: float) -> np.ndarray:
    """A column of that rank correlation, about, with the values."""
    random = np.random.default_rng(1)
    scores = pd.Series(values).rank(pct=True).sub(0.5) * np.sqrt(12)
    return by * scores.to_numpy() + np.sqrt(1 - by**2) * random.normal(size=len(values))


def exchanged(values: np.ndarray, share: float) -> np.ndarray:
    """The values, a share of them exchanged for those of other rows."""
    random = np.random.default_rng(2)
    return np.where(random.random(len(values)) < share, random.permutation(values), values)


def found(kind: str, column: np.ndarray, folder) -> list[str]:
    """Families that fail because of the column `x`, which is replaced."""
    rows = table(kind).assign(x=column)
    contract = tables.contract_of(rows).model_copy(update={"label": NUMBER if kind == "number" else CLASS})
    findings = leakage_findings(tables.written(rows, folder), contract, tables.SPLIT)
    return [one.family for one in findings if one.status in ("fail", "warning") and one.columns == ("x",)]


@pytest.mark.parametrize(
    ("kind", "disguise"),
    [
        ("number", lambda label: 3.2 * label + 7),
        ("number", lambda label: np.digitize(label, np.quantile(label, np.linspace(0, 1, 41)[1:-1]))),
        ("number", lambda label: label * (1 + 0.02 * np.random.default_rng(0).normal(size=len(label)))),
        ("number", lambda label: exchanged(label, 0.03)),
        ("multiclass", lambda label: np.array([3.0, 1.0, 2.0, 0.0])[label]),
        ("multiclass", lambda label: exchanged(label, 0.03)),
    ],
)
def test_copy_of_the_label_in_disguise_is_found(kind, disguise, tmp_path):
    assert found(kind, disguise(table(kind)["label"].to_numpy()), tmp_path) == ["single_feature"]


@pytest.mark.parametrize(
    ("kind", "honest"),
    [
        # As the value of an hour before in a series of autocorrelation 0.97.
        ("number", lambda label: correlated(label, 0.97)),
        ("number", lambda label: correlated(label, 0.9)),
        # One class stands apart, as one of three irises does by its petals; the others overlap.
        ("multiclass", lambda label: np.where(label == 0, -9.0, np.random.default_rng(0).normal(label * 0.5))),
    ],
)
def test_honest_strong_column_is_no_copy(kind, honest, tmp_path):
    assert found(kind, honest(table(kind)["label"].to_numpy()), tmp_path) == []


def test_nulls_that_belong_to_one_class_are_found(tmp_path):
    label = table("multiclass")["label"].to_numpy()
    noise = np.random.default_rng(0).normal(size=len(label))
    assert found("multiclass", np.where((label == 2) & (noise > -0.5), np.nan, noise), tmp_path) == ["null_mask"]


def test_copy_is_found_though_a_rare_class_has_no_held_out_row(tmp_path):
    rows = table("multiclass")
    # The splits follow the days: the last class lies in the oldest rows alone.
    oldest = rows["day"] <= rows["day"].quantile(0.4)
    rows["label"] = np.where((rows["label"] == 3) & ~oldest, 0, rows["label"])
    rows = rows.assign(x=np.array([3.0, 1.0, 2.0, 0.0])[rows["label"]])
    contract = tables.contract_of(rows).model_copy(update={"label": CLASS})
    findings = leakage_findings(tables.written(rows, tmp_path), contract, tables.SPLIT)
    assert [one.columns for one in findings if one.family == "single_feature" and one.status == "fail"] == [("x",)]


def of_labels(column, folder, held: np.ndarray) -> dict[str, tuple[str, str]]:
    """Status and evidence of each family that says something of the column `x`."""
    texts = pd.DataFrame(held.astype(int)).astype("str").agg("".join, axis=1)
    rows = table("multiclass").assign(x=column, label=texts.to_numpy())
    folder.mkdir()
    contract = tables.contract_of(rows).model_copy(update={"label": LABELS})
    findings = leakage_findings(tables.written(rows, folder), contract, tables.SPLIT)
    return {one.family: (one.status, one.evidence) for one in findings if one.columns == ("x",)}


def test_copy_of_one_of_several_labels_is_found_by_its_name_and_a_strong_column_is_none(tmp_path):
    random = np.random.default_rng(5)
    held = random.random((len(table("multiclass")), 3)) < np.array([0.4, 0.3, 0.05])
    status, evidence = of_labels(exchanged(np.where(held[:, 1], 7, 3), 0.03), tmp_path / "copy", held)["single_feature"]
    assert status == "fail"
    assert "one set of its values decides label live: Youden's J 0.9" in evidence
    rare = of_labels(held[:, 2] + random.normal(size=len(held)) * 0.05, tmp_path / "rare", held)["single_feature"]
    assert rare[0] == "fail"
    assert "decides label rare" in rare[1]
    strong = held[:, 0] * 1.5 + random.normal(size=len(held))
    status, evidence = of_labels(strong, tmp_path / "strong", held)["single_feature"]
    assert status == "pass"
    assert "decides a label (nearest: label jazz) alone; the strongest, x, has AUC 0.8" in evidence


def test_what_one_class_alone_is_asked_for_is_a_warning_that_names_it(tmp_path):
    label = table("multiclass")["label"].to_numpy()
    noise = np.random.default_rng(0).normal(size=len(label))
    rows = table("multiclass").assign(x=np.where((label == 1) & (noise > -0.5), noise, np.nan))
    contract = tables.contract_of(rows).model_copy(update={"label": CLASS})
    findings = leakage_findings(tables.written(rows, tmp_path), contract, tables.SPLIT)
    (found,) = [one for one in findings if one.family == "null_mask"]
    assert (found.status, found.columns) == ("warning", ("x",))
    assert "of the training rows of class b" in found.evidence


def test_too_few_rows_of_an_event_are_told_with_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(separability, "MINIMUM_TRAINING", 10**9)
    rows = table("multiclass")
    contract = tables.contract_of(rows).model_copy(update={"label": CLASS})
    findings = leakage_findings(tables.written(rows, tmp_path), contract, tables.SPLIT)
    (found,) = [one for one in findings if one.family == "single_feature"]
    assert (found.status, found.evidence.endswith("are needed (class a)")) == ("insufficient", True), found.evidence


def test_text_is_no_leak_of_its_next_bytes_and_texts_that_come_again_are_found(tmp_path, monkeypatch):
    rows, random = tables.table(3, next(iter(tables.HEALTHY.values()))), np.random.default_rng(0)
    words = np.array(["mean", "of", "the", "rows", "and", "axis", "scale", "eigenvalue"])
    texts = np.array([" ".join(words[random.integers(8, size=12)]) for _ in range(len(rows))], dtype=object)
    label = Label(name="label", version=1, column="text", type="text")

    def findings(texts: np.ndarray, folder) -> dict[str, str]:
        folder.mkdir()
        some = rows[["row_id", "day"]].assign(text=texts, label=texts)
        contract = tables.contract_of(some).model_copy(update={"label": label})
        found = leakage_findings(tables.written(some, folder), contract, tables.SPLIT)
        return {one.family: one.status for one in found}

    sound = findings(texts, tmp_path / "sound")
    assert not {"fail", "warning"} & set(sound.values())
    assert sound["single_feature"] == "not_applicable"
    # Of rows too few for any statistic, too: there is no column that it would be asked of.
    monkeypatch.setattr(separability, "MINIMUM_TRAINING", 10**9)
    assert findings(texts, tmp_path / "few")["single_feature"] == "not_applicable"
    monkeypatch.undo()
    again = texts.copy()
    again[::-20] = texts[: len(again[::-20])]
    assert findings(again, tmp_path / "again")["duplicates"] in ("fail", "warning")
