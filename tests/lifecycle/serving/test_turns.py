"""Two toy artifacts measured by the worker's job, alone and beside other work."""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import toy_jobs

from trainworthy.lifecycle.answer import read_result
from trainworthy.lifecycle.artifact import artifact_sha256
from trainworthy.lifecycle.engine.train import run_stage
from trainworthy.lifecycle.identity import canonical_json, sha256_file
from trainworthy.lifecycle.protocol.jobs import ServedArtifact, ServingJob
from trainworthy.lifecycle.protocol.results import ServingResult
from trainworthy.lifecycle.serving.turns import ROUNDS

# Work that no clock decides: so many products before each answer.
SLOW = (
    "    numbers = [(rows[n]",
    "    matrix = torch.ones(300, 300)\n    for _ in range(20):\n        matrix = (matrix @ matrix).clamp(max=1)\n"
    "    numbers = [(rows[n]",
)
MEMORY = ("SHOPS =", "KEPT = torch.ones(30_000_000)\nSHOPS =")


def trained(splits: Path, folder: Path, *replacements: tuple[str, str]) -> ServedArtifact:
    """The toy's artifact with these changes of its code."""
    use_case = toy_jobs.changed_use_case(folder / "toy", *replacements)
    found = run_stage(toy_jobs.train_job(splits, folder / "out", "full", use_case=use_case))
    assert found.artifact is not None
    return ServedArtifact(path=found.artifact, sha256=found.artifact_sha256 or "", features=toy_jobs.ROWS.features)


@pytest.fixture(scope="module")
def plain(splits, tmp_path_factory) -> ServedArtifact:
    return trained(splits, tmp_path_factory.mktemp("plain"))


def changed(artifact: ServedArtifact, folder: Path, *replacements: tuple[str, str]) -> ServedArtifact:
    """The same model by other code, as an artifact of its own."""
    shutil.copytree(artifact.path, folder)
    source = (folder / "code" / "model.py").read_text()
    for old, new in replacements:
        assert old in source
        source = source.replace(old, new)
    (folder / "code" / "model.py").write_text(source)
    hashes = json.loads((folder / "manifest.json").read_text())
    hashes["code/model.py"] = sha256_file(folder / "code" / "model.py")
    (folder / "manifest.json").write_bytes(canonical_json(hashes))
    return artifact.model_copy(update={"path": str(folder), "sha256": artifact_sha256(folder)})


def served(candidate: ServedArtifact, champion: ServedArtifact, splits: Path, out: Path) -> ServingResult:
    """What the worker answers, as a process."""
    job = ServingJob(
        use_case_folder=str(toy_jobs.TOY), out=str(out), device="cpu", rows=toy_jobs.ROWS, candidate=candidate,
        champion=champion, rows_file=str(splits / "benchmark.parquet"), batch_rows=100,
    )  # fmt: skip
    with toy_jobs.forked_worker(job) as worker:
        assert worker.wait(300) == 0, toy_jobs.error_of(job)
    found = read_result(out, job)
    assert isinstance(found, ServingResult)
    return found


def test_model_that_computes_and_keeps_more_is_found_by_all_that_it_changes(plain, splits, tmp_path):
    slow = changed(plain, tmp_path / "slow", SLOW, MEMORY)
    result = served(slow, plain, splits, tmp_path / "out")
    assert result.error == ""
    found = {one.quantity: one.model_copy(update={"limit": 1.2}) for one in result.figures}
    assert set(found) == {"latency", "batch_latency", "cold_load", "memory"}
    assert {one.rounds for one in found.values()} == {ROUNDS}
    assert found["batch_latency"].rows == 100
    # 114 MB of numbers, whatever else the machine does.
    assert found["memory"].standing == "fail"
    more, less = found["memory"].candidate, found["memory"].champion
    assert more is not None
    assert less is not None
    assert more - less == pytest.approx(114.4, abs=8)
    # 20 products are many times the toy's own time: more than what other work may have made of it.
    assert found["latency"].standing == "fail"
    assert (found["latency"].ratio or 0) > 2


def test_equal_model_is_never_slower_or_larger_beside_busy_processes(plain, splits, tmp_path):
    loop = "import time\nend = time.monotonic() + 300\nwhile time.monotonic() < end: sum(range(10000))"
    busy = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(4)]
    try:
        result = served(plain, plain, splits, tmp_path / "out")
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert result.error == ""
    for one in result.figures:
        assert one.model_copy(update={"limit": 1.05}).standing != "fail", one
    assert [(one.high or math.inf) < 1.05 for one in result.figures if one.quantity == "memory"] == [True]


@pytest.mark.parametrize("at", ["import", "answer"])
def test_champion_that_cannot_be_served_is_named_and_no_crash(plain, splits, tmp_path, at):
    fault = ("SHOPS =", "raise RuntimeError('gone')\nSHOPS =") if at == "import" else (SLOW[0], "    1 / 0\n" + SLOW[0])
    broken = changed(plain, tmp_path / "broken", fault)
    result = served(plain, broken, splits, tmp_path / "out")
    assert result.figures == ()
    wanted = "RuntimeError: gone" if at == "import" else "ZeroDivisionError"
    assert result.error.startswith("the champion could not be served: ")
    assert wanted in result.error


def test_champion_whose_files_were_changed_or_whose_process_dies_is_named(plain, splits, tmp_path):
    changed(plain, tmp_path / "tampered")
    (tmp_path / "tampered" / "calibration.json").write_text("{}")
    other = plain.model_copy(update={"path": str(tmp_path / "tampered")})
    result = served(plain, other, splits, tmp_path / "out")
    assert result.error == "the champion could not be served: files of the artifact were changed"
    dying = changed(plain, tmp_path / "dying", (SLOW[0], "    import os\n    os._exit(3)\n" + SLOW[0]))
    result = served(dying, plain, splits, tmp_path / "out2")
    assert result.error == "the candidate's process ended without an answer (exit code 3)"


def test_champion_of_a_column_that_the_rows_lack_is_named(plain, splits, tmp_path):
    lacking = plain.model_copy(update={"features": (*plain.features, "gone")})
    result = served(plain, lacking, splits, tmp_path / "out")
    assert "the champion could not be served: the rows lack columns: gone" in result.error
