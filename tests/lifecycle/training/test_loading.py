"""Batches that loader processes make: the same bits as whole tensors, with any number of loaders, resumed or not."""

import os
import signal
import time

import pytest
import toy_jobs

from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.engine.training.rows.loading import usual_loaders
from trainworthy.lifecycle.error_causes import PreemptedError

ACCUMULATE, AUGMENT = (
    {"batch_size": 32, "accumulate": 4},
    """

def augment(inputs, targets, generator):
    noise = torch.randn(inputs["numbers"].shape, generator=generator)
    return inputs | {"numbers": inputs["numbers"] + 0.01 * noise.to(inputs["numbers"].device)}, targets
""",
)


def spec(loaders: int | None = None, tensors: str = "per_batch", **training):
    return toy_jobs.spec_with(training={"tensors": tensors, **training}, compute={"loaders": loaders})


@pytest.fixture(scope="module")
def augmented(tmp_path_factory):
    """The toy with an augmentation of its numeric inputs."""
    folder = toy_jobs.changed_use_case(tmp_path_factory.mktemp("augmented") / "toy")
    source = (folder / "model.py").read_text()
    (folder / "model.py").write_text(source + AUGMENT)
    return folder


def trained(splits, out, spec, **fields):
    """The whole stage smoke; loaders come from the spec, as the step hands them on."""
    job = toy_jobs.train_job(splits, out, spec=spec, loaders=spec.compute.loaders, **fields)
    return run_stage(job)


@pytest.fixture(scope="module")
def ahead(splits, augmented, tmp_path_factory):
    return trained(splits, tmp_path_factory.mktemp("ahead"), spec(tensors="ahead", **ACCUMULATE), use_case=augmented)


@pytest.mark.parametrize("loaders", [1, 2])
def test_loaders_of_any_number_give_the_bits_of_whole_tensors(ahead, splits, augmented, tmp_path, loaders):
    found = trained(splits, tmp_path, spec(loaders, **ACCUMULATE), use_case=augmented)
    assert found.parameters_sha256 == ahead.parameters_sha256
    assert found.curve == ahead.curve
    assert found.metrics["val_loss"] == ahead.metrics["val_loss"]


def test_loaders_resumed_in_the_middle_with_another_number_give_the_same_bits(ahead, splits, augmented, tmp_path):
    begun = toy_jobs.train_job(splits, tmp_path, spec=spec(2, **ACCUMULATE), use_case=augmented, loaders=2)
    asked = iter([False] * 6 + [True] * 100)
    with pytest.raises(PreemptedError):
        run_stage(begun, should_stop=lambda: next(asked))
    found = trained(splits, tmp_path, spec(1, **ACCUMULATE), use_case=augmented)
    assert found.resumed_from_step == 7
    assert found.parameters_sha256 == ahead.parameters_sha256


def test_random_numbers_that_to_tensors_draws_do_not_depend_on_the_loaders(splits, tmp_path):
    drawing = toy_jobs.changed_use_case(
        tmp_path / "toy",
        ("    shops = rows", "    numbers[0] = numbers[0] + float(torch.rand(()))\n    shops = rows"),
    )
    found = [trained(splits, tmp_path / f"{n}", spec(n), use_case=drawing).parameters_sha256 for n in (1, 2)]
    assert found[0] == found[1]


def test_error_in_a_loader_reaches_the_training_with_its_line(splits, tmp_path):
    broken = toy_jobs.changed_use_case(
        tmp_path / "toy",
        (
            "def to_tensors(rows, preprocessing):\n",
            "def to_tensors(rows, preprocessing):\n    if len(rows) == 128:\n        raise KeyError('no such picture')"
            "\n",
        ),
    )
    code, error = toy_jobs.run_here(
        toy_jobs.train_job(splits, tmp_path / "out", spec=spec(1), use_case=broken, loaders=1)
    )
    assert code == 70
    assert error["problem"] == "BatchError: KeyError: 'no such picture' (model.py:15 in to_tensors)"


def test_worker_asked_to_end_reaches_its_step_boundary_though_the_whole_group_was_asked(splits, tmp_path):
    slow = toy_jobs.changed_use_case(
        tmp_path / "toy",
        (
            "def to_tensors(rows, preprocessing):\n",
            "def to_tensors(rows, preprocessing):\n    __import__('time').sleep(0.05)\n",
        ),
    )
    job = toy_jobs.train_job(splits, tmp_path / "out", spec=spec(2, epochs=40), use_case=slow, loaders=2)
    with toy_jobs.start_worker(job, start_new_session=True) as process:
        folder = tmp_path / "out" / "checkpoints"
        while not (folder.is_dir() and any(folder.iterdir())):
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 75


def test_usual_number_of_loaders_leaves_a_core_to_the_loop(monkeypatch):
    for cores, wanted in ((1, 1), (2, 1), (6, 5), (64, 8)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, cores=cores: set(range(cores)))
        assert usual_loaders() == wanted


def test_loaders_without_work_are_refused():
    with pytest.raises(ValueError, match=r"compute.loaders has no effect"):
        spec(2, tensors="ahead")


@pytest.mark.parametrize(
    ("raised", "code", "passes"),
    [
        ("OSError(5, 'the disk is away')", 74, True),
        ("TimeoutError('timed out')", 74, True),
        ("FileNotFoundError(2, 'no such picture')", 74, False),
        ("OSError(28, 'full')", 73, None),
        ("MemoryError()", 71, None),
        ("KeyError('x')", 70, None),
    ],
)
def test_error_in_a_loader_has_the_class_that_it_would_have_in_the_training(splits, tmp_path, raised, code, passes):
    broken = toy_jobs.changed_use_case(
        tmp_path / "toy",
        (
            "def to_tensors(rows, preprocessing):\n",
            f"def to_tensors(rows, preprocessing):\n    if len(rows) == 128:\n        raise {raised}\n",
        ),
    )
    job = toy_jobs.train_job(splits, tmp_path / "out", spec=spec(1), use_case=broken, loaders=1)
    ended, told = toy_jobs.run_here(job)
    assert (ended, told.get("passes")) == (code, passes)


@pytest.mark.parametrize(
    "training", [{"reserve": 0.1}, {"early_stopping": {"every": 5, "patience": 2, "min_steps": 20}}]
)
def test_loaders_beside_what_holds_whole_tensors_are_refused(training):
    with pytest.raises(ValueError, match="whole tensors"):
        spec(**training)
