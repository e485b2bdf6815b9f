"""A training of a transformer by several ranks, for benchmarks, and the same by torch's DistributedDataParallel alone.

`python -m torch.distributed.run … -m benchmarks.rank_jobs JOB` is the bare one: what one writes who wants nothing but
the updates. Both stamp the time of each forward pass of their first rank, so that they are measured the same way.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from trainworthy.lifecycle.identity import canonical_json
from trainworthy.lifecycle.protocol.jobs import JobFile, Rows, TrainJob
from trainworthy.lifecycle.spec.training import TrainingSpec
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.resources.settings import PRODUCT

TOY = PRODUCT / "tests" / "toy" / "use_cases" / "toy"
COLUMNS = tuple(f"x{number}" for number in range(16))
# Tokens are the columns; a width of 192 and four layers make 1.8 million parameters.
MODEL = '''
"""Each column is a token of a transformer."""

import os
import time

import torch
from torch import nn

COLUMNS = {columns!r}


def stamp(path):
    """When this forward pass of the first rank began."""
    if os.environ.get("RANK", "0") == "0":
        with open(path, "a") as file:
            file.write(f"{{time.time()}}\\n")
    time.sleep({pause})


def fit_preprocessing(training, hyperparameters):
    return {{}}


def to_tensors(rows, preprocessing):
    return {{"numbers": torch.tensor(rows[list(COLUMNS)].to_numpy(dtype="float32"))}}


class Network(nn.Module):
    def __init__(self, width, layers, stamps):
        super().__init__()
        self.stamps = stamps
        self.embed = nn.Parameter(torch.randn(len(COLUMNS), width) / width ** 0.5)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1)

    def forward(self, inputs):
        if self.training:
            stamp(self.stamps)
        tokens = inputs["numbers"][:, :, None] * self.embed
        return self.head(self.encoder(tokens).mean(1)).squeeze(1)


def build_model(preprocessing, hyperparameters):
    return Network(hyperparameters["width"], hyperparameters["layers"], hyperparameters["stamps"])


def loss_fn(outputs, targets):
    return nn.functional.binary_cross_entropy_with_logits(outputs, targets.float(), reduction="none")


def predict(outputs):
    return torch.sigmoid(outputs)
'''


def rank_job(
    folder: Path, name: str, *, processes: int, updates: int, batch_rows: int = 64, width: int = 192, layers: int = 4,
    pause: float = 0.0, timeout_seconds: float = 600.0, every_steps: int | None = None,
) -> TrainJob:  # fmt: skip
    """A job of so many updates; its use case and rows are made once a folder. `pause` seconds are slept a forward."""
    use_case, rows = folder / "use_case", folder / "rows.parquet"
    if not rows.exists():
        use_case.mkdir(parents=True)
        (use_case / "model.py").write_text(MODEL.format(columns=COLUMNS, pause=pause))
        _write_rows(rows)
    spec = load_use_case(TOY).spec
    training = spec.training.model_dump(mode="json") | {
        "batch_size": batch_rows, "epochs": max(1, -(-updates * batch_rows // ROWS)),
        "checkpoint_every_steps": every_steps,
    }  # fmt: skip
    job = TrainJob(
        use_case_folder=str(use_case), out=str(folder / name), device="cpu",
        rows=Rows(features=COLUMNS, label="positive", group="day"), identity="benchmark", stage="full",
        stages=spec.stages, training=TrainingSpec.model_validate(training),
        hyperparameters={"width": width, "layers": layers, "stamps": str(folder / name / "stamps")},
        training_file=str(rows), validation_file=str(rows), calibration_file=str(rows),
        processes=processes, collective_timeout_seconds=timeout_seconds,
    )  # fmt: skip
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "job.json").write_bytes(canonical_json(JobFile(job=job).model_dump(mode="json")))
    return job


ROWS = 2048


def _write_rows(path: Path) -> None:
    import numpy as np
    import pandas as pd

    generator = np.random.default_rng(0)
    values = generator.normal(size=(ROWS, len(COLUMNS)))
    frame = pd.DataFrame(dict(zip(COLUMNS, values.T, strict=True)))
    chance = 1 / (1 + np.exp(-values[:, :4].sum(1)))
    frame["positive"] = (generator.random(ROWS) < chance).astype("int64")
    frame["day"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(ROWS) // 64, unit="D")
    frame.to_parquet(path)


def stamps(job: TrainJob) -> list[float]:
    """When each forward pass of the first rank began, in seconds since 1970."""
    return [float(line) for line in Path(str(job.hyperparameters["stamps"])).read_text().splitlines()]


def bare(job: TrainJob) -> None:
    """The job's updates by torch's DistributedDataParallel, in a rank that torchrun has started, and nothing else."""
    import pandas as pd
    import torch
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    from trainworthy.lifecycle.task import load_task

    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    task, training = load_task(Path(job.use_case_folder)), job.training
    rows = pd.read_parquet(job.training_file)
    inputs = task.to_tensors(rows[list(job.rows.features)], {})
    targets = torch.tensor(rows[job.rows.label].to_numpy())
    torch.manual_seed(training.seed)
    model = DistributedDataParallel(task.build_model({}, job.hyperparameters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=training.optimizer.learning_rate)
    for _ in range(training.epochs):
        for batch in torch.randperm(len(targets)).split(training.batch_size):
            mine = batch.tensor_split(size)[rank]
            optimizer.zero_grad()
            task.loss_fn(model({name: one[mine] for name, one in inputs.items()}), targets[mine]).mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm)
            optimizer.step()
    distributed.destroy_process_group()


if __name__ == "__main__":
    began = time.time()
    found = JobFile.model_validate_json(Path(sys.argv[1]).read_bytes()).job
    assert isinstance(found, TrainJob)
    bare(found)
    if os.environ["RANK"] == "0":
        print(json.dumps({"seconds": time.time() - began}), file=sys.stderr)
