"""Rows are scored in chunks that fit into memory, and the chunks change no probability."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from trainworthy.lifecycle import scoring


class Wide:
    """Rows of `width` numbers; keeps how many were asked for at once."""

    def __init__(self, width: int) -> None:
        self.width, self.asked = width, []

    def to_tensors(self, rows, preprocessing):
        self.asked.append(len(rows))
        return {"x": torch.tensor(rows["x"].to_numpy(), dtype=torch.float32).unsqueeze(1).expand(-1, self.width)}

    def predict(self, outputs):
        return torch.sigmoid(outputs)


@pytest.mark.parametrize(("width", "most"), [(1, 100), (2**20, 16), (2**28, 1)])
def test_rows_are_scored_in_chunks_by_the_bytes_of_one(width, most):
    rows, task = pd.DataFrame({"x": np.linspace(-3, 3, 100)}), Wide(width)
    found = scoring.in_chunks(rows, task, {}, lambda inputs: inputs["x"][:, 0], "cpu", lambda raw, _: raw)
    assert max(task.asked[1:]) == most
    assert found == pytest.approx(1 / (1 + np.exp(-rows["x"].to_numpy())), abs=1e-6)


def test_no_rows_give_no_probabilities():
    none = pd.DataFrame({"x": []})
    task: Any = Wide(1)
    assert scoring.in_chunks(none, task, {}, lambda inputs: inputs["x"], "cpu", lambda raw, _: raw).shape == (0,)
