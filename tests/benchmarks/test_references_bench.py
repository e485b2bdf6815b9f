"""The cases of the bench `references`: what is planted is there, and healthy ones are declared without it."""

import ast

import numpy as np

from benchmarks.references import job_of
from benchmarks.references_cases import HEALTHY, PLANTED


def test_every_case_has_a_name_of_its_own_and_a_model_with_its_change():
    names = [case.name for case in (*HEALTHY, *PLANTED)]
    assert len(set(names)) == len(names)
    for case in (*HEALTHY, *PLANTED):
        ast.parse(case.source())


def test_what_is_planted_is_in_the_model_or_the_rows_and_healthy_rows_are_as_drawn():
    assert all(case.of_training is case.of_validation is None for case in HEALTHY)
    healthy = {case.name: case for case in HEALTHY}
    plain = {case.kind: case.source() for case in HEALTHY if not case.changed and not case.model}
    other = [case for case in PLANTED if case.name != "nothing to learn"]
    for case in other:
        declared = case.training.get("optimizer")
        assert case.of_training or case.of_validation or declared or case.source() != plain.get(case.kind), case.name
    rows = healthy["linear by nature"].rows(np.random.default_rng(0))
    change = next(case for case in PLANTED if case.name == "labels slipped by a row").of_training
    assert change is not None
    slipped = change(rows)
    assert slipped["y"].tolist() == [rows["y"].iloc[-1], *rows["y"].iloc[:-1]]


def test_splits_hold_all_rows_in_whole_groups(tmp_path):
    import pandas as pd

    job = job_of(next(case for case in HEALTHY if case.name == "300 rows"), "pilot", 0, tmp_path)
    training, validation = (pd.read_parquet(path) for path in (job.training_file, job.validation_file))
    assert (len(training), len(validation)) == (200, 100)
    assert not set(training["part"]) & set(validation["part"])
    assert validation["part"].nunique() == 20
