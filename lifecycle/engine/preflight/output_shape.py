"""Whether forward gives a last side of 1 that loss_fn and predict do not take: (N, 1) in the place of (N,)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainworthy.lifecycle.engine.preflight.function_trials import Wrong
from trainworthy.lifecycle.errors import EvaluationError
from trainworthy.lifecycle.scoring import as_array
from trainworthy.lifecycle.task import Task
from trainworthy.lifecycle.tasks import Kind


def too_wide(task: Task, outputs: object, targets: Tensor, kind: Kind, functions: Sequence[str]) -> Wrong | None:
    """What is wrong with outputs `(N, 1)` of which `functions`, of loss_fn and predict, take `(N,)` alone.

    None where one of them takes no `(N,)`, or all take what there is: then the shape is as it is meant.
    """
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or outputs.shape[1] != 1 or targets.ndim != 1:
        return None
    tries: dict[str, Callable[[Tensor], bool]] = {
        "loss_fn": lambda given: tuple(task.loss_fn(given, targets).shape) == (len(targets),),
        "predict": lambda given: _answers(task, given, kind),
    }
    wide, narrow = outputs.detach(), outputs.detach().squeeze(1)
    refusing = [name for name in functions if not _takes(tries[name], wide)]
    if not refusing or not all(_takes(tries[name], narrow) for name in functions):
        return None
    shape, wanted = tuple(wide.shape), tuple(narrow.shape)
    problem = f"outputs have the shape {shape}, and {' and '.join(refusing)} take {wanted}: one number a row"
    return problem, "leave out the last side of 1 where forward returns: outputs.squeeze(1)"


def follows(outputs: Tensor) -> str:
    """The fix of what fails by such outputs."""
    return f"follows from forward, which gives {tuple(outputs.shape)}: correct that first"


def _takes(function: Callable[[Tensor], bool], outputs: Tensor) -> bool:
    try:
        with torch.no_grad(), warnings.catch_warnings():
            # mse_loss warns of the shapes that are tried here.
            warnings.simplefilter("ignore")
            return function(outputs)
    except (Exception, SystemExit):
        return False


def _answers(task: Task, outputs: Tensor, kind: Kind) -> bool:
    try:
        answers = kind.of_predict(as_array(task.predict(outputs)))
    except EvaluationError:
        return False
    return answers.shape == (len(outputs), *kind.answer_shape)
