"""model.py watched on the toy: other files, memory between calls, rows that depend on each other; the split's gap."""

import numpy as np
import pandas as pd
import pytest
import toy_jobs

from lifecycle.leakage.finding import Finding
from lifecycle.leakage.in_training import leakage_in_training
from lifecycle.leakage.split_gap import split_gap
from lifecycle.preflight.sample import draw_sample

FIT = "def fit_preprocessing(training, hyperparameters):\n"
TENSORS = "def to_tensors(rows, preprocessing):\n"
IMPORT = "import torch\n"
NUMBERS = '(rows[n].to_numpy(dtype="float32") - m) / s'


def watched(splits, tmp_path, *replacements) -> dict[str, Finding]:
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", *replacements)
    job = toy_jobs.preflight_job(splits, tmp_path, use_case=use_case)
    rows = pd.read_parquet(job.training_file)
    return {one.family: one for one in leakage_in_training(job, draw_sample(job, rows, "cpu"), rows, "cpu")}


def test_leakage_in_training_healthy_toy_passes(splits, tmp_path):
    assert {one.status for one in watched(splits, tmp_path).values()} == {"pass"}


@pytest.mark.parametrize(
    "read",
    [
        "import pandas; pandas.read_parquet({path!r})",
        "import pyarrow.parquet; pyarrow.parquet.read_table({path!r}, memory_map=True)",
        "import polars; polars.read_parquet({path!r})",
    ],
    ids=["pandas", "pyarrow", "polars"],
)
@pytest.mark.parametrize("where", [IMPORT, FIT, TENSORS], ids=["import", "fit", "to_tensors"])
def test_leakage_in_training_rows_read_beyond_the_given_ones_fail(splits, tmp_path, read, where):
    line = read.format(path=str(splits / "validation.parquet"))
    indent = "" if where == IMPORT else "    "
    finding = watched(splits, tmp_path, (where, f"{where}{indent}{line}\n"))["data_files"]
    assert finding.status == "fail"
    assert "validation.parquet" in finding.evidence


def test_leakage_in_training_memory_of_other_rows_fails(splits, tmp_path):
    remember = f"{TENSORS}    SEEN.append(float(rows['x1'].max()))\n"
    use = f"{FIT}    if SEEN: return {{n: [max(SEEN), 1.0] for n in ('x1', 'x2')}}\n"
    found = watched(splits, tmp_path, (IMPORT, f"{IMPORT}SEEN = []\n"), (TENSORS, remember), (FIT, use))
    assert found["fitted_state"].status == "fail"


def test_leakage_in_training_state_that_is_never_the_same_is_insufficient(splits, tmp_path):
    jitter = f"{FIT}    import os; training = training.assign(x1=training['x1'] + int.from_bytes(os.urandom(2)))\n"
    assert watched(splits, tmp_path, (FIT, jitter))["fitted_state"].status == "insufficient"


@pytest.mark.parametrize(
    "replacement",
    [
        (NUMBERS, "(rows[n].to_numpy(dtype='float32') - rows[n].mean()) / (rows[n].std() + 1e-6)"),
        (NUMBERS, "rows[n].rank(pct=True).to_numpy(dtype='float32')"),
        (NUMBERS, f"{NUMBERS} + 0.01 * rows.reset_index().index.to_numpy(dtype='float32')"),
        ("return self.layers(torch", "return self.layers(inputs['numbers'].mean() + torch"),
    ],
    ids=["batch_mean", "rank", "place", "forward"],
)
def test_leakage_in_training_rows_that_depend_on_each_other_fail(splits, tmp_path, replacement):
    finding = watched(splits, tmp_path, replacement)["rows_apart"]
    assert finding.status == "fail"
    assert finding.fix


def test_leakage_in_training_model_that_raises_on_valid_values_is_insufficient(splits, tmp_path):
    narrow = f"{TENSORS}    assert len(rows) != 1, 'give me many rows'\n"
    found = watched(splits, tmp_path, (TENSORS, narrow))
    assert found["rows_apart"].status == "insufficient"
    assert "model.py" in found["rows_apart"].evidence


def days(drift: float) -> pd.DataFrame:
    """60 days of 60 rows; with drift each day has a base rate of its own, which its number gives away."""
    generator = np.random.default_rng(3)
    day = np.repeat(np.arange(60), 60)
    x = generator.normal(size=len(day))
    level = drift * generator.normal(size=60)[day]
    label = (x + level + generator.logistic(size=len(day)) > 0).astype(int)
    at = pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D")
    return pd.DataFrame({"x": x, "day_number": day, "at": at, "day": at, "label": label})


def gap(rows: pd.DataFrame, *, by_time: bool) -> Finding:
    return split_gap(rows, ("x", "day_number"), "label", "day", "at", 0, by_time=by_time)


def test_split_gap_of_drift_warns_under_a_random_split_and_is_told_under_one_by_time():
    assert gap(days(2.0), by_time=False).status == "warning"
    told = gap(days(2.0), by_time=True)
    assert told.status == "pass"
    assert "random" in told.evidence


def test_split_gap_without_drift_passes():
    assert gap(days(0.0), by_time=False).status == "pass"


def test_split_gap_of_few_rows_is_not_judged():
    assert gap(days(0.0).head(100), by_time=False).status == "not_applicable"
