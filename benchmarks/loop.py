"""What our training loop costs beside a bare one: zero_grad, forward, loss, backward, step.

All train the same model on the same rows with AdamW, in batches that are taken by their numbers; ours with nothing
optional, and a clip_norm out of reach. The bare loop has torch.optim.AdamW as it comes; it reads nothing from the
device, clips nothing and looks for nothing that is not finite. Ours takes the fused AdamW, which is faster: what the
loop itself costs is its ratio to a bare loop with the fused one. Rounds of some updates take turns in one process; a
figure is the median of the rounds' ratios. Counted are CPU seconds of one thread, so that a busy machine costs no loop
more than another; on a GPU, where there is one, seconds until it has done what it was asked. The bare loop runs twice:
its ratio to itself is the machine's noise. Lightning's Trainer does what the bare loop does, where the extra
`lightning` is installed.

    make bench NAME=loop         about three minutes on an idle core, one on a GPU
"""

from __future__ import annotations

import copy
import importlib.util
import logging
import random
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.result import arguments, begin, finish, hardware
from trainworthy.lifecycle.engine.training.loop import train
from trainworthy.lifecycle.engine.training.prepare import seed_everything
from trainworthy.lifecycle.engine.training.recipe import make_optimizers, make_recipe
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData, TrainState
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.spec.training import OptimizerSpec, ScheduleSpec, TrainingSpec

TARGETS = {
    f"{network}_{kind}": most
    for network, most in (("mlp", 1.03), ("transformer", 1.005))
    for kind in ("ours_ratio", "ours_to_fused_ratio")
}
# What a ratio is to: the loop as everyone writes it, and with the optimizer of ours.
BARE, FUSED = "bare", "bare fused"
# Others, in every tenth round.
PEERS = ("lightning", "anomaly")
ROWS = 65_536
OPTIMIZER = OptimizerSpec(name="adamw", learning_rate=1e-3, weight_decay=0.01)
Loop = Callable[[int], float]
Make = Callable[[nn.Module, TrainData, "Setting"], Loop]


@dataclass(frozen=True)
class Setting:
    """A network, its rows, and how much of it a round takes."""

    model: Callable[[], nn.Module]
    inputs: Tensor
    batch_size: int
    rounds: int
    updates: int
    device: str = "cpu"

    def clock(self) -> float:
        """CPU seconds of this process; on a GPU those of the wall, with all that it was asked for done."""
        if self.device == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()


class Mlp(nn.Module):
    """Two hidden layers on 64 numbers a row."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
        )  # fmt: skip

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return self.layers(inputs["x"]).squeeze(1)


class Transformer(nn.Module):
    """Blocks over the positions of a row."""

    def __init__(self, width: int = 128, blocks: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, width)
        layer = nn.TransformerEncoderLayer(width, width // 32, 4 * width, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, blocks, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return self.head(self.blocks(self.embed(inputs["x"])).mean(1)).squeeze(1)


class Task:
    """What the recipe asks of model.py."""

    @staticmethod
    def loss_fn(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")


# Of a short run: a peer is timed in every tenth round, and quartiles ask for two of it.
SHORT_ROUNDS = 11


def settings(short: bool = False) -> dict[str, Setting]:
    """An MLP whose update takes about 2.5 ms on one core, and a small transformer; on a GPU a larger one, too."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    whole = {
        "mlp": Setting(Mlp, torch.randn(ROWS, 64), batch_size=256, rounds=400, updates=10),
        "transformer": Setting(Transformer, torch.randint(0, 64, (ROWS, 32)), batch_size=32, rounds=200, updates=2),
    }
    if device == "cuda":
        # 85 million parameters over 128 positions.
        tokens = torch.randint(0, 64, (ROWS, 128))
        whole["large transformer"] = Setting(partial(Transformer, 768, 12), tokens, 32, rounds=40, updates=2)
    few: dict[str, Any] = {"rounds": SHORT_ROUNDS, "updates": 1} if short else {}
    return {name: replace(setting, device=device, **few) for name, setting in whole.items()}


def loops(setting: Setting, also: Mapping[str, Make] | None = None) -> dict[str, Loop]:
    """Each trains that many updates more and gives the seconds an update."""
    model, inputs = setting.model().to(setting.device), setting.inputs.to(setting.device)
    targets = (inputs.float().flatten(1).sum(1) > 0).float()
    data = TrainData({"x": inputs}, targets)
    # Bare again: what the machine's noise makes of two equal loops.
    makes: dict[str, Make] = {"ours": ours, BARE: bare, FUSED: partial(bare, fused=True), "bare again": bare}
    if importlib.util.find_spec("pytorch_lightning") is not None:
        makes["lightning"] = lightning
    makes |= also or {}
    return {name: make(copy.deepcopy(model), data, setting) for name, make in makes.items()}


def made(model: nn.Module, setting: Setting) -> tuple[TrainState, Plan, Recipe]:
    """What the product's loop trains by."""
    spec = TrainingSpec(
        optimizer=OPTIMIZER, schedule=ScheduleSpec(warmup=0.0, decay="constant"), batch_size=setting.batch_size,
        epochs=1, precision="fp32", clip_norm=1e6, seed=0,
    )  # fmt: skip
    steps = setting.updates * (setting.rounds + 1)
    task: Any = Task
    plan = Plan(
        rows=ROWS, batch_size=setting.batch_size, steps_per_epoch=ROWS // setting.batch_size, horizon_steps=steps,
        first_step=0, last_step=steps, seed=0,
    )  # fmt: skip
    return TrainState(model, make_optimizers(task, model, OPTIMIZER)), plan, make_recipe(task, spec, steps)


def ours(model: nn.Module, data: TrainData, setting: Setting) -> Loop:
    """The product's loop."""
    state, plan, recipe = made(model, setting)

    def run(updates: int) -> float:
        end = state.step + updates
        started = setting.clock()
        alarm = train(state, data, plan, recipe, lambda state, update: state.step == end)
        seconds = setting.clock() - started
        assert alarm is None
        return seconds / updates

    return run


def bare(model: nn.Module, data: TrainData, setting: Setting, *, fused: bool | None = None) -> Loop:
    """Five lines a step."""
    rate, decay = OPTIMIZER.learning_rate, OPTIMIZER.weight_decay
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay, fused=fused)
    batches = _batches(setting)

    def run(updates: int) -> float:
        model.train()
        started = setting.clock()
        for _ in range(updates):
            rows = next(batches)
            optimizer.zero_grad()
            outputs = model({name: tensor[rows] for name, tensor in data.inputs.items()})
            Task.loss_fn(outputs, data.targets[rows]).mean().backward()
            optimizer.step()
        return (setting.clock() - started) / updates

    return run


def lightning(model: nn.Module, data: TrainData, setting: Setting) -> Loop:
    """Lightning's Trainer with everything optional off; its set-up is not counted."""
    import pytorch_lightning as pl

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    batches = _batches(setting)

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, rows: Tensor, number: int) -> Tensor:
            outputs = self.model({name: tensor[rows] for name, tensor in data.inputs.items()})
            return Task.loss_fn(outputs, data.targets[rows]).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=OPTIMIZER.learning_rate, weight_decay=OPTIMIZER.weight_decay)

    class Clock(pl.Callback):
        started = ended = 0.0

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
            self.started = self.started or setting.clock()

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.ended = setting.clock()

    class Rows:
        def __iter__(self) -> Iterator[Tensor]:
            return batches

    def run(updates: int) -> float:
        clock, accelerator = Clock(), "gpu" if setting.device == "cuda" else "cpu"
        trainer = pl.Trainer(
            max_steps=updates, accelerator=accelerator, devices=1, logger=False, callbacks=[clock],
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, deterministic=True,
        )  # fmt: skip
        trainer.fit(Module(), Rows())
        return (clock.ended - clock.started) / updates

    return run


def _batches(setting: Setting) -> Iterator[Tensor]:
    """Row numbers of one batch after the other, each epoch in an order of its own."""
    while True:
        order = torch.randperm(ROWS).to(setting.device)
        yield from order[: ROWS // setting.batch_size * setting.batch_size].split(setting.batch_size)


Round = dict[str, float]


def measure(loops: dict[str, Loop], setting: Setting) -> list[Round]:
    """Seconds an update of each loop, round by round; every round takes them in another order."""
    names, rounds = list(loops), []
    for run in loops.values():
        run(setting.updates)
    for number in range(setting.rounds):
        turn = names[number % len(names) :] + names[: number % len(names)]
        rounds.append({name: loops[name](setting.updates) for name in turn if name not in PEERS or number % 10 == 0})
    return rounds


def ratios(network: str, rounds: list[Round]) -> dict[str, float]:
    """The median ratio of each loop to the bare one, and the milliseconds that an update takes more; all printed.

    Of what has the fused optimizer, to the bare loop with that one as well.
    """
    figures = {f"{network}_bare_ms": 1e3 * statistics.median(one[BARE] for one in rounds)}
    others = {name for one in rounds for name in one} - {BARE}
    pairs = [(name, BARE) for name in sorted(others)] + [(name, FUSED) for name in sorted(others & {"ours", "watched"})]
    for name, to in pairs:
        both = [(one[name], one[to]) for one in rounds if name in one]
        ratio, more = [one / base for one, base in both], 1e3 * statistics.median(one - base for one, base in both)
        low, middle, high = statistics.quantiles(ratio, n=4)
        kind = name.replace(" ", "_") + ("" if to == BARE else "_to_fused")
        figures |= {f"{network}_{kind}_ratio": middle, f"{network}_{kind}_ms": more}
        print(
            f"{network:<12} {name:<10} {middle:.4f} ± {_error(ratio):.4f} times the {to} loop's "
            f"{1e3 * statistics.median(base for _, base in both):.2f} ms (quartiles {low:.3f} to {high:.3f}), "
            f"{more:.3f} ms more",
            flush=True,
        )
    return figures


def _error(values: list[float]) -> float:
    """The standard error of the median, by drawing again."""
    generator = random.Random(0)
    medians = [statistics.median(generator.choices(values, k=len(values))) for _ in range(200)]
    return statistics.stdev(medians)


def main() -> None:
    short = arguments(__doc__).parse_args().short
    begin(short)
    seed_everything(0)
    # One thread: two that wait for each other on a busy machine measure the machine.
    torch.set_num_threads(1)
    figures: dict[str, float] = {}
    for name, setting in settings(short).items():
        figures |= ratios(name, measure(loops(setting), setting))
    if importlib.util.find_spec("pytorch_lightning") is None:
        print("lightning is not installed: pip install -e .[lightning]")
    print(hardware())
    finish("loop", figures, TARGETS, short=short)


if __name__ == "__main__":
    main()
