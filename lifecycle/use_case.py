"""The typed form of a use case's use_case.yaml, and load_use_case(folder).

Loading reads YAML and parses model.py with `ast`; it imports no code of the use case. Unknown keys
are refused with a did-you-mean, and all independent problems are reported at once. A value that
changes the result has no default.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from trainworthy.lifecycle import training_script
from trainworthy.lifecycle.errors import DatasetError, Problem, UseCaseError, did_you_mean
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.spec.names import NAME_PATTERN
from trainworthy.lifecycle.spec.task import target_of
from trainworthy.lifecycle.spec.use_case import SCRIPT_PATTERN, DatasetSpec, UseCaseSpec
from trainworthy.lifecycle.spec_problems import spec_problems, typed_otherwise
from trainworthy.lifecycle.task import REQUIRED_FUNCTIONS
from trainworthy.lifecycle.tasks import kind_of
from trainworthy.lifecycle.tasks.declared import kind_problems, metric_problems
from trainworthy.lifecycle.tasks.own import own_problems
from trainworthy.lifecycle.unique_keys import unique_keys_loader, yaml_mistake


class UseCase(Frozen):
    """A use case's values and the folder that holds its code and contract."""

    spec: UseCaseSpec
    folder: Path

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def project(self) -> Path:
        """The folder that holds dvc.yaml and data/versions.yaml: the parent of the folder of use cases."""
        return self.folder.parent.parent

    @property
    def contract_path(self) -> Path:
        return self.folder / "contract.yaml"

    @property
    def suite_path(self) -> Path | None:
        """The file of the suite that the benchmark shares with other use cases; None without one."""
        path = self.project / "suites" / f"{self.spec.benchmark.suite}.yaml"
        return path if self.spec.benchmark.suite is not None and path.is_file() else None

    def at_version(self, version: str) -> UseCase:
        """This use case on another version of its dataset; itself for an empty one. Not checked to be published."""
        if not version:
            return self
        dataset = self.spec.dataset.model_copy(update={"version": version})
        return self.model_copy(update={"spec": self.spec.model_copy(update={"dataset": dataset})})


def load_use_case(folder: Path) -> UseCase:
    """The use case in `folder`. Raises UseCaseError with every independent problem."""
    folder = folder.resolve()
    spec, problems, values = _read_spec(folder)
    declared, trainer = _declared(values.get("preflight")), values.get("trainer")
    required = training_script.REQUIRED_FUNCTIONS if trainer else REQUIRED_FUNCTIONS
    problems += model_problems(folder / "model.py", required)
    if isinstance(trainer, str) and re.match(SCRIPT_PATTERN, trainer):
        problems += training_script.script_problems(folder, trainer)
    if spec is not None:
        problems += kind_problems(spec)
        known = kind_of(target_of(spec.task)).metrics
        problems += own_problems(folder, spec.benchmark.baselines, spec.benchmark.metrics, known)
    if declared:
        # Only here: the catalogue of checks costs imports that most use cases do not need.
        from trainworthy.lifecycle.gates.not_applicable import not_applicable_problems

        problems += not_applicable_problems(declared, folder / "model.py")
    missing = [name for name in ("contract.yaml", "dataset.py") if not (folder / name).is_file()]
    for name in missing:
        # Only of a missing one: to ask reads all published versions.
        if name != "dataset.py" or _builds_its_dataset(folder, values.get("dataset")):
            problems.append(Problem(name, "the file is missing", f"create {name} in the folder {folder.name}"))
    if spec is None or problems:
        if (folder / "contract.yaml").is_file():
            # Only on the way out: reading a contract costs imports that a good load does not need.
            from trainworthy.lifecycle.contract.read import contract_problems

            problems += contract_problems(folder / "contract.yaml")
        raise UseCaseError(folder.name, problems)
    return UseCase(spec=spec, folder=folder)


def _read_spec(folder: Path) -> tuple[UseCaseSpec | None, list[Problem], dict[str, Any]]:
    """The spec, None if there are problems, and what the file holds, also if it has mistakes."""
    path = folder / "use_case.yaml"
    if not path.is_file():
        missing = Problem("use_case.yaml", "the file is missing", f"create use_case.yaml in the folder {folder.name}")
        return None, [missing], {}
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        values = yaml.load(text, Loader=unique_keys_loader(exponents=True))  # noqa: S506 (a safe loader)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        mistake = yaml_mistake(error, text)
        where, problem = mistake.where("use_case.yaml"), f"not valid YAML: {mistake.problem}"
        return None, [Problem(where, problem, mistake.fix)], {}
    if not isinstance(values, dict):
        return None, [Problem("use_case.yaml", "must be a mapping of keys", "see docs/how-to/use-case.md", values)], {}
    values, problems = _with_suite(values, folder)
    name = values.get("name")
    if isinstance(name, str) and name != folder.name:
        fix = f"write name: {folder.name}, or rename the folder"
        problems.append(Problem("use_case.yaml: name", "differs from the folder's name", fix, name))
    problems += metric_problems(values)
    otherwise = typed_otherwise(values, UseCaseSpec)
    problems += otherwise
    try:
        return UseCaseSpec.model_validate(values), problems, values
    except ValidationError as error:
        told = {problem.where for problem in otherwise}
        others = [problem for problem in spec_problems(error.errors(), UseCaseSpec) if problem.where not in told]
        return None, problems + others, values


def _with_suite(values: dict[str, Any], folder: Path) -> tuple[dict[str, Any], list[Problem]]:
    """The values with those of the suite's file, where the benchmark names one that is there."""
    benchmark = values.get("benchmark")
    name = benchmark.get("suite") if isinstance(benchmark, dict) else None
    if not isinstance(benchmark, dict) or not isinstance(name, str) or not re.match(NAME_PATTERN, name):
        return values, []
    suites, where, place = folder.parents[1] / "suites", f"suites/{name}.yaml", "use_case.yaml: benchmark.suite"
    known = sorted(path.stem for path in suites.glob("*.yaml")) if suites.is_dir() else []
    if name not in known:
        # A name alone is one that no file has; where there are files, it is more likely one that was mistyped.
        return values, [Problem(place, f"there is no {where}", did_you_mean(name, known), name)] if known else []
    text = ""
    try:
        text = (suites / f"{name}.yaml").read_text(encoding="utf-8")
        shared = yaml.load(text, Loader=unique_keys_loader(exponents=True))  # noqa: S506 (a safe loader)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        mistake = yaml_mistake(error, text)
        return values, [Problem(place, mistake.told(where), mistake.fix, name)]
    if not isinstance(shared, dict):
        fix = "write the keys of the section benchmark"
        return values, [Problem(place, f"{where} must be a mapping of keys", fix, name)]
    twice = sorted(shared.keys() & benchmark.keys())
    problems = [
        Problem(
            f"use_case.yaml: benchmark.{key}", f"is said in {where} as well", "say it in one of the two", benchmark[key]
        )
        for key in twice
    ]
    return values | {"benchmark": {**shared, **benchmark}}, problems


def _builds_its_dataset(folder: Path, values: Any) -> bool:
    """True if the dataset comes by this folder's dataset.py, and not by another stage's code or an import.

    `values` are the section of a file that may have mistakes elsewhere; with one in it nobody knows, and it is told.
    """
    try:
        dataset = DatasetSpec.model_validate(values)
    except ValidationError:
        return False
    return not _another_stage(folder, dataset) and not _imported(folder.parents[1], dataset)


def _another_stage(folder: Path, dataset: DatasetSpec) -> bool:
    try:
        text = (folder.parents[1] / "dvc.yaml").read_text(encoding="utf-8")
        stage = str(yaml.load(text, Loader=unique_keys_loader())["stages"][dataset.name])  # noqa: S506 (a safe loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        return False
    return f"{folder.parent.name}/{folder.name}/dataset.py" not in stage


def _imported(project: Path, dataset: DatasetSpec) -> bool:
    """True if the version was published from an address, or data/<dataset>.dvc declares one."""
    from trainworthy.lifecycle.files.versions import read_versions

    if (project / "data" / f"{dataset.name}.dvc").is_file():
        return True
    try:
        version = read_versions(project).get(dataset.name, {}).get(dataset.version)
    except DatasetError:
        return False  # told by whoever asks for the dataset
    return version is not None and version.source is not None


def _declared(preflight: Any) -> tuple[str, ...]:
    """Keys of preflight.not_applicable, also of a file that has mistakes elsewhere."""
    declared = preflight.get("not_applicable") if isinstance(preflight, dict) else None
    return tuple(map(str, declared)) if isinstance(declared, dict) else ()


def model_problems(path: Path, required: tuple[str, ...] = REQUIRED_FUNCTIONS) -> list[Problem]:
    """What is wrong with model.py as far as its text tells: syntax and missing functions."""
    if not path.is_file():
        return [Problem("model.py", "the file is missing", f"create it with {', '.join(required)}")]
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        return [Problem(f"model.py:{error.lineno}", f"not valid Python: {error.msg}", "correct the syntax")]
    except UnicodeDecodeError as error:
        return [Problem("model.py", f"is not UTF-8: {error}", "save the file as UTF-8")]
    imported = {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} | imported
    return [
        Problem(
            "model.py",
            f"the function {name} is missing",
            f"define {name}; lifecycle/task.py says what it takes and gives",
        )
        for name in required
        if name not in defined
    ]
