"""model.py watched on the toy: other files, memory between calls, rows that depend on each other; the split's gap."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import toy_jobs

from trainworthy.lifecycle.engine import leakage
from trainworthy.lifecycle.engine.leakage import leakage_in_training
from trainworthy.lifecycle.engine.preflight.sample import draw_sample
from trainworthy.lifecycle.leakage import preprocessing_leak
from trainworthy.lifecycle.leakage.split_gap import split_gap
from trainworthy.lifecycle.protocol.leak import Leak

FIT = "def fit_preprocessing(training, hyperparameters):\n"
TENSORS = "def to_tensors(rows, preprocessing):\n"
IMPORT = "import torch\n"
NUMBERS = '(rows[n].to_numpy(dtype="float32") - m) / s'


def watched(splits, tmp_path, *replacements, **fields) -> dict[str, Leak]:
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", *replacements)
    job = toy_jobs.preflight_job(splits, tmp_path, use_case=use_case, **fields)
    rows = pd.read_parquet(job.training_file)
    return {one.family: one for one in leakage_in_training(job, draw_sample(job, rows, "cpu"), rows)}


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


@contextmanager
def another_process_reading(path: Path, monkeypatch):
    """Opens the file while files are watched, as a validation that reads a table in batches; the kernel does not tell
    by whom. Asked each time, since one that reads over and over gets no core in time on a busy machine."""
    watched_files = preprocessing_leak.watched_files
    code = f"import sys\nfor line in sys.stdin: open({str(path)!r}).close(); print(flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answered = process.stdin, process.stdout

        @contextmanager
        def read_meanwhile(folders):
            with watched_files(folders) as watch:
                asked.write(b"read\n")
                asked.flush()
                answered.readline()
                yield watch

        monkeypatch.setattr(preprocessing_leak, "watched_files", read_meanwhile)
        yield


def test_leakage_in_training_files_that_another_process_opens_are_not_held_against_the_model(
    splits, tmp_path, monkeypatch
):
    with another_process_reading(splits / "validation.parquet", monkeypatch):
        finding = watched(splits, tmp_path)["data_files"]
    assert finding.status == "insufficient"
    assert "another process opens the same files: validation.parquet" in finding.evidence
    assert finding.fix


def test_leakage_in_training_file_that_only_the_model_opens_fails_beside_another_process(splits, tmp_path, monkeypatch):
    read = f"{FIT}    open({str(splits / 'calibration.parquet')!r}).close()\n"
    with another_process_reading(splits / "validation.parquet", monkeypatch):
        finding = watched(splits, tmp_path, (FIT, read))["data_files"]
    assert finding.status == "fail"
    assert "calibration.parquet" in finding.evidence
    assert "validation.parquet" not in finding.evidence


def test_leakage_in_training_evidence_counts_the_folders_that_are_watched(splits, tmp_path):
    folder = toy_jobs.copy_splits(splits, tmp_path / "data" / "a")
    toy_jobs.copy_splits(splits, tmp_path / "data" / "b")
    finding = watched(folder, tmp_path, data_folders=(str(tmp_path / "data"),))["data_files"]
    assert finding.status == "pass"
    assert "no file of 2 folders" in finding.evidence


def test_leakage_in_training_file_in_the_last_of_many_folders_fails(splits, tmp_path):
    for number in range(600):
        (tmp_path / "data" / f"{number:03}").mkdir(parents=True)
        (tmp_path / "data" / f"{number:03}" / "rows.parquet").touch()
    read = f"{FIT}    open({str(tmp_path / 'data' / '599' / 'rows.parquet')!r}).close()\n"
    finding = watched(splits, tmp_path, (FIT, read), data_folders=(str(tmp_path / "data"),))["data_files"]
    assert finding.status == "fail"


def test_leakage_in_training_folders_without_data_are_insufficient(splits, tmp_path):
    finding = watched(splits, tmp_path, data_folders=(str(tmp_path / "elsewhere"),))["data_files"]
    assert finding.status == "insufficient"


def test_leakage_in_training_queue_that_lost_events_is_insufficient(splits, tmp_path):
    """More openings than the kernel's queue holds, by turns, since equal ones that follow each other are one event."""
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    paths = [str(splits / f"{name}.parquet") for name in ("validation", "calibration")]
    flood = (
        f"{FIT}    import os\n    for _ in range({most}):\n        for path in {paths}: os.close(os.open(path, 0))\n"
    )
    finding = watched(splits, tmp_path, (FIT, flood))["data_files"]
    assert finding.status == "insufficient"
    assert "queue" in finding.evidence


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


def test_leakage_in_training_tensors_that_are_never_the_same_are_insufficient(splits, tmp_path):
    jitter = f"{TENSORS}    import os; rows = rows.assign(x1=rows['x1'] + int.from_bytes(os.urandom(2)))\n"
    finding = watched(splits, tmp_path, (TENSORS, jitter))["rows_apart"]
    assert finding.status == "insufficient"
    assert "on equal rows" in finding.evidence
    assert "same for equal rows" in finding.fix


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


def gap(rows: pd.DataFrame, *, by_time: bool) -> Leak:
    return split_gap(rows, ("x", "day_number"), "label", "day", "at", 0, by_time=by_time)


def test_split_gap_of_drift_warns_under_a_random_split_and_is_told_under_one_by_time():
    assert gap(days(2.0), by_time=False).status == "warning"
    told = gap(days(2.0), by_time=True)
    assert told.status == "pass"
    assert "random" in told.evidence


def test_split_gap_without_drift_passes():
    assert gap(days(0.0), by_time=False).status == "pass"


@pytest.mark.parametrize("batches", [1, 2, 3, 4])
def test_split_gap_of_rows_that_come_in_few_batches_takes_the_last_for_later_or_says_that_there_is_none(batches):
    rows = days(2.0).assign(at=lambda made: made["at"].dt.normalize().min() + pd.to_timedelta(
        made["day_number"] * batches // 60 * 30, unit="D"))  # fmt: skip
    found = gap(rows, by_time=False)
    assert found.status == ("not_applicable" if batches == 1 else "warning")
    assert batches > 1 or "0 rows, fewer than" in found.evidence


@pytest.mark.parametrize("labelled", ["later", "earlier"])
def test_split_gap_where_one_side_holds_one_label_is_not_judged(labelled):
    rows = days(0.0)
    other = rows["day_number"] >= 40 if labelled == "later" else rows["day_number"] < 50
    found = gap(rows.assign(label=rows["label"].where(~other, 0)), by_time=False)
    assert found.status == "not_applicable"
    assert "label 1 occurs in 0 groups" in found.evidence


def test_split_gap_of_rows_without_a_time_is_not_judged():
    assert gap(days(0.0).assign(at=pd.NaT), by_time=False).status == "not_applicable"


def test_leakage_in_training_of_rows_of_one_time_passes(splits, tmp_path):
    once = toy_jobs.copy_splits(splits, tmp_path / "once", training=of_one_time)
    assert watched(once, tmp_path)["split_gap"].status == "not_applicable"


def of_one_time(rows: pd.DataFrame) -> pd.DataFrame:
    time = toy_jobs.SPEC.prediction_time
    return rows.assign(**{time: rows[time].max()})


def test_leakage_in_training_gap_that_can_not_be_measured_is_insufficient(splits, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise ValueError("as sklearn of odd rows")

    monkeypatch.setattr(leakage, "split_gap", refuse)
    finding = watched(splits, tmp_path)["split_gap"]
    assert (finding.taxon, finding.status) == ("L3.1", "insufficient")
    assert "odd rows" in finding.evidence


def test_leakage_in_training_model_that_leaves_python_is_insufficient(splits, tmp_path):
    leave = f"{TENSORS}    if len(rows) == 1: raise SystemExit(3)\n"
    assert watched(splits, tmp_path, (TENSORS, leave))["rows_apart"].status == "insufficient"


@pytest.mark.parametrize("sensitive", [("shop",), ()], ids=["sensitive", "plain"])
def test_leakage_in_training_message_that_quotes_a_value_is_kept_back_if_a_feature_is_sensitive(
    splits, tmp_path, sensitive
):
    quote = f"{TENSORS}    if len(rows) == 1: raise ValueError('no place for ' + rows['shop'].iloc[0])\n"
    use_case = toy_jobs.changed_use_case(tmp_path / "toy", (TENSORS, quote))
    rows = toy_jobs.ROWS.model_copy(update={"sensitive": sensitive})
    job = toy_jobs.preflight_job(splits, tmp_path, use_case=use_case, rows=rows)
    training = pd.read_parquet(job.training_file)
    told = leakage_in_training(job, draw_sample(job, training, "cpu"), training)
    found = next(one for one in told if one.family == "rows_apart")
    assert found.evidence.startswith("ValueError: ")
    assert "model.py:" in found.evidence
    assert ("no place for" in found.evidence) == (not sensitive)


def test_split_gap_of_few_rows_is_not_judged():
    assert gap(days(0.0).head(100), by_time=False).status == "not_applicable"
