"""A use case's own training script: is it one, by its text alone, and its function `train`."""

from __future__ import annotations

import ast
import contextlib
import importlib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from trainworthy.lifecycle.errors import Problem, TrainingError
from trainworthy.lifecycle.task import Task

FUNCTION = "train"
# What is asked of model.py beside a script: rows become tensors, and outputs become answers, as in use.
REQUIRED_FUNCTIONS = ("fit_preprocessing", "to_tensors", "predict")
# With both of these preflight tries the network by itself, too.
NETWORK_FUNCTIONS = ("build_model", "loss_fn")
# They decide numbers where a script uses them.
FRAMEWORKS = ("lightning", "pytorch-lightning", "transformers", "accelerate")
_RETURNS = "the trained nn.Module, or its state_dict() if model.py has build_model"


def script_problems(folder: Path, file: str) -> list[Problem]:
    """What is wrong with the script as far as its text tells."""
    path = folder / file
    if not path.is_file():
        scripts = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.py") if p.name not in _NOT_SCRIPTS)
        fix = f"create it with def {FUNCTION}(session), or name one of: {', '.join(scripts)}" if scripts else _CREATE
        return [Problem("use_case.yaml: trainer", f"the folder {folder.name} has no such file", fix, file)]
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        return [Problem(f"{file}:{error.lineno}", f"not valid Python: {error.msg}", "correct the syntax")]
    except UnicodeDecodeError as error:
        return [Problem(file, f"is not UTF-8: {error}", "save the file as UTF-8")]
    imported = {a.asname or a.name for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names}
    defined = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == FUNCTION]
    if not defined:
        fix = f"define {FUNCTION}(session); it trains, calls session.step at each update, and returns {_RETURNS}"
        return [] if FUNCTION in imported else [Problem(file, f"the function {FUNCTION} is missing", fix)]
    return _function_problems(file, defined[-1])


def _function_problems(file: str, function: ast.FunctionDef) -> list[Problem]:
    where, taken, problems = f"{file}:{function.lineno}", function.args, []
    needed = len([*taken.posonlyargs, *taken.args]) - len(taken.defaults)
    if needed > 1 or not (taken.args or taken.posonlyargs or taken.vararg) or None in taken.kw_defaults:
        problems.append(
            Problem(where, f"{FUNCTION} is given one argument, the session", f"write def {FUNCTION}(session):")
        )
    if not any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(function)):
        problems.append(Problem(where, f"{FUNCTION} returns nothing", f"return {_RETURNS}"))
    return problems


_NOT_SCRIPTS = ("model.py", "dataset.py", "__init__.py")
_CREATE = f"create it with def {FUNCTION}(session)"


def load_script(task: Task, file: str) -> Callable[[Any], object]:
    """The script's function; `task` is the use case's loaded model.py, whose package the script is imported from."""
    package = cast(ModuleType, task).__name__.rpartition(".")[0]
    module = importlib.import_module(f"{package}.{file.removesuffix('.py').replace('/', '.')}")
    function = getattr(module, FUNCTION, None)
    if not callable(function):
        raise TrainingError(f"{file} has no function {FUNCTION}", fix=f"define {FUNCTION}(session)")
    return function


def trainer_packages() -> dict[str, str]:
    """Versions of the frameworks that a script may train with, as far as they are installed."""
    versions = {}
    for name in FRAMEWORKS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions
