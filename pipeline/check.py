"""Checks a use case without training: its files, what they name, and its functions on rows made from the contract.

All independent findings come at once: the functions are tried also when use_case.yaml has a mistake, as long as the
contract and the hyperparameters can be read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from trainworthy.lifecycle.contract.model import Contract, Label
from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.review import fix_of_role
from trainworthy.lifecycle.cost.prices import load_prices
from trainworthy.lifecycle.declarations import declaration_problems
from trainworthy.lifecycle.errors import DatasetError, Problem, UseCaseError
from trainworthy.lifecycle.files.versions import published_version
from trainworthy.lifecycle.gates.baseline import FILE as BASELINE
from trainworthy.lifecycle.gates.baseline import read_baseline
from trainworthy.lifecycle.plan import make_plan
from trainworthy.lifecycle.progress import say
from trainworthy.lifecycle.protocol.jobs import FunctionsJob, Rows
from trainworthy.lifecycle.protocol.results import FunctionFault, FunctionsResult, TriedFunction
from trainworthy.lifecycle.run_config import told_command
from trainworthy.lifecycle.spec.task import LABEL_TYPES, Target, TaskSpec, target_of
from trainworthy.lifecycle.unique_keys import unique_keys_loader
from trainworthy.lifecycle.use_case import UseCase, load_use_case
from trainworthy.pipeline.data_columns import absent_columns, columns_of_data, with_columns_of_data
from trainworthy.resources.backends.choose import launcher_problems
from trainworthy.resources.settings import Settings, read_settings, use_case_folder
from trainworthy.resources.worker_process import run_worker

FILES = ("use_case.yaml", "contract.yaml", "dataset.py", "model.py")


@dataclass(frozen=True)
class Part:
    """One file or function: what was seen, what is wrong; `untried` says why nothing was seen.

    `open_checks` counts checks that warn or are inconclusive, which the evidence tells. `asked` is False of what only
    tells what is left to others. `brief` is the evidence in a few words, where it is long.
    """

    name: str
    evidence: str = ""
    problems: tuple[Problem, ...] = ()
    untried: str = ""
    open_checks: int = 0
    asked: bool = True
    brief: str = ""

    @property
    def well(self) -> bool:
        """False for what could not be tried, too."""
        return not self.problems and not self.untried


def check_use_case(name: str, tell: Callable[[list[Part]], None] = lambda parts: None) -> list[Part]:
    """Every part in order. Raises SettingsError if there is no such use case, WorkerError if the worker broke.

    `tell` gets the files that something is wrong with before the functions are tried, which takes seconds: importing
    torch.
    """
    settings = read_settings()
    folder = use_case_folder(settings, name)
    use_case, problems = _declarations(folder, settings)
    contract = contract_of(folder)
    parts = _file_parts(folder, use_case, problems, contract)
    if use_case is None:
        # They are asked of values that are not there yet, so a clean file may still name what is unknown.
        parts.append(Part("references", untried="dataset version, columns and price; fix the problems above first"))
    hyperparameters = use_case.spec.hyperparameters if use_case else _hyperparameters(folder)
    target = None if contract is None else _target(folder, contract.label)
    unsound = {
        "the contract": contract is None
        or bool(use_case and absent_columns(contract, columns_of_data(use_case, settings))),
        "the hyperparameters": hyperparameters is None,
        "task in use_case.yaml": target is None,
        "model.py": any(problem.where.startswith("model.py") for problem in problems),
    }  # fmt: skip
    if contract is None or hyperparameters is None or target is None or any(unsound.values()):
        what = next(name for name, wrong in unsound.items() if wrong)
        return [*parts, Part("functions", untried=f"fix {what} first")]
    if wrong := [part for part in parts if part.problems]:
        tell(wrong)
    tried = [
        _function(tried, contract, folder.name) for tried in _tried(folder, contract, hyperparameters, target, use_case)
    ]
    # A model.py that can't be imported is a file with a fault, not one more part.
    files = [part for part in parts if part.name not in {other.name for other in tried}]
    return [*files, *tried, Part("left out", _left_to(use_case.name if use_case else name), asked=False)]


def _left_to(name: str) -> str:
    """What rows made from the contract and one pass cannot say, and which command asks it."""
    return (
        f"inputs, wiring, start and configuration of the network: trainworthy check --quick {name}; what its data are "
        f"and whether it learns: {preflight_job(name)}"
    )


def function_parts(use_case: UseCase, contract: Contract) -> list[Part]:
    """The functions of model.py alone, as check_use_case has them, of a use case whose files are well."""
    target = target_of(use_case.spec.task, contract.label.classes)
    functions = _tried(use_case.folder, contract, use_case.spec.hyperparameters, target, use_case)
    return [_function(tried, contract, use_case.name) for tried in functions]


def file_parts(folder: Path, settings: Settings) -> list[Part]:
    """The use case's files alone, as check_use_case has them first."""
    return _file_parts(folder, *_declarations(folder, settings), contract_of(folder))


def _file_parts(
    folder: Path, use_case: UseCase | None, problems: list[Problem], contract: Contract | None
) -> list[Part]:
    script = (use_case.spec.trainer,) if use_case and use_case.spec.trainer else _other_files(problems)
    parts = [_file(folder.name, file, problems, use_case, contract) for file in (*FILES, *script)]
    return [*parts, *([_baseline(folder)] if (folder / BASELINE).is_file() else [])]


def _declarations(folder: Path, settings: Settings) -> tuple[UseCase | None, list[Problem]]:
    try:
        use_case = load_use_case(folder)
    except UseCaseError as error:
        return None, list(error.problems)
    problems = declaration_problems(use_case, load_prices(settings.prices))
    problems = with_columns_of_data(problems, contract_of(folder), columns_of_data(use_case, settings))
    return use_case, problems or launcher_problems(use_case.spec.compute)


def contract_of(folder: Path) -> Contract | None:
    """The contract; None if it has problems, which _declarations tells."""
    try:
        return load_contract(folder / "contract.yaml")
    except UseCaseError:
        return None


def _file(name: str, file: str, problems: list[Problem], use_case: UseCase | None, contract: Contract | None) -> Part:
    """A file of the use case `name` with its problems, or with what it declares."""
    wrong = tuple(problem for problem in problems if problem.where.partition(":")[0] == file)
    evidence = ""
    if file == "use_case.yaml" and use_case is not None and not wrong:
        declared, sku = use_case.spec.dataset, use_case.spec.compute.sku
        rows = published_version(use_case.project, declared.name, declared.version).rows
        evidence = f"dataset {declared.name}@{declared.version} of {rows:,} rows; price of {sku}"
    if file == "dataset.py" and use_case is not None and not (use_case.folder / file).is_file():
        evidence = f"none: another stage of dvc.yaml builds {use_case.spec.dataset.name}"
    if file == "contract.yaml" and contract is not None:
        features = len(contract.feature_columns)
        evidence = f"{len(contract.columns)} columns, {features} of them inputs; {len(contract.rules)} rules"
        if waiting := len(contract.unreviewed_features):
            evidence += f"; {waiting} {'waits' if waiting == 1 else 'wait'} for: trainworthy contract review {name}"
    return Part(file, evidence, wrong)


def _baseline(folder: Path) -> Part:
    """How many warnings are accepted, or what is wrong with the file."""
    try:
        return Part(BASELINE, f"{len(read_baseline(folder).accepted)} accepted")
    except UseCaseError as error:
        return Part(BASELINE, problems=error.problems)


def _other_files(problems: list[Problem]) -> tuple[str, ...]:
    """Files beside FILES that something is wrong with: a training script of a use case that cannot be loaded."""
    named = (problem.where.partition(":")[0] for problem in problems)
    return tuple(dict.fromkeys(name for name in named if name.endswith(".py") and name not in FILES))


def _target(folder: Path, label: Label) -> Target | None:
    """What is predicted, of a use_case.yaml that may have mistakes elsewhere; None if it declares nothing that can be.

    Without a task it is what predicts such a label, as far as that says all: of a text somebody has to say how long.
    """
    values = _values(folder)
    try:
        task = TaskSpec.model_validate(values["task"]) if "task" in values else None
    except ValidationError:
        return None
    if task is None:
        return None if label.target.kind == "language_model" else label.target
    return target_of(task, label.classes) if LABEL_TYPES[task.kind] == label.type else None


def _hyperparameters(folder: Path) -> Mapping[str, Any] | None:
    """Those of a use_case.yaml that has mistakes elsewhere; None if they can't be read."""
    hyperparameters = _values(folder).get("hyperparameters")
    return (
        hyperparameters
        if isinstance(hyperparameters, dict) and all(isinstance(key, str) for key in hyperparameters)
        else None
    )


def _values(folder: Path) -> dict[str, Any]:
    """What use_case.yaml holds; {} if it is no mapping that can be read."""
    try:
        text = (folder / "use_case.yaml").read_text(encoding="utf-8")
        document = yaml.load(text, Loader=unique_keys_loader(exponents=True))  # noqa: S506 (a safe loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return document if isinstance(document, dict) else {}


def _tried(
    folder: Path, contract: Contract, hyperparameters: Mapping[str, Any], target: Target, use_case: UseCase | None
) -> tuple[TriedFunction, ...]:
    with tempfile.TemporaryDirectory() as out:
        job = FunctionsJob(
            use_case_folder=str(folder),
            out=out,
            device="cpu",
            rows=Rows(
                features=contract.feature_columns,
                label=contract.label.name,
                group="",
                target=target,
            ),
            hyperparameters=dict(hyperparameters),
            **(_training(use_case) if use_case else {}),
        )
        say("check: the files are read; a process of its own tries the functions of model.py, after importing torch")
        answer = run_worker(job)
    assert isinstance(answer, FunctionsResult)
    return answer.functions


def _training(use_case: UseCase) -> dict[str, Any]:
    """What the optional functions are given; the steps too, if the dataset's version is known."""
    spec = use_case.spec
    fields: dict[str, Any] = {"training": spec.training, "claims": spec.preflight, "trainer": spec.trainer}
    try:
        rows = published_version(use_case.project, spec.dataset.name, spec.dataset.version).rows
    except DatasetError:
        return fields
    return {**fields, "steps": make_plan(max(1, rows), spec.training, spec.stages, "full").horizon_steps}


def _function(tried: TriedFunction, contract: Contract, name: str) -> Part:
    problems = tuple(_problem(fault, contract, name) for fault in tried.faults)
    return Part(tried.name, tried.evidence, problems, tried.untried)


def _problem(fault: FunctionFault, contract: Contract, use_case: str) -> Problem:
    """As the worker tells it; of a column which the contract has with another role, that role and what to write."""
    columns, read = {column.name: column for column in contract.columns}, fault.columns
    if not read or not all(name in columns for name in read):
        return Problem(fault.where, fault.problem, fault.fix)
    roles = "; ".join(f"{name!r} has the role {columns[name].role}" for name in read)
    told = f"reads {', '.join(map(repr, read))}, and gets columns of the role feature alone: in contract.yaml {roles}"
    fixes = dict.fromkeys(fix_of_role(use_case, columns[name]) for name in read)
    return Problem(fault.where, told, "; ".join(fixes))


def preflight_job(name: str) -> str:
    """The command that asks all that these checks leave out."""
    return told_command("preflight", name)


def problems_text(parts: Sequence[Part]) -> str:
    """Each part with its problems below it."""
    return "\n".join(_all_lines(parts))


def parts_text(name: str, parts: list[Part], seconds: float, *, brief: bool = False, told: Sequence[Part] = ()) -> str:
    """A line for each part, its problems below it, and the end of it all.

    `brief`: what is wrong first, then what warns or is inconclusive; all that is well in one line. `told` have been
    shown and are counted alone.
    """
    untold = [part for part in parts if part not in told]
    lines = list(_brief_lines(untold)) if brief else _all_lines(untold)
    if all(part.well for part in parts):
        open_checks = sum(part.open_checks for part in parts)
        end = f"{open_checks} inconclusive or with a warning" if open_checks else "nothing wrong in what was asked"
        return "\n".join([*lines, "", f"{end} of {name}, in {seconds:.1f} s; next, on its data: {preflight_job(name)}"])
    count = sum(len(part.problems) for part in parts)
    if not count:
        untried = ", ".join(part.name for part in parts if not part.well)
        end = f"no problem found in {name}, but not all was tried ({untried}), in {seconds:.1f} s"
        return "\n".join([*lines, "", end])
    return "\n".join([*lines, "", f"{count} {'problem' if count == 1 else 'problems'} in {name}, in {seconds:.1f} s"])


def _all_lines(parts: Sequence[Part]) -> list[str]:
    width = max((len(part.name) for part in parts), default=0)
    return [line for part in parts for line in _part_lines(part, width)]


def _brief_lines(parts: list[Part]) -> Iterator[str]:
    notable = sorted(
        (part for part in parts if not part.well or part.open_checks), key=lambda part: (not part.problems, part.well)
    )
    good = [part for part in parts if part.well and part.asked and not part.open_checks]
    yield from _all_lines(notable) if notable else ()
    if good:
        told = ", ".join(f"{part.name} ({part.brief})" if part.brief else part.name for part in good)
        yield f"✓ {len(good)} well: {told}"
    yield from (f"– {part.name}: {part.brief or part.evidence}" for part in parts if part.well and not part.asked)


def _part_lines(part: Part, width: int) -> Iterator[str]:
    sign = "✗" if part.problems else "–" if not (part.asked and part.well) else "!" if part.open_checks else "✓"
    untried = part.untried and f"not tried: {part.untried}"
    yield f"{sign} {part.name:<{width}}  {untried or part.evidence}".rstrip()
    for problem in part.problems:
        yield from (f"    {line}" for line in str(problem).splitlines())
