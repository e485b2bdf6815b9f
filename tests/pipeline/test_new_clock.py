"""`trainworthy new` makes hour and weekday of when the model is asked, and the draft's network reads them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from shop_rows import found, table

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.task import load_task
from trainworthy.pipeline.scaffold.profile import UseCaseDraft
from trainworthy.pipeline.scaffold.project import lay_out
from trainworthy.pipeline.scaffold.request import Request
from trainworthy.resources.settings import read_settings


def draft_of(rows: pd.DataFrame, folder: Path, **fields) -> UseCaseDraft:
    draft, problems = found(rows, folder, **fields)
    assert problems == []
    assert draft is not None
    return draft


def demand(days: int = 70, zone: str | None = None) -> pd.DataFrame:
    """One row an hour: what is asked for goes by the hour, and is less on Sundays."""
    at = pd.date_range("2024-01-01", periods=24 * days, freq="h", tz=zone)
    noise = np.random.default_rng(0).normal(scale=0.1, size=len(at))
    load = 2 + np.sin((at.hour - 6) / 24 * 2 * np.pi) - (at.day_of_week == 6) + noise
    return pd.DataFrame({"at": at, "warm": np.random.default_rng(1).normal(size=len(at)), "load": np.asarray(load)})


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_hourly_demand_has_hour_and_weekday_as_known_categories(tmp_path, zone, suffix):
    draft = draft_of(demand(zone=zone), tmp_path, target="load", suffix=suffix)
    assert draft.clock == ("hour", "weekday")
    assert draft.rows["hour"].tolist() == draft.rows["at"].dt.hour.tolist()
    assert draft.rows["weekday"].tolist() == draft.rows["at"].dt.day_of_week.tolist()
    request = Request("shop", tmp_path / "rows", "load", "at", None, (), None)
    folder = lay_out(request, read_settings(), draft, tmp_path / "project")
    assert load_contract(folder / "contract.yaml").unreviewed_features == ("warm",)
    code = (folder / "model.py").read_text()
    assert code[code.index("CATEGORIES = ") :].split()[2:5] == ["[", '"hour",', '"weekday",']


def test_network_of_hourly_demand_learns_the_hour(tmp_path):
    draft = draft_of(demand(), tmp_path, target="load")
    request = Request("shop", tmp_path / "rows", "load", "at", None, (), None)
    folder = lay_out(request, read_settings(), draft, tmp_path / "project")
    spec = yaml.safe_load((folder / "use_case.yaml").read_text())
    task, rows = load_task(folder), draft.rows[["warm", "hour", "weekday"]]
    values = draft.rows["load"].to_numpy(np.float32)
    state = task.fit_preprocessing(rows, spec["hyperparameters"])
    state["target"] = {"mean": float(values.mean()), "standard_deviation": float(values.std())}
    torch.manual_seed(0)
    model, inputs = task.build_model(state, spec["hyperparameters"]), task.to_tensors(rows, state)
    targets = torch.from_numpy(values)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(150):
        optimizer.zero_grad()
        task.loss_fn(model(inputs), targets).mean().backward()
        optimizer.step()
    with torch.no_grad():
        error = float(((model.eval()(inputs) - targets) ** 2).mean())
    # The noise alone is 0.01. Without the hour 0.5 of it would be left, the variance of a sine.
    assert error < 0.1


def test_dates_alone_have_a_weekday_and_no_hour(tmp_path):
    rows = table()
    rows["at"] = rows["at"].dt.normalize()
    assert draft_of(rows, tmp_path).clock == ("weekday",)


def test_rows_of_one_weekday_have_none(tmp_path):
    rows = table()
    rows = pd.concat([rows, rows.assign(visit_id=rows["visit_id"] + len(rows))], ignore_index=True)
    rows["at"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(len(rows)) // 20 * 7, unit="D")
    assert draft_of(rows, tmp_path).clock == ()


def test_column_of_that_name_is_kept_and_the_new_one_keeps_clear(tmp_path):
    rows = table().assign(
        hour=np.random.default_rng(2).normal(size=1200), weekday=lambda rows: rows["at"].dt.day_of_week
    )
    draft = draft_of(rows, tmp_path)
    # A weekday that the file already has is not made again.
    assert draft.clock == ("at_hour",)
    assert draft.rows["hour"].tolist() == rows["hour"].tolist()
    assert draft.rows["at_hour"].tolist() == rows["at"].dt.hour.tolist()


def test_hour_that_decides_the_label_is_an_input(tmp_path):
    rows = table()
    rows["bought"] = np.where(rows["at"].dt.hour < 12, "yes", "no")
    roles = {column.name: column.role for column in draft_of(rows, tmp_path).columns}
    assert roles["hour"] == "feature"
