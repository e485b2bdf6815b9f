"""Stages of the other kinds of task: `references` passes on healthy ones, and never on labels of other rows."""

import shutil
from dataclasses import replace

import kind_jobs
import numpy as np
import pandas as pd
import pytest

from trainworthy.lifecycle.gates.stage import training_checks
from trainworthy.lifecycle.gates.stage_words import fix_of

KINDS = ("regression", "quantiles", "multiclass", "multilabel")


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    root = tmp_path_factory.mktemp("kinds")
    return {kind: kind_jobs.kind_case(kind, root / kind) for kind in KINDS}


def checks_of(case, out, stage="pilot"):
    return {check.name: check for check in training_checks(stage, case.train(out, stage))}


def shuffled(case, folder, seed=0):
    """The same with training labels of other rows."""
    shutil.copytree(case.splits, folder)
    rows, label = pd.read_parquet(folder / "training.parquet"), case.rows.label
    rows[label] = np.random.default_rng(seed).permutation(rows[label])
    rows.to_parquet(folder / "training.parquet")
    return replace(case, splits=folder)


@pytest.mark.parametrize("kind", KINDS)
def test_pilot_and_full_of_a_healthy_kind_pass(cases, tmp_path, kind):
    for stage in ("pilot", "full"):
        found = checks_of(cases[kind], tmp_path / stage, stage)
        assert {name: check.evidence for name, check in found.items() if check.stops} == {}
        assert found["references"].status == "pass"
        assert found["monitors"].status == "pass"


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_other_rows_never_pass(cases, tmp_path, kind):
    found = checks_of(shuffled(cases[kind], tmp_path / "splits"), tmp_path / "out")["references"]
    assert found.status == "fail"
    assert found.fix in (fix_of("references", "rows"), fix_of("references", "network"))


def test_shuffled_prices_that_lean_the_right_way_by_luck_never_pass(cases, tmp_path):
    price = kind_jobs.kind_case("regression", tmp_path / "price", "price").declared(training={"seed": 101})
    found = [
        checks_of(shuffled(price, tmp_path / f"splits{seed}", seed), tmp_path / f"out{seed}")["references"]
        for seed in range(3)
    ]
    assert [check.status for check in found] == ["fail"] * 3
    assert any("the rest is not what it learned" in check.evidence for check in found)


@pytest.mark.parametrize("kind", KINDS)
def test_learning_rate_that_moves_nothing_never_passes(cases, tmp_path, kind):
    case = cases[kind].declared(training={"optimizer": {"learning_rate": 1e-9}})
    found = checks_of(case, tmp_path)["references"]
    assert found.status == "fail"
    assert found.fix == fix_of("references", "unmoved")


def test_numbers_that_begin_far_from_their_unit_are_told_to_begin_nearer(cases, tmp_path):
    raw = cases["regression"].changed(tmp_path / "raw", ("self.start + self.scale * found", "found"))
    found = checks_of(raw, tmp_path / "out")["references"]
    assert (found.status, found.stops) == ("insufficient", False)
    assert found.fix == fix_of("references", "nearer")


def test_number_in_another_unit_than_the_label_fails(cases, tmp_path):
    other = cases["regression"].changed(tmp_path / "other", ("return outputs\n", "return outputs / 60\n"))
    assert checks_of(other, tmp_path / "out")["references"].status == "fail"
