"""What a use case's model.py provides: plain functions, so a module satisfies the protocol.

Trainworthy sees a use case only through these functions, its YAML and its contract.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, cast

from trainworthy.lifecycle.errors import Problem, UseCaseError
from trainworthy.lifecycle.hyperparameters import NoSuchHyperparameterError
from trainworthy.lifecycle.identity import python_sources, sha256_files

if TYPE_CHECKING:
    import pandas as pd
    import torch

REQUIRED_FUNCTIONS = ("fit_preprocessing", "to_tensors", "build_model", "loss_fn", "predict")
OPTIONAL_FUNCTIONS = ("build_optimizers", "learning_rate", "augment")


class Task(Protocol):
    """The functions of model.py. N is the number of rows of a batch.

    Three more may be defined, and change a training only then:

    build_optimizers(model, optimizer) -> a list of optimizers. `optimizer` is the YAML's section. Without it, the
        declared optimizer over all trainable parameters. A parameter group's rate keeps its ratio to the declared one.
    learning_rate(step, steps, training) -> the rate of an update, from 0 on. `training` is the YAML's section. Without
        it, the declared warm-up and decay.
    augment(inputs, targets, generator) -> changed (inputs, targets) of a batch in training. Draw from `generator`
        alone: it is made anew from (seed, step), so that a resumed run sees the same. Without it, rows stay.

    A function named check_<something> is a preflight check of the use case's own: docs/how-to/preflight.md.
    """

    def fit_preprocessing(self, training: pd.DataFrame, hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
        """State learned from training rows only; JSON-able."""
        ...

    def to_tensors(self, rows: pd.DataFrame, preprocessing: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Inputs of the model, each with N as first dimension; the label is not among the columns."""
        ...

    def build_model(self, preprocessing: Mapping[str, Any], hyperparameters: Mapping[str, Any]) -> torch.nn.Module:
        """A fresh module; `forward(inputs)` takes the dict of to_tensors. The caller has set the seed."""
        ...

    def loss_fn(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Loss of each row, shape (N,). Targets by kind of task:

        binary: float32 0 and 1, (N,). multiclass: int64 places among the classes, (N,). multilabel: float32 0 and 1,
        (N, labels). regression: float32, (N,). segmentation: int64 places among the classes, (N, height, width).
        language_model: int64 bytes, (N, length), and -100 beyond a text's end.
        """
        ...

    def predict(self, outputs: torch.Tensor) -> torch.Tensor:
        """The answer of each row. binary: the probability of label 1, (N,). multiclass: a probability of each class,
        (N, classes), which add up to 1. multilabel: a probability of each label, (N, labels). regression: a number,
        (N,), or rising quantiles, (N, quantiles). segmentation: a probability of each class at each pixel,
        (N, classes, height, width). language_model: a probability of each byte at each place, (N, length, 256).
        """
        ...


# What Trainworthy adds to the fitted state, for kinds whose network has to know something of the label.
TARGET_STATE = "target"


def fit_preprocessing(
    task: Task, training: pd.DataFrame, hyperparameters: Mapping[str, Any], target: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The fitted state as it comes back from JSON, so that what is trained on is what will be shipped.

    `target` is what the kind of task tells of the training rows' labels (Kind.target_state); it becomes the state's key
    `target`. Raises UseCaseError if the state is no finite JSON object, or has that key itself.
    """
    state = task.fit_preprocessing(training, hyperparameters)
    try:
        fitted = json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as error:
        fix = "return plain dicts, lists, strings and finite numbers: float(x) for numpy values, .tolist() for arrays"
        problem = Problem("model.py: fit_preprocessing", f"the state is no JSON: {error}", fix)
        raise UseCaseError(Path(getattr(task, "__file__", "model.py")).parent.name, [problem]) from None
    assert isinstance(fitted, dict), "fit_preprocessing must return a dict"
    if target and TARGET_STATE in fitted:
        problem = Problem(
            "model.py: fit_preprocessing",
            "the state has a key that Trainworthy fills in",
            "use another key",
            TARGET_STATE,
        )
        raise UseCaseError(Path(getattr(task, "__file__", "model.py")).parent.name, [problem])
    return fitted | ({TARGET_STATE: dict(target)} if target else {})


def line_of(error: BaseException, folder: Path) -> str:
    """Where an error came from, `model.py:12 in predict`: the innermost line in the folder, else of all."""
    frames, folder = traceback.extract_tb(error.__traceback__), folder.resolve()
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    frame = (own or frames)[-1]
    path = Path(frame.filename)
    return f"{path.relative_to(folder).as_posix() if own else path.name}:{frame.lineno} in {frame.name}"


def error_line(error: BaseException, folder: Path, *, sensitive: bool) -> str:
    """An error in one line, for records and reports: its type, first line and place in the folder.

    A message may quote a value of a row: with `sensitive` features only the type and the place are told.
    """
    first = str(error).splitlines()[0] if str(error) else ""
    if sensitive and not isinstance(error, NoSuchHyperparameterError):
        first = "its message is kept back, since it may hold a value of a sensitive column"
    return f"{type(error).__name__}: {first} ({line_of(error, folder)})"


def load_task(folder: Path) -> Task:
    """Import model.py of a use case's folder; runs the user's code."""
    return cast(Task, load_module(folder, "model"))


def load_module(folder: Path, name: str) -> ModuleType:
    """Import <name>.py of a use case's folder; runs the user's code.

    The folder becomes a package, so that `from .layers import X` works. Its name comes from the code and not from
    where it lies: two use cases do not mix, and what is exported does not depend on the folder.
    """
    folder = folder.resolve()
    package = f"trainworthy_{sha256_files(python_sources(folder))[:12]}"
    _declare_package(package, folder)
    spec = importlib.util.spec_from_file_location(f"{package}.{name}", folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _declare_package(name: str, folder: Path) -> None:
    """A package of the folder's modules, without those imported before: their lines lie in another folder."""
    for known in [module for module in sys.modules if module == name or module.startswith(f"{name}.")]:
        del sys.modules[known]
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
    # A module written in the same tick of the clock as the last look into its folder would not be found.
    importlib.invalidate_caches()
