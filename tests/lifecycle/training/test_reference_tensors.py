"""The network's tensors as a table for references, and a stage that loses its inputs on the way to them."""

import numpy as np
import pytest
import torch
import toy_jobs
from gated import checks_of

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training.judging.references import references_of
from trainworthy.lifecycle.engine.training.judging.tensors import flat, tensor_rows
from trainworthy.lifecycle.task import fit_preprocessing, load_task
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.multiclass import Multiclass


def test_tensors_are_flattened_by_name_and_place_and_wide_ones_strided():
    inputs = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([4, 5]), "c": torch.zeros(2, 2, 5)}
    table = flat(inputs, 2, 100)
    assert len(table) == 14
    assert table["a 2"].tolist() == [2.0, 5.0]
    assert (table["b 0"].dtype, table["b 0"].tolist()) == (np.int64, [4, 5])
    assert len(flat(inputs, 2, 5)) == 6
    assert len(flat({"picture": torch.zeros(2, 3, 224, 224)}, 2, 128)) == 128


def test_tensors_without_a_part_for_each_row_are_left_out():
    inputs = {"rows": torch.zeros(4, 2), "table": torch.zeros(3, 9), "rate": torch.tensor(0.1)}
    sparse = torch.eye(4).to_sparse()
    assert set(flat(inputs | {"sparse": sparse}, 4, 100)) == {"rows 0", "rows 1"}


def test_stage_and_validation_rows_become_tables_of_equal_columns(splits):
    import pandas as pd

    task, columns = load_task(toy_jobs.TOY), toy_jobs.ROWS
    rows = pd.read_parquet(splits / "validation.parquet")
    features = rows[list(columns.features)]
    seen = tensor_rows(task, fit_preprocessing(task, features, toy_jobs.SPEC.hyperparameters), rows[:90], rows, columns)
    assert seen is not None
    assert (len(seen.stage), len(seen.validation)) == (90, len(rows))
    assert seen.columns.features == ("numbers 0", "numbers 1", "shop 0")
    assert seen.stage["shop 0"].dtype == object or seen.stage["shop 0"].dtype == "str"
    answers = seen.fitted(references_of(BINARY)["linear"], 0)
    assert np.corrcoef(answers, rows["positive"])[0, 1] > 0.3


@pytest.mark.parametrize(("classes", "names"), [(3, 2), (10, 1)])
def test_trees_are_asked_of_few_numbers_an_answer(classes, names):
    assert len(references_of(Multiclass(tuple(range(classes))))) == names


def test_pilot_whose_tensors_lose_what_the_columns_tell_is_told_so(splits, tmp_path):
    lost = ('"numbers": torch.stack(', '"numbers": 0.0 * torch.stack(')
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", lost, ("+ 1 for i, name", "* 0 for i, name"))
    spec = toy_jobs.spec_with(training={"epochs": 12})
    job = toy_jobs.train_job(splits, tmp_path / "out", "pilot", spec=spec, use_case=use_case)
    check = checks_of("pilot", run_stage(job))["references"]
    assert (check.status, check.code) == ("fail", "inputs")
