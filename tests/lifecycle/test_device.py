"""Which device a job gets: what it declares, where it is there, and one for each process."""

import pytest
import torch
from toy_jobs import error_of, train_job, write_job

from trainworthy.lifecycle import torchrun
from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.failure import EXIT_BAD_INPUT
from trainworthy.lifecycle.scoring import choose_device


@pytest.mark.parametrize(
    ("declared", "gpus", "processes", "chosen"),
    [
        ("auto", 0, 1, "cpu"),
        ("auto", 1, 1, "cuda"),
        ("cpu", 4, 2, "cpu"),
        ("cuda", 2, 2, "cuda"),
        ("auto", 0, 4, "cpu"),
    ],
)
def test_device_is_the_declared_one_where_it_is_there(monkeypatch, declared, gpus, processes, chosen):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert choose_device(declared, processes) == chosen


@pytest.mark.parametrize("declared", ["cuda", "auto"])
def test_fewer_gpus_than_processes_are_refused(monkeypatch, declared):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(SettingsError) as caught:
        choose_device(declared, 2)
    assert "compute.processes is 2" in str(caught.value)
    assert "torch sees 1 here" in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_ranks_without_their_device_are_refused_once_before_any_starts(splits, tmp_path):
    job = train_job(splits, tmp_path, device="cuda", processes=2)
    assert torchrun.main(["--job", str(write_job(job))]) == EXIT_BAD_INPUT
    assert error_of(job)["problem"] == "compute.device is cuda, and torch sees no CUDA device here"
    assert not (tmp_path / "ranks").exists()
