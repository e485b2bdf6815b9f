"""The exchange of parts asked of a case of `general` that has rows: which part does `trainworthy diagnose --all` name?

A case of tensors is written down as the table and the use case that it stands for: a column for each number of a row,
a label, a group, and a model.py that gives the case's own network, loss, optimizers, rates and augmentation. What
cannot be written down so is not asked, and why is kept.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from benchmarks.general_forms import Form, NotAskedError, form_of
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.substitution.diagnose import run_diagnosis
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.gates.diagnosis import ORDER
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.protocol.jobs import DiagnoseJob, Rows, TrainJob
from trainworthy.lifecycle.protocol.training_figures import Diagnosis
from trainworthy.lifecycle.spec.training import OptimizerSpec, ScheduleSpec, StagesSpec, TrainingSpec

MODEL = "from benchmarks.general_exchange import functions_of\n\nglobals().update(functions_of(__file__))\n"
# Of numbers or tokens alike: the pilot has all rows of so small a table, and the schedule is the whole training's.
STAGES = StagesSpec(smoke=0.1, pilot=1.0, full=1.0)

_subjects: dict[str, tuple[Subject, Form]] = {}


def exchanged(make: Callable[[Path], TrainJob]) -> dict[str, Any]:
    """What the exchange of all parts says of the training: `part` is the one it names, None if it names none.

    `why_not` says why it was not asked, "" if it was. `broke` is the error that ended the training as it is.
    """
    began, broke, why_not, found = time.process_time(), "", "", None
    try:
        with tempfile.TemporaryDirectory() as made:
            found = _diagnosed(make(Path(made)))
    except NotAskedError as error:
        why_not = str(error)
    except Exception as error:
        broke = type(error).__name__
    return {
        "why_not": why_not, "broke": broke, "cpu": round(time.process_time() - began, 3),
        "part": None if found is None else found.at_fault,
        "loss": None if found is None else _rounded(found.loss),
        "prior_loss": None if found is None else _rounded(found.prior_loss),
        "exchanges": [] if found is None else [
            {
                "part": one.part, "status": one.status, "code": one.code, "told": one.told, "loss": _rounded(one.loss),
                "gain": _value(one.gain), "standard_error": _standard_error(one.gain),
                "below_prior": _value(one.below_prior), "below_prior_standard_error": _standard_error(one.below_prior),
                "groups": None if one.gain is None else one.gain.groups,
            }
            for one in found.exchanges
        ],
    }  # fmt: skip


def _diagnosed(job: TrainJob) -> Diagnosis:
    """As the command asks of a pilot, all parts."""
    asked = DiagnoseJob(
        use_case_folder=job.use_case_folder, out=job.out, device="cpu", training=job, parts=ORDER, most=len(ORDER)
    )
    return run_diagnosis(asked).diagnosis


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else _rounded(estimate.value)


def _standard_error(estimate: Estimate | None) -> float | None:
    return None if estimate is None else _rounded(estimate.standard_error)


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


# ---- tensors as a use case -------------------------------------------------------------------------------------------


def job_of_subject(host: str, subject: Subject, folder: Path) -> TrainJob:
    """The subject's whole training as the pilot of a use case in the folder. Raises NotAskedError."""
    if type(subject.plan) is not Plan or type(subject.training) is not TrainData or subject.loaded is not None:
        raise NotAskedError("what is changed is the loop's, and no part of a use case")
    form = form_of(host, subject)
    weighed = subject.training.weights is not None
    for name, data, groups in (
        ("training", subject.training, None), ("validation", subject.held_out, subject.groups)
    ):  # fmt: skip
        columns = form.columns(data, folder, name)
        _table(data, groups, weighed, columns).to_parquet(folder / f"{name}.parquet")
    (folder / "model.py").write_text(MODEL)
    _subjects[str(folder.resolve())] = (subject, form)
    validation = str(folder / "validation.parquet")
    return TrainJob(
        use_case_folder=str(folder), out=str(folder / "out"), device="cpu", identity=f"general:{host}", stage="pilot",
        rows=Rows(
            features=(*_columns(subject.training.inputs), *form.features), label="label", group="group",
            target=form.target, weight="weight" if weighed else None, files_root=str(folder), **form.rows,
        ),
        stages=STAGES, training=_training(subject), hyperparameters={},
        training_file=str(folder / "training.parquet"), validation_file=validation, calibration_file=validation,
    )  # fmt: skip


def functions_of(model_file: str) -> dict[str, Callable[..., Any]]:
    """The functions of the model.py that stands for a subject; it is imported once."""
    subject, form = _subjects.pop(str(Path(model_file).resolve().parent))
    recipe, few = subject.recipe, subject.training.inputs

    def to_tensors(rows: pd.DataFrame, preprocessing: Any) -> dict[str, Tensor]:
        shaped = {}
        for name, tensor in few.items():
            values = torch.from_numpy(rows[_columns({name: tensor})].to_numpy(copy=True))
            shaped[name] = values.to(tensor.dtype).reshape(len(rows), *tensor.shape[1:])
        return shaped

    def augment(inputs: dict[str, Tensor], targets: Tensor, generator: torch.Generator) -> tuple[Any, Tensor]:
        assert recipe.augment is not None
        changed, labels = recipe.augment(inputs, form.own(targets), generator)
        return changed, form.kinds(labels)

    functions: dict[str, Callable[..., Any]] = {
        "fit_preprocessing": lambda training, hyperparameters: {},
        "to_tensors": to_tensors,
        "build_model": lambda preprocessing, hyperparameters: subject.build(),
        "build_optimizers": lambda model, optimizer: list(subject.optimizers(model)),
        "learning_rate": lambda step, steps, declared: recipe.learning_rate(step),
        "loss_fn": lambda outputs, targets: recipe.loss_fn(outputs, form.own(targets)),
        "predict": form.answers,
    }
    return functions if recipe.augment is None else functions | {"augment": augment}


def _columns(inputs: dict[str, Tensor]) -> list[str]:
    return [f"{name}_{place}" for name, tensor in inputs.items() for place in range(math.prod(tensor.shape[1:]))]


def _table(data: TrainData, groups: np.ndarray | None, weighed: bool, more: Mapping[str, Any]) -> pd.DataFrame:
    rows = len(data.targets)
    columns = {
        column: values.numpy()
        for name, tensor in data.inputs.items()
        for column, values in zip(_columns({name: tensor}), tensor.reshape(rows, -1).T, strict=True)
    }
    table = pd.DataFrame(columns | dict(more)).assign(group=np.arange(rows) // 10 if groups is None else groups)
    if weighed:
        table["weight"] = 1.0 if data.weights is None else data.weights.numpy().astype(float)
    return table


def _training(subject: Subject) -> TrainingSpec:
    """What the subject declares; its schedule and its optimizers are functions of model.py."""
    recipe, plan = subject.recipe, subject.plan
    group = subject.optimizers(subject.build())[0].param_groups[0]
    spec = TrainingSpec(
        optimizer=OptimizerSpec(
            name="adamw", learning_rate=group["lr"] / group["lr_scale"] if group["lr_scale"] else 1e-3,
            weight_decay=group.get("weight_decay", 0.0),
        ),
        schedule=ScheduleSpec(warmup=0.1, decay="cosine"),
        batch_size=max(1, plan.batch_size // recipe.accumulate), accumulate=recipe.accumulate,
        epochs=max(1, plan.last_step // plan.steps_per_epoch), precision=recipe.precision, clip_norm=recipe.clip_norm,
        focal_gamma=recipe.focal_gamma or None, seed=recipe.seed,
    )  # fmt: skip
    return spec
