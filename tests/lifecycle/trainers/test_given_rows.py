"""Rows that a script tells: how many, or which; what could be mistaken for either is refused at the first update."""

from array import array

import numpy as np
import own_trainers
import pytest
import torch

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.trainers.session import count_of, numbers_of
from trainworthy.lifecycle.errors import TrainingError
from trainworthy.lifecycle.incidents.incident import read_incident

ROWS = {
    "none": (None, 0, ()),
    "a_count": (32, 32, ()),
    "a_count_of_numpy": (np.int64(32), 32, ()),
    "a_tensor": (torch.tensor([4, 2]), 2, (4, 2)),
    "a_tensor_of_int32": (torch.tensor([4, 2], dtype=torch.int32), 2, (4, 2)),
    "an_array": (np.array([4, 2]), 2, (4, 2)),
    "a_list": ([4, 2], 2, (4, 2)),
    "a_list_of_numpy_numbers": (list(np.array([4, 2])), 2, (4, 2)),
    "a_number_that_no_tensor_holds": ([2**70], 1, (2**70,)),
    "a_range": (range(3), 3, (0, 1, 2)),
    "an_array_of_python": (array("q", [4, 2]), 2, (4, 2)),
}
REFUSED = {
    "keys": ["a17", "a18"],
    "text": "all",
    "bytes": b"ab",
    "tensors": [torch.arange(3), torch.arange(2)],
    "a_mask": torch.tensor([True, False, True]),
    "a_mask_of_numpy": np.array([True, False]),
    "a_mask_of_python": [True, False],
    "one_bool": True,
    "the_rows_themselves": torch.zeros(4, 3),
    "floats": np.array([1.0, 2.0]),
    "fractions": [1.5],
    "a_table": torch.zeros(2, 2, dtype=torch.int64),
    "a_tensor_of_no_dimension": torch.tensor(4),
}


@pytest.mark.parametrize("way", ROWS)
def test_rows_by_count_or_number_are_read(way):
    rows, count, numbers = ROWS[way]
    assert (count_of(rows), numbers_of(rows)) == (count, numbers)


@pytest.mark.parametrize("way", REFUSED)
def test_rows_that_are_neither_are_refused_with_what_to_give(way):
    with pytest.raises(TrainingError, match="was given no rows") as raised:
        count_of(REFUSED[way])
    assert "mask.nonzero()" in str(raised.value)


@pytest.mark.parametrize("rows", ["rows.numpy()", "rows.tolist()", "(rows + 10**6).tolist()"])
def test_alarm_of_rows_told_by_number_comes_with_its_incident(splits, tmp_path, rows):
    folder = own_trainers.use_case(
        tmp_path / "toy", own_trainers.documented("hand"), ("rows=rows, model", f"rows={rows}, model"),
        ("        optimizer.zero_grad()\n", "        optimizer.zero_grad()\n        loss = loss / (step != 5)\n"),
    )  # fmt: skip
    result = run_stage(own_trainers.job(splits, folder, tmp_path / "out"))
    assert result.alarm is not None
    assert result.alarm.monitor == "non_finite_loss"
    incident = read_incident(tmp_path / "out" / "incidents" / "5-non_finite_loss")
    # Numbers of other rows than the stage's name none.
    assert bool(incident.batch_rows) == ("10**6" not in rows)
