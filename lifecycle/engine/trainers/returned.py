"""What a script returned, as the model that is validated, exported and shipped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch.nn.parallel import DistributedDataParallel

from trainworthy.lifecycle.engine.trainers.watched import spoiled_parameters
from trainworthy.lifecycle.engine.training.prepare import Prepared
from trainworthy.lifecycle.errors import EvaluationError, TrainingError
from trainworthy.lifecycle.plan import MIN_STEPS
from trainworthy.lifecycle.protocol.jobs import TrainJob
from trainworthy.lifecycle.scoring import predict_rows
from trainworthy.lifecycle.task import error_line
from trainworthy.lifecycle.tasks.labels import kind_of_rows

_RETURN = "return the trained nn.Module, or its state_dict() if model.py has build_model"
_FORWARD = (
    "its forward takes the dict of to_tensors and gives what predict takes: unwrap what a framework put around it, "
    "for example return module.network"
)


def module_of(returned: object, job: TrainJob, prepared: Prepared) -> torch.nn.Module:
    """The module that was returned, or one with the weights that were. Raises TrainingError if it is neither."""
    if isinstance(returned, Mapping):
        returned = _with_weights(dict(returned), job, prepared)
    if isinstance(returned, DistributedDataParallel):
        # Around the network it would wait for the other processes at each call.
        returned = returned.module
    if isinstance(returned, torch.nn.Module) and any(
        hasattr(parameter, "full_tensor") for parameter in returned.parameters()
    ):
        raise TrainingError(
            f"{job.trainer}: train returned a model whose parameters are sharded (DTensor)",
            fix="return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))",
        )
    if not isinstance(returned, torch.nn.Module):
        raise TrainingError(f"{job.trainer}: train returned {type(returned).__name__}", fix=_RETURN)
    return returned


def answering_model(returned: object, job: TrainJob, prepared: Prepared, device: str) -> torch.nn.Module:
    """The model on the device. Raises TrainingError if it is none that gives the answers of the kind of task."""
    model = module_of(returned, job, prepared).to(device)
    if spoiled := spoiled_parameters(model):
        problem = f"{job.trainer}: train returned weights that are not finite: {', '.join(spoiled)}"
        raise TrainingError(
            problem, fix="call session.step(loss=…, model=…) before each update: it names the one that did it"
        )
    features, kind = prepared.rows[list(job.rows.features)].head(MIN_STEPS), kind_of_rows(job.rows)
    try:
        answers = predict_rows(prepared.task, model, prepared.preprocessing, features, device, kind)
    except Exception as error:
        problem = error_line(error, Path(job.use_case_folder), sensitive=bool(job.rows.sensitive_features))
        raise TrainingError(
            f"{job.trainer}: the returned model gives no {kind.answers}: {problem}", fix=_FORWARD
        ) from error
    if answers.shape != (len(features), *kind.answer_shape):
        problem = f"{len(features)} rows became {answers.shape}"
        raise TrainingError(f"{job.trainer}: the returned model gives no {kind.answers}: {problem}", fix=_FORWARD)
    try:
        kind.checked(kind.sample_labels(len(features)), answers)
    except EvaluationError as error:
        problem = f"{error.problem}, for example {error.value}"
        raise TrainingError(
            f"{job.trainer}: the returned model gives no {kind.answers}: {problem}", fix=f"{_FORWARD}; {error.fix}"
        ) from error
    return model


def _with_weights(weights: dict[str, Any], job: TrainJob, prepared: Prepared) -> torch.nn.Module:
    build = getattr(prepared.task, "build_model", None)
    if build is None:
        raise TrainingError(
            f"{job.trainer}: train returned weights, and model.py has no build_model",
            fix="define build_model in model.py, or return the nn.Module itself",
        )
    model = cast("torch.nn.Module", build(prepared.preprocessing, job.hyperparameters))
    try:
        model.load_state_dict(weights)
    except (RuntimeError, TypeError) as error:
        fix = "return the state_dict() of what model.py's build_model makes"
        raise TrainingError(f"{job.trainer}: train returned weights of another model: {error}", fix=fix) from None
    return model
