import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import toy_jobs

from trainworthy.lifecycle import torchrun
from trainworthy.lifecycle.answer import files_are_whole, read_result
from trainworthy.lifecycle.failure import EXIT_BAD_INPUT, EXIT_DISK_FULL, EXIT_INTERNAL, EXIT_STORAGE
from trainworthy.lifecycle.identity import other_packages, told_packages
from trainworthy.lifecycle.protocol.results import PredictResult, TrainResult
from trainworthy.lifecycle.worker import main


@pytest.fixture(scope="module")
def done(splits, tmp_path_factory):
    """A job that the worker has answered, to be copied by tests that change it."""
    job = toy_jobs.train_job(splits, tmp_path_factory.mktemp("done"), "full")
    assert toy_jobs.run_worker(job) == (0, {})
    return job


def run_here(job) -> int:
    return toy_jobs.run_here(job)[0]


told = toy_jobs.error_of


def test_worker_alone_answers_its_job_with_files_that_are_whole(done):
    result = read_result(Path(done.out), done)
    assert isinstance(result, TrainResult)
    assert files_are_whole(result)
    assert sorted(path.name for path in Path(done.out).iterdir()) == [
        ".lock", "artifact", "checkpoints", "job.json", "metrics.jsonl", "modules.json", "result.json", "seconds.bin",
    ]  # fmt: skip


def test_worker_module_loads_without_dagster_and_torch():
    heavy = "{'dagster', 'mlflow', 'dvc', 'torch'}"
    code = f"import sys, trainworthy.lifecycle.worker; sys.exit(bool({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=toy_jobs.ROOT, env={**os.environ, "PYTHONPATH": "src"})
    assert done.returncode == 0


def test_answer_is_reused_for_the_same_job_only(done):
    before = (Path(done.out) / "result.json").stat().st_mtime_ns
    assert run_here(done) == 0
    assert (Path(done.out) / "result.json").stat().st_mtime_ns == before
    other = done.model_copy(update={"hyperparameters": {"width": 33}})
    assert read_result(Path(done.out), other) is None


@pytest.mark.parametrize("lost", ["artifact", "checkpoints"])
def test_answer_whose_files_are_lost_is_made_again(done, splits, tmp_path, lost):
    first = read_result(Path(done.out), done)
    assert isinstance(first, TrainResult)
    job = toy_jobs.train_job(splits, tmp_path / "out", "full")
    shutil.copytree(done.out, job.out)
    path = Path(job.out) / lost
    shutil.rmtree(path)
    assert run_here(job) == 0
    again = read_result(Path(job.out), job)
    assert isinstance(again, TrainResult)
    assert files_are_whole(again)
    assert (again.parameters_sha256, again.artifact_sha256) == (first.parameters_sha256, first.artifact_sha256)


def test_changed_artifact_is_noticed(done, splits, tmp_path):
    result = read_result(Path(done.out), done)
    assert isinstance(result, TrainResult)
    copied = shutil.copytree(result.artifact or "", tmp_path / "artifact")
    moved = result.model_copy(update={"artifact": str(copied)})
    assert files_are_whole(moved)
    (Path(copied) / "calibration.json").write_text("{}")
    assert not files_are_whole(moved)


def test_answer_that_cannot_be_read_counts_as_none(done, tmp_path):
    (tmp_path / "result.json").write_text('{"job_sha256": "x"')
    assert read_result(tmp_path, done) is None


@pytest.mark.parametrize(
    ("change", "code", "problem"),
    [
        ({"training_file": "/nowhere/rows.parquet"}, EXIT_BAD_INPUT, "the split's file is missing"),
        ({"rows": toy_jobs.ROWS.model_copy(update={"features": ("x9",)})}, EXIT_BAD_INPUT, "lack columns: x9"),
        ({"device": "cuda"}, EXIT_BAD_INPUT, "torch sees no CUDA device"),
        ({"hyperparameters": {}}, EXIT_INTERNAL, "no hyperparameter 'width'"),
        ({"use_case_folder": "/nowhere"}, EXIT_STORAGE, "FileNotFoundError"),
    ],
)
def test_job_that_cannot_be_done_ends_with_its_code_and_a_word(splits, tmp_path, change, code, problem):
    if "device" in change:
        torch = pytest.importorskip("torch")
        if torch.cuda.is_available():
            pytest.skip("there is a CUDA device here")
    job = toy_jobs.train_job(splits, tmp_path, "smoke", **change)
    assert run_here(job) == code
    assert problem in told(job)["problem"]
    assert told(job)["exception"]
    assert told(job)["fix"]


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("raise RuntimeError('boom')", EXIT_INTERNAL),
        ("raise OSError(28, 'No space left on device')", EXIT_DISK_FULL),
        ("raise RuntimeError('write failed: No space left on device')", EXIT_DISK_FULL),
        ("raise OSError(5, 'Input/output error')", EXIT_STORAGE),
        ("raise TimeoutError('timed out')", EXIT_STORAGE),
    ],
)
def test_model_that_raises_ends_with_its_code_and_line(splits, tmp_path, source, code):
    use_case = toy_jobs.changed_use_case(
        tmp_path / "toy", ("    return nn.functional.binary", f"    {source}\n    return nn.functional.binary")
    )
    job = toy_jobs.train_job(splits, tmp_path / "out", "smoke", use_case=use_case)
    assert run_here(job) == code
    lines = (use_case / "model.py").read_text().splitlines()
    assert told(job)["value"] == f"model.py:{lines.index(f'    {source}') + 1} in loss_fn"
    assert told(job).get("passes") is (True if code == EXIT_STORAGE else None)
    assert not (tmp_path / "out" / "result.json").exists()


def test_kernel_that_ends_cuda_is_told_with_what_it_usually_is(splits, tmp_path):
    """torch's words; on a GPU they come where it is next waited for, and not where it happened."""
    raised = "raise RuntimeError('CUDA error: device-side assert triggered\\nCompile with TORCH_USE_CUDA_DSA')"
    use_case = toy_jobs.changed_use_case(
        tmp_path / "toy", ("    return nn.functional.binary", f"    {raised}\n    return nn.functional.binary")
    )
    job = toy_jobs.train_job(splits, tmp_path / "out", "smoke", use_case=use_case)
    assert run_here(job) == EXIT_INTERNAL
    assert "label or token number out of range" in told(job)["problem"]
    assert "\n" not in told(job)["problem"]
    assert "compute.device: cpu" in told(job)["fix"]


def test_lost_connection_of_a_single_process_is_its_own_error(splits, tmp_path):
    """Code of a use case may talk to other processes by itself: no other rank will tell what happened."""
    use_case = toy_jobs.changed_use_case(
        tmp_path / "toy",
        ("    def forward(self, inputs):\n", "    def forward(self, inputs):\n"
         "        raise RuntimeError('[c10d] gloo/transport: Timed out waiting 5000ms for recv')\n"),
    )  # fmt: skip
    job = toy_jobs.train_job(splits, tmp_path / "out", use_case=use_case)
    assert run_here(job) == EXIT_INTERNAL
    assert told(job)["value"].startswith("model.py:")


def test_error_of_an_earlier_try_is_gone_after_a_good_one(splits, tmp_path):
    bad = toy_jobs.train_job(splits, tmp_path, "smoke", training_file="/nowhere/rows.parquet")
    assert run_here(bad) == EXIT_BAD_INPUT
    assert run_here(toy_jobs.train_job(splits, tmp_path, "smoke")) == 0
    assert not (tmp_path / "error.json").exists()


@pytest.mark.parametrize("content", [None, "", "{}", '{"job": {"kind": "fly"}}'])
def test_file_that_is_no_job_ends_with_its_code(tmp_path, content, capsys):
    path = tmp_path / "job.json"
    if content is not None:
        path.write_text(content)
    assert main(["--job", str(path)]) == EXIT_BAD_INPUT
    assert "is no job" in capsys.readouterr().err


def test_second_worker_on_the_same_folder_waits_for_the_first(splits, tmp_path):
    job = toy_jobs.train_job(splits, tmp_path, "smoke")
    with (tmp_path / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        process = toy_jobs.start_worker(job)
        assert process.stderr is not None
        assert "waiting for it to end" in process.stderr.readline()
        assert process.poll() is None
        assert read_result(tmp_path, job) is None
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert read_result(tmp_path, job) is not None


def test_preflight_and_prediction_run_in_the_worker_too(done, splits, tmp_path):
    assert run_here(toy_jobs.preflight_job(splits, tmp_path / "preflight")) == 0
    trained = read_result(Path(done.out), done)
    assert isinstance(trained, TrainResult)
    artifact, sha256 = trained.artifact or "", trained.artifact_sha256 or ""
    before = (str(splits / "calibration.parquet"),)
    job = toy_jobs.predict_job(
        artifact, sha256, splits / "benchmark.parquet", tmp_path / "predict", limit=50, reference_files=before
    )
    assert run_here(job) == 0
    result = read_result(Path(job.out), job)
    assert isinstance(result, PredictResult)
    assert result.reference is not None
    assert files_are_whole(result)
    # Each of its files counts, whether changed or lost.
    for file in (Path(result.predictions.path), Path(result.reference.path)):
        whole = file.read_bytes()
        file.write_bytes(b"")
        assert not files_are_whole(result)
        file.unlink()
        assert not files_are_whole(result)
        file.write_bytes(whole)


@pytest.mark.parametrize("entry", [main, torchrun.main], ids=["worker", "torchrun"])
def test_machine_with_other_packages_than_its_launcher_begins_nothing(splits, tmp_path, entry):
    job = toy_jobs.train_job(splits, tmp_path / "out", processes=2)
    packages = told_packages()
    assert other_packages(packages) == ()
    assert not [version for version in packages.values() if "+" in version]
    others = packages | {"torch": "1.0", "python": "2.7.18", "no-such-package": "3"}
    code = entry(["--job", str(toy_jobs.write_job(job)), "--packages", json.dumps(others)])
    assert code == EXIT_BAD_INPUT
    problem = told(job)["problem"]
    assert f"torch {packages['torch']}, not 1.0" in problem
    assert f"python {packages['python']}, not 2.7.18" in problem
    assert "no-such-package missing, not 3" in problem
    assert "pandas" not in problem
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"error.json", "job.json"}
