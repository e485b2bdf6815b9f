"""How long training waits for its rows: whole tensors on flights, loaders on pictures that must be decoded.

Flights: the loop's wait for the rows of a step, as a share of the step, and rows a second of choosing alone beside
DataLoader(TensorDataset) with the same batches. Pictures: 2,000 PNG files in memory are decoded, cropped and flipped
by loaders while a small network trains; the share of the training that it waits, beside the same work in the loop's
own process.

    make bench NAME=loading          about 2 minutes on 2 cores
"""

from __future__ import annotations

import contextlib
import io
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.flights_rows import labelled
from benchmarks.result import arguments, begin, finish
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.engine.training.loop import train_step
from trainworthy.lifecycle.engine.training.prepare import seed_everything
from trainworthy.lifecycle.engine.training.recipe import make_optimizers, make_recipe
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows, usual_loaders
from trainworthy.lifecycle.engine.training.state import Batches, Recipe, Share, TrainData, TrainState, whole
from trainworthy.lifecycle.plan import Plan, make_plan
from trainworthy.lifecycle.task import fit_preprocessing, load_task
from trainworthy.lifecycle.use_case import UseCase, load_use_case
from trainworthy.resources.settings import PRODUCT

SIDE, CROP, PICTURE_BATCH = 72, 64, 32
TARGETS = {"flights_wait": 0.02, "pictures_wait": 0.10}


class Size(NamedTuple):
    """Rounds that take turns, steps on flights, batches of a DataLoader, and pictures."""

    rounds: int
    steps: int
    peer_batches: int
    pictures: int


WHOLE, SHORT = Size(3, 150, 20, 2_000), Size(1, 10, 2, 128)


def main() -> None:
    """Both parts, in rounds that take turns."""
    short = arguments(__doc__).parse_args().short
    begin(short)
    size = SHORT if short else WHOLE
    use_case = load_use_case(PRODUCT / "use_cases" / "flight_delays")
    contract = load_contract(use_case.contract_path)
    rows = labelled(contract, short, use_case.spec.dataset.version)
    figures = flights(size, use_case, contract, rows) | pictures(size)
    finish("loading", figures, TARGETS, short=short)


def flights(size: Size, use_case: UseCase, contract: Contract, rows: pd.DataFrame) -> dict[str, float]:
    """The declared network on these rows: wait of a step, and rows a second of two ways to choose rows."""
    spec, task, features = use_case.spec, load_task(use_case.folder), list(contract.feature_columns)
    seed_everything(spec.training.seed)
    state = fit_preprocessing(task, rows[features], spec.hyperparameters)
    targets = torch.tensor(rows[contract.label.name].to_numpy(), dtype=torch.float32)
    data = TrainData(task.to_tensors(rows[features], state), targets)
    model = task.build_model(state, spec.hyperparameters)
    run = TrainState(model, make_optimizers(task, model, spec.training.optimizer))
    plan = make_plan(len(rows), spec.training, spec.stages, "full")
    recipe = make_recipe(task, spec.training, plan.horizon_steps)
    waits, ours, theirs = [], [], []
    peer = TensorDataset(*data.inputs.values(), targets)
    for _ in range(size.rounds):
        waits.append(wait_share(run, data, plan, recipe, size.steps))
        chosen = lambda: (batch.take(rows) for batch, rows in data.batches(plan, 0))
        ours.append(rows_per_second(chosen, size.steps))
        drawn = lambda: iter(DataLoader(peer, plan.batch_size, shuffle=True))
        theirs.append(rows_per_second(drawn, size.peer_batches))
    found = {
        "flights_wait": statistics.median(waits),
        "flights_rows_per_second": statistics.median(ours),
        "dataloader_rows_per_second": statistics.median(theirs),
    }
    print(f"\nflights, {len(rows):,} rows, batches of {plan.batch_size:,}")
    print(f"  the loop waits {found['flights_wait']:.2%} of a step")
    print(f"  rows a second: {found['flights_rows_per_second']:,.0f}; ", end="")
    print(f"DataLoader(TensorDataset) {found['dataloader_rows_per_second']:,.0f}", flush=True)
    return found


def rows_per_second(batches: Callable[[], object], steps: int) -> float:
    """Rows a second over some batches, the first left out, since it makes the order of an epoch."""
    source, rows = batches(), 0
    first = next(source)  # pyright: ignore[reportCallIssue, reportArgumentType]
    size = len(first.targets) if isinstance(first, TrainData) else len(first[-1])
    started = time.perf_counter()
    for _ in range(steps):
        next(source)  # pyright: ignore[reportCallIssue, reportArgumentType]
        rows += size
    return rows / (time.perf_counter() - started)


class Network(nn.Module):
    """Four convolutions over pictures of CROP × CROP, in 8-bit values."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 32, 64, 96, 128)
        layers = [
            nn.Sequential(nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU())
            for before, after in pairwise(widths)
        ]
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 1))

    def forward(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.layers(inputs["picture"].float() / 255 - 0.5).squeeze(1)


def encoded(count: int, seed: int) -> tuple[pd.DataFrame, torch.Tensor]:
    """PNG files of smooth noise; a positive one is brighter in the middle."""
    generator, files = np.random.default_rng(seed), []
    labels = generator.integers(0, 2, count)
    for label in labels:
        coarse = generator.integers(0, 200, (9, 9, 3), dtype=np.uint8)
        coarse[3:6, 3:6] += np.uint8(40 * label)
        file = io.BytesIO()
        Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(file, "PNG")
        files.append(file.getvalue())
    return pd.DataFrame({"png": files}), torch.tensor(labels, dtype=torch.float32)


def decoded(rows: pd.DataFrame) -> dict[str, torch.Tensor]:
    """Pictures `(N, 3, SIDE, SIDE)`, 8-bit."""
    arrays = [np.asarray(Image.open(io.BytesIO(file)).convert("RGB")) for file in rows["png"]]
    return {"picture": torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2)}


def cropped(
    inputs: dict[str, torch.Tensor], targets: torch.Tensor, generator: torch.Generator
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Each picture cropped at a place of its own, half of them flipped."""
    places = torch.randint(0, SIDE - CROP + 1, (len(targets), 2), generator=generator).tolist()
    flips = torch.rand(len(targets), generator=generator) < 0.5
    taken = [
        image[:, top : top + CROP, left : left + CROP]
        for image, (top, left) in zip(inputs["picture"], places, strict=True)
    ]
    pictures = torch.stack([one.flip(2) if flip else one for one, flip in zip(taken, flips, strict=True)])
    return {"picture": pictures}, targets


class InTheLoop:
    """The same batches made by the loop itself."""

    def __init__(self, rows: LoadedRows) -> None:
        self.rows = rows

    def batches(self, plan: Plan, first_step: int, share: Share = whole):
        for step in range(first_step, plan.last_step):
            taken = self.rows.take(share(plan.batch(step)))
            generator = torch.Generator().manual_seed(step)
            inputs, targets = cropped(taken.inputs, taken.targets, generator)
            yield TrainData(inputs, targets), torch.arange(len(targets))


def pictures(size: Size) -> dict[str, float]:
    """The wait for loaders, and for the loop's own decoding; rows a second of both, in rounds that take turns."""
    features, targets = encoded(size.pictures, 0)
    rows = LoadedRows(decoded, PRODUCT, features, targets, "cpu", usual_loaders(), seed=0, augment=cropped)
    an_epoch = size.pictures // PICTURE_BATCH
    steps = 2 * an_epoch
    plan = Plan(
        rows=size.pictures, batch_size=PICTURE_BATCH, steps_per_epoch=an_epoch, horizon_steps=steps,
        first_step=0, last_step=steps, seed=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Network()
    state = TrainState(model, (torch.optim.AdamW(model.parameters()),))
    recipe = Recipe(
        lambda o, t: nn.functional.binary_cross_entropy_with_logits(o, t, reduction="none"),
        learning_rate=lambda step: 1e-3, clip_norm=1.0,
    )  # fmt: skip
    ways: dict[str, Batches] = {"loaders": rows, "in the loop": InTheLoop(replace(rows, augment=None))}
    waits: dict[str, list[float]] = {name: [] for name in ways}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(size.rounds):
        for name, way in ways.items():
            started = time.perf_counter()
            waits[name].append(wait_share(state, way, plan, recipe, steps))
            seconds[name].append(time.perf_counter() - started)
    print(f"\npictures: {size.pictures:,} PNG of {SIDE} × {SIDE}, {rows.loaders} loader, batches of {PICTURE_BATCH}")
    for name in ways:
        per_second = steps * PICTURE_BATCH / statistics.median(seconds[name])
        print(f"  {name}: waits {statistics.median(waits[name]):.1%}, {per_second:,.0f} pictures a second", flush=True)
    return {
        "pictures_wait": statistics.median(waits["loaders"]),
        "pictures_wait_in_the_loop": statistics.median(waits["in the loop"]),
    }


def wait_share(state: TrainState, data: Batches, plan: Plan, recipe: Recipe, steps: int) -> float:
    """Share of the time of the first `steps` steps that passed before their rows were there; the start included."""
    state.model.train()
    waited, started = 0.0, time.perf_counter()
    with contextlib.closing(data.batches(plan, 0)) as batches:
        for step in range(min(steps, plan.last_step)):
            asked = time.perf_counter()
            batch, rows = next(batches)
            waited += time.perf_counter() - asked
            state.step = step
            train_step(state, batch, rows, recipe)
    return waited / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
