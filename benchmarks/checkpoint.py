"""What checkpoints cost the training, and what a killed training loses.

A state of 328 MB is trained for 100 s with checkpoints as often as on a spot machine; beside it, in the same process,
the same state is saved while the loop waits. Then a worker is killed 50 times at random moments (checkpoint_kills.py).

    make bench NAME=checkpoint         about 3 minutes on 2 cores
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.checkpoint_kills import Lives, kills
from benchmarks.result import arguments, begin, finish

if TYPE_CHECKING:
    from trainworthy.lifecycle.engine.training.checkpoints.checkpointing import Checkpoints
    from trainworthy.lifecycle.engine.training.checkpoints.writer import Writer
    from trainworthy.lifecycle.engine.training.state import TrainState, Update

SEED = 0
LAYERS, ROWS = 11, 64
TARGETS = {
    "blocked_share": 0.01, "interval_seconds": 60.0, "resume_seconds_beyond_imports": 3.0, "lost_kills": 0.0,
    "differing_ends": 0.0,
}  # fmt: skip


class Size(NamedTuple):
    """Seconds of training, the network's width, updates from one checkpoint to the next (None: as they cost), and the
    lives of the worker that is killed."""

    seconds: float
    width: int
    every_steps: int | None
    lives: Lives


# Eleven layers of 1,576: weights and AdamW's two moments are 328 MB.
WHOLE = Size(100.0, 1576, None, Lives(kills=50, starts=5, imports=3, epochs=40))
SHORT = Size(2.0, 256, 5, Lives(kills=3, starts=2, imports=1, epochs=4))


def main() -> None:
    short = arguments(__doc__).parse_args().short
    begin(short)
    size = SHORT if short else WHOLE
    figures = blocked(size.seconds, size.width, size.every_steps) | kills(size.lives, SEED)
    zero_allowed = ("lost_kills", "kills_in_a_write", "resumed_lives", "differing_ends", "slowed_share")
    finish("checkpoint", figures, TARGETS, short=short, zero_allowed=zero_allowed)


def blocked(seconds: float, width: int, every_steps: int | None) -> dict[str, float]:
    """Train for so long with checkpoints beside it; share of the time that they were waited for."""
    from trainworthy.lifecycle.cost.checkpoint_interval import interruptions
    from trainworthy.lifecycle.engine.training.checkpoints.checkpointing import Checkpoints
    from trainworthy.lifecycle.engine.training.checkpoints.writer import Writer

    with tempfile.TemporaryDirectory() as name:
        folder, state = Path(name), _state(width)
        writer = Writer(folder / "beside", "benchmark")
        try:
            checkpoints = Checkpoints(writer, interruptions(True, None), every_steps)
            times = _train(state, width, writer, checkpoints, seconds)
            stored = writer.finish()
            assert stored is not None
        finally:
            writer.close()
        size = (folder / "beside" / f"step-{stored.step:08d}" / "state.pt").stat().st_size
        waited, bare = _synchronous(state, folder / "waited")
    idle, beside = statistics.median(times[False]), statistics.median(times[True])
    slowed = sum(times[True]) - len(times[True]) * idle
    share = checkpoints.blocked_seconds / seconds
    print(f"\nstate of {size / 1e6:.0f} MB, trained for {seconds:.0f} s; {checkpoints.written} checkpoints")
    print(f"{'interval':44}{checkpoints.interval_seconds:9.1f} s")
    print(
        f"{'blocked by a checkpoint, on average':44}{1e3 * checkpoints.blocked_seconds / checkpoints.written:9.1f} ms"
    )
    print(f"{'share of the time blocked':44}{share:9.2%}")
    print(f"{'written beside the training within':44}{stored.seconds:9.2f} s")
    print(f"{'an update, idle disk and while one is written':44}{idle * 1e3:9.1f} and {beside * 1e3:.1f} ms")
    print(f"{'the updates beside writes took longer by':44}{slowed:9.2f} s, {slowed / seconds:.2%} of the time")
    print(f"{'waiting for the whole write instead':44}{waited * 1e3:9.1f} ms, torch.save alone {bare * 1e3:.1f} ms")
    return {
        "state_mb": size / 1e6,
        "interval_seconds": checkpoints.interval_seconds,
        "blocked_share": share,
        "blocked_ms": 1e3 * checkpoints.blocked_seconds / checkpoints.written,
        "slowed_share": slowed / seconds,
        "synchronous_share": waited / checkpoints.interval_seconds,
        "synchronous_ms": 1e3 * waited,
        "torch_save_ms": 1e3 * bare,
    }


def _state(width: int) -> TrainState:
    import torch
    from torch import nn

    from trainworthy.lifecycle.engine.training.state import TrainState

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(LAYERS)))

        def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
            return self.layers(inputs["numbers"])[:, 0]

    torch.manual_seed(SEED)
    model = Network()
    optimizer = torch.optim.AdamW(model.parameters())
    for group in optimizer.param_groups:
        group["lr_scale"] = 1.0
    return TrainState(model, (optimizer,))


def _train(
    state: TrainState, width: int, writer: Writer, checkpoints: Checkpoints, seconds: float
) -> dict[bool, list[float]]:
    """Train by the real loop; seconds of each update by whether a checkpoint was being written when it began."""
    import torch

    from trainworthy.lifecycle.engine.training.loop import train
    from trainworthy.lifecycle.engine.training.state import Recipe, TrainData
    from trainworthy.lifecycle.plan import Plan

    started, beside = time.perf_counter(), False
    ended = started
    times: dict[bool, list[float]] = {False: [], True: []}

    def after_step(state: TrainState, update: Update) -> bool:
        nonlocal ended, beside
        times[beside].append(time.perf_counter() - ended)
        checkpoints.after_step(state)
        ended, beside = time.perf_counter(), writer.busy()
        return ended - started > seconds

    data = TrainData({"numbers": torch.randn(ROWS, width)}, torch.randn(ROWS))
    plan = Plan(
        rows=ROWS, batch_size=ROWS, steps_per_epoch=1, horizon_steps=10**6, first_step=0, last_step=10**6, seed=SEED
    )
    recipe = Recipe(lambda outputs, targets: (outputs - targets) ** 2, lambda step: 1e-6, clip_norm=1.0)
    train(state, data, plan, recipe, after_step)
    return times


def _synchronous(state: TrainState, folder: Path) -> tuple[float, float]:
    """Seconds of a checkpoint that the loop waits for, and of torch.save into a file alone; medians of three."""
    import torch

    from trainworthy.lifecycle.engine.training.checkpoints.checkpoint import save_checkpoint, state_dict

    waited, bare = [], []
    for _ in range(3):
        started = time.perf_counter()
        save_checkpoint(folder, "benchmark", state)
        waited.append(time.perf_counter() - started)
        started = time.perf_counter()
        torch.save(state_dict(state), folder / "bare.pt")
        bare.append(time.perf_counter() - started)
    return statistics.median(waited), statistics.median(bare)


if __name__ == "__main__":
    main()
