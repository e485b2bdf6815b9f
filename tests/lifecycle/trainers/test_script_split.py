"""session.split: a script's held-out rows are those of the use case's own rule, in each process, resume and rerun."""

from pathlib import Path

import own_trainers
import pytest
import torch
import toy_jobs
from forked_ranks import train_by_ranks
from own_trainers import asked_at

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training.prepare import chosen_rows
from trainworthy.lifecycle.error_causes import PreemptedError
from trainworthy.lifecycle.errors import TrainingError
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.spec.split import GroupSplit

HAND = own_trainers.documented("hand")
GROUPS = GroupSplit.model_validate(
    {
        "by": "group",
        "group": "customer",
        "salt": "v1",
        "resample_by": "day",
        "shares": {"validation": 0.15, "calibration": 0.1, "benchmark": 0.2},
    }
)
FIRST = "    for step in range(first, session.steps):\n"
KEEPS = (
    FIRST,
    "    assert sorted(session.inputs) == INPUTS\n"
    "    import pandas\n    assert list(pandas.read_parquet(session.parquet())) == ['shop', 'x1', 'x2', 'positive']\n"
    f"    torch.save(session.split(), session.folder / f'split-from-{{first}}.pt')\n{FIRST}",
)


def script(documented: str = HAND) -> str:
    return f'{documented.replace(*KEEPS)}\n\nINPUTS = ["numbers", "shop"]\n'


def kept(job: TrainJob, first: int = 0, rank: str = "") -> list[torch.Tensor]:
    return list(torch.load(Path(job.out) / "script" / rank / f"split-from-{first}.pt"))


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@pytest.fixture
def folder(tmp_path) -> Path:
    return own_trainers.use_case(tmp_path / "toy", script())


@pytest.fixture(scope="module")
def customers(splits, tmp_path_factory) -> Path:
    """The toy with customers of whom the contract's features know nothing."""
    named = {"training": lambda rows: rows.assign(customer=rows["row_id"] % 50)}
    return toy_jobs.copy_splits(splits, tmp_path_factory.mktemp("customers"), **named)


def test_split_by_time_holds_out_the_latest_days_on_each_resume_and_rerun(splits, folder, tmp_path):
    job = own_trainers.job(splits, folder, tmp_path / "out", "pilot")
    with pytest.raises(PreemptedError):
        run_stage(job, asked_at(7))
    resumed = run_stage(job).resumed_from_step
    rerun = job.model_copy(update={"out": str(tmp_path / "rerun"), "stop_after_steps": 2})
    run_stage(rerun)
    training, held_out = kept(job)
    assert resumed > 0
    assert equal(kept(job, resumed), [training, held_out])
    assert equal(kept(rerun), [training, held_out])
    days = chosen_rows(job)[0]["day"]
    assert days[training.numpy()].max() < days[held_out.numpy()].min()
    assert len(training) + len(held_out) == len(days)
    assert training.dtype == held_out.dtype == torch.int64


def test_split_by_group_holds_out_whole_groups_that_the_model_never_sees(customers, folder, tmp_path):
    job = own_trainers.job(customers, folder, tmp_path / "out", "pilot", split=GROUPS)
    result = run_stage(job)
    training, held_out = kept(job)
    names = chosen_rows(job)[0]["customer"]
    assert not set(names[training.numpy()]) & set(names[held_out.numpy()])
    assert len(training) + len(held_out) == len(names)
    assert 0.05 < len(held_out) / len(names) < 0.15
    # What the rows know more of changes nothing that is trained.
    plain = own_trainers.use_case(tmp_path / "plain", HAND)
    without = run_stage(own_trainers.job(customers, plain, tmp_path / "without", "pilot", split=None))
    assert "customer" not in chosen_rows(job.model_copy(update={"split": None}))[0]
    assert without.parameters_sha256 == result.parameters_sha256


def test_each_process_holds_out_the_same_rows(customers, tmp_path):
    folder = own_trainers.use_case(tmp_path / "toy", script(own_trainers.documented("processes")))
    job = own_trainers.job(customers, folder, tmp_path / "out", processes=2, split=GROUPS)
    train_by_ranks(job)
    assert equal(kept(job), kept(job, rank="rank-1"))


@pytest.mark.parametrize(
    ("share", "fields", "problem"),
    [
        ("1.5", {}, "share that is not between 0 and 1"),
        ("1e-6", {}, "too few rows to hold out this share"),
        ("0.1", {"split": None}, "does not say how the use case splits"),
    ],
)
def test_split_that_cannot_be_made_ends_the_script_with_what_to_do(splits, tmp_path, share, fields, problem):
    asks = (FIRST, f"    session.split({share})\n{FIRST}")
    folder = own_trainers.use_case(tmp_path / "toy", HAND, asks)
    with pytest.raises(TrainingError, match=problem) as raised:
        run_stage(own_trainers.job(splits, folder, tmp_path / "out", **fields))
    assert raised.value.fix
