"""A run that is cancelled or killed while it trains: nobody lives on, the cost is booked, the next run resumes."""

import signal
import socket
import sys

import psutil
import pytest
from toy_project import Toy, plant, product, until

from trainworthy.pipeline.console import INTERRUPTED
from trainworthy.resources.attempt_table import attempt_table
from trainworthy.resources.settings import read_settings

# Slow steps while the file exists, and a process of the model's own.
SLOW = """time.sleep(0.2 if os.path.exists({flag!r}) else 0)
        if os.path.exists({flag!r}) and not os.path.exists({flag!r} + ".child"):
            open({flag!r} + ".child", "w").close()
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[-1]])"""
MATERIALIZE = ("-m", "dagster", "asset", "materialize", "-m", "trainworthy.pipeline.definitions", "--select")
DEV = ("-m", "dagster", "dev", "-w", "workspace.yaml", "-h", "127.0.0.1")
LAUNCH = ("-m", "dagster", "job", "launch", "-w", "workspace.yaml", "-j", "experiment_toy")


@pytest.fixture
def slow(toy):
    """A project whose smoke stage takes seconds and has checkpoints; ends what a test leaves behind."""
    yield from made_slow(toy)


@pytest.fixture
def slow_from_scratch(fresh):
    """The same, never run before."""
    yield from made_slow(fresh)


def made_slow(toy: Toy):
    flag = toy.root.parent / "slow"
    plant(toy, "smoke", "def loss_fn(outputs, targets):\n", SLOW.format(flag=str(flag)))
    toy.edit("use_case.yaml", "checkpoint_every_steps: 25", "checkpoint_every_steps: 2")
    flag.write_text("")
    yield toy, flag
    for process in toy.workers():
        process.kill()


def training(toy: Toy, flag, before) -> bool:
    """The smoke stage has written a checkpoint, and the model's own process runs."""
    found = set(toy.var.glob("training/toy/*/smoke/checkpoints/*/manifest.json")) - before
    return bool(found) and flag.with_name("slow.child").exists() and len(toy.workers()) == 2


def ended(process: psutil.Process) -> bool:
    """Gone, or dead and not yet collected by the process that inherited it."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_cancel_while_training_leaves_nobody_and_the_next_run_resumes(slow, number):
    toy, flag = slow
    before = set(toy.var.glob("training/toy/*/smoke/checkpoints/*/manifest.json"))
    process = toy.start(toy.command())
    until(lambda: training(toy, flag, before) or process.poll() is not None, 120)
    assert process.poll() is None
    workers = toy.workers()
    process.send_signal(number)
    until(lambda: process.poll() is not None, 30)
    until(lambda: not toy.workers() and all(map(ended, workers)), 10, "after the signal")
    done = toy.finish(process)
    assert done.code != 0
    assert toy.materialized(done.run_id).keys() == {"dataset", "snapshot", "preflight"}
    if number != signal.SIGKILL:
        assert done.out.count(INTERRUPTED) == 1, done.out
        assert "Stack Trace" not in done.out, done.out
        assert toy.status(done.run_id) == "CANCELED"
        assert toy.mlflow_run(done.run_id).info.status == "KILLED"
        record = toy.record(done.run_id, "smoke")
        assert not record.passed
        assert record.cost.usd > 0
    flag.unlink()
    resumed = toy.call(*MATERIALIZE, "toy/smoke")
    assert resumed.code == 0, resumed.out[-3000:]
    record = toy.record(resumed.run_id, "smoke")
    assert record.resumed_from_step > 0
    assert record.steps == 20
    with toy.instance():
        found = [row for row in attempt_table(read_settings()).rows("toy") if row.started.job_kind == "train"]
    resumed_at, cut_off = found[:2]
    assert cut_off.ended is not None
    assert cut_off.started.charged_to.run_id == done.run_id
    assert cut_off.ended.outcome == ("lost" if number == signal.SIGKILL else "cancelled")
    assert (resumed_at.started.from_step, resumed_at.ended and resumed_at.ended.outcome) == (
        record.resumed_from_step, "answered",
    )  # fmt: skip
    assert f"smoke: resumed from step {record.resumed_from_step} of 20" in resumed.out


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize("killed", ["run worker", "all of dagster dev"])
def test_kill_under_dagster_dev_while_training_leaves_nobody(slow_from_scratch, killed):
    toy, flag = slow_from_scratch
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    server = toy.start([sys.executable, *DEV, "-p", port], DAGSTER_HOME=str(product()))
    try:
        launched = toy.call(*LAUNCH, DAGSTER_HOME=str(product()))
        assert launched.code == 0, launched.out
        until(lambda: training(toy, flag, set()), 400, "until the smoke stage trains")
        workers = toy.workers()
        (trainer,) = [process for process in workers if "trainworthy.lifecycle.worker" in process.cmdline()]
        # Its parent is the server that forked it.
        run_worker, started = trainer.parents()[1], psutil.Process(server.pid).children(recursive=True)
        assert run_worker in started
        victims = [run_worker] if killed == "run worker" else [psutil.Process(server.pid), *started]
        # Neither the trainer nor what it started, nor the guard beside it: they have to go by themselves.
        own = {trainer, *trainer.children(recursive=True), *run_worker.children(recursive=True)}
        for process in victims:
            if process not in own and not ended(process):
                process.kill()
        until(lambda: not toy.workers() and all(map(ended, workers)), 20, "after the kill")
        if killed == "run worker":
            with toy.instance() as instance:
                (run,) = instance.get_runs(limit=1)
                until(lambda: instance.get_run_by_id(run.run_id).is_finished, 120, "until Dagster sees it")
    finally:
        if server.poll() is None:
            server.terminate()
        server.communicate(timeout=60)


@pytest.mark.slow
def test_cancel_by_kill_with_a_gpu_slot_lets_the_next_run_wait_and_say_so_until_it_is_mended(slow):
    toy, flag = slow
    toy.edit("use_case.yaml", "{device: cpu, sku", "{device: cpu, gpus: 1, sku")
    before = set(toy.var.glob("training/toy/*/smoke/checkpoints/*/manifest.json"))
    killed = toy.start(toy.command("experiment_toy"))
    until(lambda: training(toy, flag, before) or killed.poll() is not None, 120)
    killed.kill()
    assert toy.finish(killed).code == -signal.SIGKILL
    flag.unlink()
    waiting = toy.start(toy.command("experiment_toy"))
    assert waiting.stdout is not None
    assert any("waiting for a slot of the pool gpu" in line for line in waiting.stdout)
    told = toy.call("-m", "trainworthy.pipeline.cli", "doctor")
    assert (told.code, "✗ pool slots" in told.out, "! stuck runs: " in told.out) == (1, True, True), told.out
    mended = toy.call("-m", "trainworthy.pipeline.cli", "doctor", "--fix")
    assert (mended.code, "is marked as failed" in mended.out) == (0, True), mended.out
    done = toy.finish(waiting)
    assert done.code == 0, done.out
    assert toy.record(done.run_id, "smoke").resumed_from_step > 0
