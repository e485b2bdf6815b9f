"""Inputs that nobody has reviewed: what they do for a model is measured, and limits the verdict where it is most."""

import numpy as np
import pandas as pd
import pytest
import toy_jobs

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.leakage.unreviewed import (
    _few_rows,
    discriminability,
    measure_unreviewed,
    together,
    unreviewed_check,
)
from trainworthy.lifecycle.protocol.results import InputGain, UnreviewedInputs
from trainworthy.lifecycle.tasks.baselines import fit_baselines
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.regression import Regression

ROWS = 6_000


def table(seed: int = 1) -> pd.DataFrame:
    """Three honest inputs, of which two tell something of the label."""
    generator = np.random.default_rng(seed)
    x, y = generator.normal(size=(2, ROWS))
    label = (x + 0.5 * y + generator.logistic(size=ROWS) * 0.8 > 0.6).astype("int64")
    return pd.DataFrame({"x": x, "y": y, "noise": generator.normal(size=ROWS), "label": label})


def start_and_end(rows: pd.DataFrame) -> pd.DataFrame:
    """Two columns that only together are the outcome: none of them alone says much."""
    start = np.random.default_rng(2).uniform(0, 300, ROWS)
    return rows.assign(start=start, end=start + 5 + 10 * rows["label"])


def one_of_two(rows: pd.DataFrame) -> pd.DataFrame:
    """Two plain columns with the same distributions that have nothing to do with the outcome."""
    start = np.random.default_rng(2).uniform(0, 300, ROWS)
    return rows.assign(start=start, end=start + 5 + 10 * np.random.default_rng(3).integers(0, 2, ROWS))


def nulls_of_the_outcome(rows: pd.DataFrame) -> pd.DataFrame:
    """Of two columns one more is filled in where the label is 1, so that no single one's nulls tell it."""
    generator = np.random.default_rng(4)
    first = generator.random(ROWS) < 0.5
    second = first ^ (rows["label"] == 1)
    values = generator.normal(size=(2, ROWS))
    return rows.assign(start=np.where(first, values[0], np.nan), end=np.where(second, values[1], np.nan))


def nulls_by_chance(rows: pd.DataFrame) -> pd.DataFrame:
    generator = np.random.default_rng(5)
    values = np.where(generator.random((2, ROWS)) < 0.5, generator.normal(size=(2, ROWS)), np.nan)
    return rows.assign(start=values[0], end=values[1])


def words_of_the_outcome(rows: pd.DataFrame) -> pd.DataFrame:
    """Sentences of which each tells the outcome by one word in four, as honest ones do; none occurs twice."""
    generator = np.random.default_rng(6)
    words = np.array(["well", "good", "fine", "kind", "bad", "poor", "rude", "cold"])
    told = (rows["label"].to_numpy() == 0) * 4 + generator.integers(0, 4, ROWS)
    told = np.where(generator.random(ROWS) < 0.8, told, 7 - told)
    texts = [f"it was {words[word]} on visit {place} of us" for place, word in enumerate(told)]
    noise = generator.choice(["again", "today", "here", "there", "then", "maybe"], (ROWS, 6))
    return rows.assign(start=[f"{text} {' '.join(some)}" for text, some in zip(texts, noise, strict=True)])


def measured(rows: pd.DataFrame, unreviewed: tuple[str, ...]) -> UnreviewedInputs:
    """The figures for quick trees in the network's place."""
    features = [str(name) for name in rows if name != "label"]
    training, validation = rows.head(ROWS // 2), rows.tail(ROWS // 2)
    name = "gradient_boosting"
    predict = fit_baselines(training, features, "label", (name,), 0, BINARY)[name]
    found = measure_unreviewed(predict, training, validation, features, unreviewed, "label", 0, BINARY)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("plant", "status", "words"),
    [
        (start_and_end, "insufficient", "2 of 5 inputs were never reviewed and carry"),
        (one_of_two, "pass", "2 of 5 inputs were never reviewed and carry"),
        (nulls_of_the_outcome, "insufficient", "which of their values are missing gives an AUC of"),
        (nulls_by_chance, "pass", "2 of 5 inputs were never reviewed and carry"),
    ],
)
def test_unreviewed_inputs_that_carry_the_score_are_insufficient_and_their_healthy_twins_pass(plant, status, words):
    check = unreviewed_check(("start", "end"), measured(plant(table()), ("start", "end")), "shop")
    assert (check.status, check.severity) == (status, "error"), check.evidence
    assert words in check.evidence
    assert ("trainworthy contract review shop" in check.fix) == (status == "insufficient")
    assert [one["column"] for one in check.details] in (["start", "end"], ["end", "start"])


def test_unreviewed_inputs_that_only_together_tell_the_label_are_far_above_what_each_tells():
    found = measured(start_and_end(table()), ("start",))
    assert found.inputs[0].alone < 0.6
    assert found.auc > 0.97
    evidence = unreviewed_check(("start",), found, "shop").evidence
    assert "as good as a copy of the label" in evidence
    assert "far above what the inputs tell one by one" in evidence


def test_unreviewed_sentences_are_held_against_their_words_and_not_against_single_values():
    found = measured(words_of_the_outcome(table())[["start", "label"]], ("start",))
    assert 0.65 < found.inputs[0].alone < found.auc + 0.02
    evidence = unreviewed_check(("start",), found, "shop").evidence
    assert evidence.endswith("the strongest: start")


def test_unreviewed_inputs_of_a_number_are_told_by_what_the_auc_is_of():
    generator = np.random.default_rng(0)
    rows = pd.DataFrame(generator.normal(size=(ROWS, 2)), columns=["x", "y"])
    rows = rows.assign(label=rows.x + rows.y)
    training, validation = rows.head(ROWS // 2), rows.tail(ROWS // 2)
    kind = Regression()
    found = measure_unreviewed(
        lambda some: (some.x + some.y).to_numpy(), training, validation, ["x", "y"], ["x"], "label", 0, kind
    )
    assert found is not None
    assert found.event.startswith("label above ")
    assert f"of the gain (AUC 1.000 of {found.event}, " in unreviewed_check(("x",), found, "shop").evidence


def test_unreviewed_all_inputs_carry_all_of_an_honest_gain_and_nothing_else_is_held_against_them():
    found = measured(table(), ("x", "y", "noise"))
    check = unreviewed_check(("x", "y", "noise"), found, "shop")
    assert check.status == "insufficient"
    assert check.evidence.startswith("3 of 3 inputs were never reviewed and carry ")
    assert check.evidence.endswith("the strongest: x, y, noise")
    assert check.observed == pytest.approx(1.0, abs=0.1)


def test_unreviewed_honest_input_with_a_small_share_passes_and_a_large_share_does_not():
    found = {name: measured(table(), (name,)) for name in ("x", "noise")}
    assert {n: unreviewed_check((n,), one, "shop").status for n, one in found.items()} == {
        "x": "insufficient",
        "noise": "pass",
    }


def test_unreviewed_inputs_of_a_trained_stage_are_measured_on_its_validation_rows(splits, tmp_path):
    found = run_stage(toy_jobs.train_job(splits, tmp_path, "pilot", unreviewed=("x1",))).unreviewed
    assert found is not None
    assert (found.count, [one.column for one in found.inputs]) == (3, ["x1"])
    assert found.auc > 0.6 > found.auc_shuffled
    assert found.auc - found.auc_shuffled == pytest.approx(found.inputs[0].lost)


def test_unreviewed_reviewed_contract_passes_whatever_the_score():
    check = unreviewed_check((), None, "shop")
    assert (check.status, check.fix) == ("pass", "")


def test_unreviewed_inputs_of_a_stage_that_was_not_measured_are_insufficient_and_do_not_stop():
    check = unreviewed_check(("x",), None, "shop")
    assert (check.status, check.severity, check.stops) == ("insufficient", "error", False)
    assert "not measured" in check.evidence


def test_unreviewed_model_that_learned_nothing_shares_nothing_out():
    figures = {"standard_error": 0.02, "auc_shuffled": 0.5, "auc_nulls": 0.53, "auc_expected": 0.55, "count": 2}
    inputs = (InputGain(column="x", lost=0.03, alone=0.53),)
    check = unreviewed_check(("x",), UnreviewedInputs(auc=0.53, inputs=inputs, **figures), "shop")
    assert check.status == "insufficient"
    assert check.observed is None
    assert "too near to chance" in check.evidence


def test_unreviewed_together_adds_squared_distances_of_normal_scores():
    assert together([0.5, 0.5]) == pytest.approx(0.5)
    assert together([0.76025]) == pytest.approx(0.76025)
    assert discriminability(0.76025) == pytest.approx(1.0, abs=1e-4)
    # Two scores of d' 1 give one of d' sqrt(2): AUC = probit(1).
    assert together([0.76025, 0.76025]) == pytest.approx(0.8413, abs=1e-4)
    assert discriminability(0.3) == 0


def test_few_rows_keep_a_rare_label_and_one_label_alone_is_not_measured():
    labels = np.zeros(100_000, dtype=int)
    labels[::2500] = 1
    rows = pd.DataFrame({"x": np.arange(len(labels), dtype=float), "label": labels})
    assert _few_rows(rows, "label", 4_000)["label"].sum() == 40
    assert len(_few_rows(rows, "label", 4_000)) == 4_000
    of_one = rows.assign(label=0)
    asked = measure_unreviewed(lambda some: some["x"].to_numpy(), of_one, of_one, ["x"], ["x"], "label", 0, BINARY)
    assert asked is None
