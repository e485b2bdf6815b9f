"""A crash loop over several runs of one training is given up at the count of a single run; a fixed one goes on."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dagster._core.storage.tags import RETRY_NUMBER_TAG

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
import toy_jobs

from trainworthy.lifecycle.errors import WorkerError
from trainworthy.lifecycle.protocol.attempts import AttemptRow, ChargedTo
from trainworthy.lifecycle.protocol.jobs import JobFile, TrainJob
from trainworthy.lifecycle.protocol.results import AnyResult
from trainworthy.lifecycle.protocol.training_figures import Cause
from trainworthy.resources.attempt_table import attempt_table
from trainworthy.resources.attempts import recorded
from trainworthy.resources.launcher import RETRY_TAG, Launcher
from trainworthy.resources.settings import DATABASE, read_settings

ROOT = Path(__file__).parents[2]


class Loop:
    """Runs of one training, each a Dagster process of its own; `ends` says how each try ends, None of an answer."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.ends, self.told = folder, list[tuple[Cause | None, int]](), list[str]()
        self.job, self.tries = toy_jobs.train_job(folder, folder / "smoke"), 0
        # What fails beside the worker in a try that `ends` says nothing of.
        self.outside = OSError("the server closed the connection")
        monkeypatch.setattr(
            Launcher, "_attempt", lambda launcher, context, job, charged_to, *more: self._try(charged_to)
        )

    def run(self, run_id: str, identity: str = "i", tags: dict[str, str] | None = None) -> AnyResult:
        """The answer of a run; the tries that it had are `tries` then."""
        self.tries, self.told = 0, []
        told = self.told.append
        log = SimpleNamespace(warning=told, info=told, error=told)
        context: Any = SimpleNamespace(log=log, run=SimpleNamespace(run_id=run_id, tags=tags or {}))
        return Launcher().run(
            context, self.job, ChargedTo(run_id=run_id, use_case="toy", step="smoke", identity=identity)
        )

    def refused(self, *given: Any, **more: Any) -> WorkerError:
        with pytest.raises(WorkerError) as caught:
            self.run(*given, **more)
        return caught.value

    def _try(self, charged_to: ChargedTo) -> AnyResult:
        self.tries += 1
        log: Any = SimpleNamespace(warning=print, info=print, error=print)
        with recorded(self.job, charged_to, log) as attempt:
            attempt.begin()
            if not self.ends:
                raise self.outside
            cause, step = self.ends.pop(0)
            (Path(self.job.out) / "checkpoints" / f"step-{step:08d}").mkdir(parents=True, exist_ok=True)
            if cause is not None:
                raise WorkerError(f"it was {cause}", fix="look", exit_code=-9, cause=cause)
        answer: Any = SimpleNamespace(answered=True)
        return answer


@pytest.fixture
def loop(tmp_path, monkeypatch) -> Loop:
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "state"))
    monkeypatch.delenv(DATABASE, raising=False)
    (tmp_path / "state").mkdir()
    return Loop(tmp_path, monkeypatch)


def ended(loop: Loop) -> list[AttemptRow]:
    return list(attempt_table(read_settings()).rows())


def test_the_tag_of_an_automatic_retry_is_dagsters_own():
    assert RETRY_TAG == RETRY_NUMBER_TAG


def test_crash_loop_over_runs_is_given_up_and_not_started_again_by_itself(loop):
    loop.ends = [("killed", 5), ("killed", 5), ("bug", 5)]
    assert loop.refused("one").problem.startswith("it was bug; before that")
    assert loop.tries == 3
    # Started by hand: one try, and no more where the count of a single run is reached.
    loop.ends = [("hang", 5)]
    error = loop.refused("two")
    assert loop.tries == 1
    assert "it was hang; it ended 4 times since 20" in error.problem
    assert "(killed 2, bug 1, hang 1) without a checkpoint after step 5" in error.problem
    assert "one try, and all of them again once it gets past step 5" in error.fix
    assert "smoke: ends of earlier runs count" in loop.told[0]
    # Dagster's own retry, and a run that it goes on with in another process: not one try.
    for run_id, tags in (("three", {RETRY_TAG: "1"}), ("two", {})):
        error = loop.refused(run_id, tags=tags)
        assert loop.tries == 0
        assert error.problem.startswith("smoke is not started again by itself: it ended 4 times since 20")
        assert error.problem.endswith("; the last time: it was hang")
        assert "start the run yourself: a run that is started by hand has one try" in error.fix
        assert error.code == "worker.hang"
    assert len(ended(loop)) == 4


def test_fixed_cause_goes_on_and_has_all_tries_again(loop):
    loop.ends = [("killed", 5)] * 4
    loop.refused("one")
    # The disk was freed, and the run started by hand: past step 5 three more kills are no end.
    loop.ends = [("killed", 9), ("killed", 9), ("killed", 9), (None, 20)]
    assert loop.run("two").answered
    assert loop.tries == 4
    # And after an answer nothing of before counts, for Dagster's retries neither.
    loop.ends = [("killed", 20), (None, 21)]
    assert loop.run("three", tags={RETRY_TAG: "1"}).answered
    assert loop.told == [line for line in loop.told if "earlier runs" not in line]


def test_other_code_or_values_begin_anew(loop):
    loop.ends = [("killed", 5)] * 4
    loop.refused("one", identity="i")
    loop.ends = [("killed", 5)] * 3 + [(None, 5)]
    assert loop.run("two", identity="changed", tags={RETRY_TAG: "1"}).answered
    assert loop.tries == 4


def test_retry_by_dagster_goes_on_where_tries_are_left(loop):
    loop.ends = [("killed", 5), ("preempted", 9), ("killed", 9)]
    # Then Dagster's database restarts while the worker trains: no end of the training.
    with pytest.raises(OSError, match="the server closed the connection"):
        loop.run("one")
    assert [(row.ended and row.ended.cause) for row in ended(loop)] == [None, "killed", "preempted", "killed"]
    loop.ends = [("killed", 9), (None, 20)]
    assert loop.run("two", tags={RETRY_TAG: "1"}).answered
    assert loop.tries == 2


def test_end_that_would_come_again_is_not_tried_again_by_dagsters_retry(loop):
    loop.ends = [("out_of_memory", 5)]
    loop.refused("one")
    error = loop.refused("two", tags={RETRY_TAG: "1"})
    assert (loop.tries, error.code) == (0, "worker.out_of_memory")
    assert "it ended once since" in error.problem


def test_another_seed_of_the_stage_has_tries_of_its_own(loop):
    loop.ends = [("killed", 5)] * 4
    loop.refused("one")
    loop.job = loop.job.model_copy(update={"out": str(loop.folder / "smoke_seed_3")})
    loop.ends = [("killed", 5)] * 3 + [(None, 5)]
    assert loop.run("one").answered
    assert [row.started.stage for row in ended(loop)][:1] == ["smoke_seed_3"]


# Dagster's process: an asset whose worker trains, as a step of a run does.
DAGSTER = """
import pathlib, sys
import dagster as dg
from trainworthy.lifecycle.protocol.attempts import ChargedTo
from trainworthy.lifecycle.protocol.jobs import JobFile
from trainworthy.resources.launcher import Launcher

job = JobFile.model_validate_json(pathlib.Path(sys.argv[1]).read_text()).job

@dg.asset
def smoke(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    charged_to = ChargedTo(run_id=context.run.run_id, use_case="toy", step="smoke", identity="i")
    Launcher(grace_seconds=1.0).run(context, job, charged_to)
    return dg.MaterializeResult()

with dg.DagsterInstance.ephemeral() as instance:
    dg.materialize([smoke], instance=instance)
"""
# From the seventh pass it crashes, each time at the update after checkpoint 5; the third time it waits first.
CRASHES = """
if self.training:
    seen = int(MARK.read_text()) + 1 if MARK.exists() else 1
    MARK.write_text(str(seen))
    if seen >= 7:
        time.sleep(1.0)
        if seen == 9:
            time.sleep(120)
        os.kill(os.getpid(), signal.SIGSEGV)
"""


def planted(folder: Path, splits: Path) -> TrainJob:
    head = "import os, pathlib, signal, time\nimport torch\n\n"
    head += f"MARK = pathlib.Path({str(folder / 'mark')!r})\n"
    place = "        return self.layers(torch.cat"
    edits = [("import torch\n", head), (place, textwrap.indent(CRASHES, 8 * " ") + place)]
    use_case = toy_jobs.changed_use_case(folder / "toy", *edits)
    spec = toy_jobs.spec_with(training={"batch_size": 32, "epochs": 3, "checkpoint_every_steps": 5})
    return toy_jobs.train_job(splits, folder / "smoke", "smoke", spec=spec, use_case=use_case)


@pytest.mark.slow
def test_crash_at_one_place_over_two_dagster_processes_ends_at_the_count_of_one(loop, tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("TRAINWORTHY_VAR", str(tmp_path / "state"))
    job = planted(tmp_path, toy_jobs.build_splits(tmp_path))
    (tmp_path / "job.json").write_text(JobFile(job=job).model_dump_json())
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}

    def dagster() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", DAGSTER, str(tmp_path / "job.json")]
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)

    first, give_up = dagster(), time.monotonic() + 150
    try:
        while len(rows := ended(loop)) < 3 or (tmp_path / "mark").read_text() != "9":
            assert time.monotonic() < give_up, rows
            time.sleep(0.1)
    finally:
        first.kill()
        first.communicate()
    second = dagster()
    _, told = second.communicate(timeout=150)
    assert second.returncode != 0
    assert "(killed 4) without a checkpoint after step 5" in told
    assert [(row.ended and row.ended.outcome) for row in ended(loop)] == ["failed", "lost", "failed", "failed"]
