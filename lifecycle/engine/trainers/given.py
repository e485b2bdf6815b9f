"""What a training script is given of its stage, the same in each of the processes that train together."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from trainworthy.lifecycle.data.split.held_out import hold_out
from trainworthy.lifecycle.engine.training.prepare import Prepared
from trainworthy.lifecycle.engine.training.ranks.group import Ranks
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.errors import TrainingError
from trainworthy.lifecycle.files.values import as_texts
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.spec.training import TrainingSpec


class Given:
    """One stage of a training by a script of the use case's own.

    `stage` is smoke, pilot or full, `device` cpu or cuda. `steps` are the updates that use_case.yaml plans (epochs and
    batch_size), each of `batch_size` rows. `training` and `hyperparameters` are its sections: what of them has an
    effect is up to the script. `seed` has seeded torch, numpy and random. `preprocessing` was learned from the stage's
    rows. `inputs` are these rows as to_tensors gives them, each (N, ...), `targets` their labels as loss_fn gets
    them, (N, ...) float32 or int64 (Task.loss_fn in lifecycle/task.py); both on the device. `has_weights`: rows do not
    count the same. This is process `rank`, 0 the first, of `processes` that train together.
    """

    def __init__(self, job: TrainJob, plan: Plan, prepared: Prepared, device: str, ranks: Ranks | None = None) -> None:
        self._job, self._prepared, self._ranks = job, prepared, ranks
        self.read_weights = False
        data = _whole(prepared)
        self.stage, self.device, self.seed = job.stage, device, job.training.seed
        self.steps, self.batch_size = plan.last_step, plan.batch_size
        self.training: TrainingSpec = job.training
        self.hyperparameters, self.preprocessing = job.hyperparameters, prepared.preprocessing
        self.inputs, self.targets, self.has_weights = data.inputs, data.targets, data.weights is not None
        self.rank, self.processes = (0, 1) if ranks is None else (ranks.rank, ranks.size)

    def share(self, rows: Tensor) -> Tensor:
        """This process's part of an update's rows, (N, ...): contiguous, and of equal size but for one row.

        Raises TrainingError if a process would be without rows.
        """
        if len(rows) < self.processes:
            raise TrainingError(
                "an update has fewer rows than there are processes",
                value=f"{len(rows)} rows for {self.processes} processes",
                fix="draw more rows an update, or lower compute.processes",
            )
        return rows if self._ranks is None else self._ranks.share(rows)

    def split(self, share: float = 0.1) -> tuple[Tensor, Tensor]:
        """Numbers of the stage's rows to train on, and of those to hold out: (n,) int64 each, ascending, on the CPU.

        By the rule of `split` in use_case.yaml, about `share` of the rows are held out: by time the latest ones, whole
        days, or instants where its lengths are in hours; by group, and by hash of columns, whole groups; by time and
        group the late rows of groups that begin late, while late rows of earlier groups are in neither; else single
        rows. Groups and single rows are drawn by the seed. There is no embargo in between. The same in each process, on
        each resume and each rerun. Raises TrainingError unless 0 < share < 1, and for a stage that is too small: it
        needs a row, and two days or groups, that can be parted.
        """
        if self._job.split is None:
            fix = "run the stage again: an earlier Trainworthy wrote its job"
            raise TrainingError("the job does not say how the use case splits its rows", value=self.stage, fix=fix)
        training, held_out = hold_out(self._prepared.rows, self._job.split, share, self.seed)
        return torch.from_numpy(training), torch.from_numpy(held_out)

    @property
    def weights(self) -> Tensor | None:
        """Each row's weight, (N,) of mean 1; None where every row counts the same. Once read, they count as used."""
        self.read_weights = True
        return _whole(self._prepared).weights

    @property
    def folder(self) -> Path:
        """For files of the script's own; it outlives an interruption. Each process has one of its own."""
        out = Path(self._job.out) if self._ranks is None else self._ranks.out
        made = out / "script" / (f"rank-{self.rank}" if self.rank else "")
        made.mkdir(parents=True, exist_ok=True)
        return made

    def parquet(self) -> Path:
        """The stage's rows as a Parquet file of features and label; files by their absolute paths, as texts."""
        path, rows = self.folder / "rows.parquet", self._job.rows
        as_texts(self._prepared.rows[[*rows.features, rows.label]]).to_parquet(path, index=False)
        return path


def _whole(prepared: Prepared) -> TrainData:
    # use_case.py refuses tensors: per_batch beside a trainer.
    assert isinstance(prepared.data, TrainData)
    return prepared.data
