"""A run that is cancelled or killed while it trains: nobody lives on, the cost is booked, the next run resumes."""

import signal

import psutil
import pytest
from toy_project import Toy, plant, until

# Slow steps while the file exists, and a process of the model's own.
SLOW = """time.sleep(0.2 if os.path.exists({flag!r}) else 0)
        if os.path.exists({flag!r}) and not os.path.exists({flag!r} + ".child"):
            open({flag!r} + ".child", "w").close()
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[-1]])"""
MATERIALIZE = ("-m", "dagster", "asset", "materialize", "-m", "pipeline.definitions", "--select")


@pytest.fixture
def slow(toy):
    """A project whose smoke stage takes seconds and has checkpoints; ends what a test leaves behind."""
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
        assert toy.status(done.run_id) in ("CANCELED", "FAILURE")
        assert toy.mlflow_run(done.run_id).info.status == "KILLED"
        record = toy.record(done.run_id, "smoke")
        assert not record.passed
        assert record.cost.usd > 0
    flag.unlink()
    resumed = toy.call(*MATERIALIZE, "toy/smoke")
    assert resumed.code == 0, resumed.out[-3000:]
    assert toy.record(resumed.run_id, "smoke").resumed_from_step > 0
    assert toy.record(resumed.run_id, "smoke").steps == 20
