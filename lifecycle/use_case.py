"""The typed form of a use case's use_case.yaml, and load_use_case(folder).

Loading reads YAML and parses model.py with `ast`; it imports no code of the use case. Unknown keys
are refused with a did-you-mean, and all independent problems are reported at once. A value that
changes the result has no default.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from lifecycle.errors import DatasetError, Problem, UseCaseError
from lifecycle.identity import canonical_json
from lifecycle.preflight.claims import PreflightSpec
from lifecycle.records import Frozen
from lifecycle.spec_problems import spec_problem
from lifecycle.split_spec import SplitSpec
from lifecycle.task import REQUIRED_FUNCTIONS
from lifecycle.tasks import kind_of
from lifecycle.tasks.declared import metric_problems
from lifecycle.tasks.kind import BASELINES
from lifecycle.tasks.own import own_problems
from lifecycle.tasks.target import TaskSpec, target_of
from lifecycle.trainers import script
from lifecycle.training_spec import StagesSpec, TrainingSpec
from lifecycle.unique_keys import unique_keys_loader

NAME_PATTERN = r"^[a-z][a-z0-9_]{0,40}$"
SCRIPT_PATTERN = r"^([A-Za-z_][A-Za-z0-9_]*/)*[A-Za-z_][A-Za-z0-9_]*\.py$"
OWNER_PATTERN = r"^(team:[A-Za-z0-9_.-]+|[^@\s]+@[^@\s]+\.[^@\s]+)$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    try:
        canonical_json(values)
    except (TypeError, ValueError):
        raise ValueError("write plain values: text, finite numbers, true or false, lists and mappings") from None
    return values


# Settings of our own loop, which a training script has its own ways for.
OF_OUR_UPDATES = ("skip_batch", "lower_rate", "roll_back")
OF_OUR_LOOP = (
    "ema", "early_stopping", "profile", "tensors", "reserve", "evaluate_every", "oversampling", "focal_gamma",
    "activation_checkpointing", "compile",
)  # fmt: skip


# The descriptions below are the only ones: `trainworthy schema` hands them to editors.
class DatasetSpec(Frozen):
    """The rows."""

    name: Name = Field(description="A dataset of data/versions.yaml; a stage of dvc.yaml builds it.")
    version: Name = Field(description="A published version of it, for example v9.")

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class PrimarySpec(Frozen):
    """The metric that decides."""

    metric: str = Field(
        description="A metric of the task's kind that ranks models, for example log_loss, auc, accuracy, macro_f1, "
        "rmse, mae, r2 or pinball; docs/how-to/tasks.md lists them."
    )
    margin: float = Field(
        gt=0, allow_inf_nan=False, description="By how much a model may be worse and still count as no worse."
    )


class Guardrail(Frozen):
    """What a model must keep; the unfavourable end of the interval decides. Exactly one of the two bounds."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["at_most"]}, {"required": ["at_least"]}]})

    metric: str = Field(description="A metric of the task's kind; of one class or quantile as recall[name].")
    at_most: float | None = Field(default=None, allow_inf_nan=False, description="Upper bound.")
    at_least: float | None = Field(default=None, allow_inf_nan=False, description="Lower bound.")

    @model_validator(mode="after")
    def _one_bound(self) -> Guardrail:
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError("give exactly one of at_most and at_least")
        return self


class OwnMetric(Frozen):
    """A metric of the use case's own: docs/how-to/tasks.md."""

    better: Literal["more", "less"] = Field(description="Which way is better.")


class BenchmarkSpec(Frozen):
    """What a candidate is measured by, and against."""

    primary: PrimarySpec
    baselines: tuple[Name, ...] = Field(
        description="prior and linear always, gradient_boosting if you like (a language_model has none), "
        "and your own: baseline_<name> in model.py."
    )
    metrics: dict[Name, OwnMetric] = Field(
        default_factory=dict, description="Metrics of your own, by name: functions of metrics.py."
    )
    guardrails: tuple[Guardrail, ...] = Field(default=(), description="What a model must keep whatever it gains.")
    slices: tuple[str, ...] = Field(default=(), description="Columns whose values are reported apart.")
    weight: str | None = Field(
        default=None,
        description="A column of numbers from 0 on that weighs the benchmark's rows in all its figures, for example "
        "their value; left out, rows count alike. Training rows are weighed by the contract's role weight.",
    )
    slice_rows: int = Field(default=200, ge=20, description="Fewest rows of a slice that is measured; 20 at least.")
    latency_ms: float = Field(gt=0, allow_inf_nan=False, description="Limit of the time to answer one row.")
    size_mb: float = Field(gt=0, allow_inf_nan=False, description="Limit of the artifact's size.")

    @model_validator(mode="after")
    def _baselines(self) -> BenchmarkSpec:
        missing = {"prior", "linear"} - set(self.baselines)
        if missing:
            raise ValueError(f"baselines must hold prior and linear; missing: {', '.join(sorted(missing))}")
        if len(set(self.baselines)) < len(self.baselines):
            raise ValueError(f"a baseline is named twice: {', '.join(self.baselines)}")
        return self


class BudgetSpec(Frozen):
    """What may be spent."""

    run_usd: float = Field(gt=0, allow_inf_nan=False, description="USD that a run may cost.")


class ComputeSpec(Frozen):
    """Where the worker runs. With `gpus` above 0 a step that trains takes a slot of the pool `gpu`."""

    launcher: Literal["local"] = Field(default="local", description="local: a child process on this machine.")
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="auto looks for a GPU only if gpus is above 0."
    )
    gpus: int = Field(default=0, ge=0, description="Above 0, a step that trains takes a slot of the pool gpu.")
    sku: str = Field(description="A price of prices.yaml.")
    loaders: int | None = Field(
        default=None,
        ge=1,
        description="Processes that make batches, for training.tensors per_batch; left out, one core less than there "
        "are. Changes no result.",
    )
    spot: bool = Field(default=False, description="The machine may be taken away at short notice.")


Engine = Literal["auto", "great_expectations", "fused", "spark"]


class ValidationSpec(Frozen):
    """How the rows are judged. Changes no verdict, so it is no part of an identity."""

    engine: Engine = Field(
        default="auto",
        description="auto: the fastest, which is fused. great_expectations: the reference. spark: it, on Spark.",
    )


class PromotionSpec(Frozen):
    """What a challenger must show."""

    purpose: Literal["improve", "refresh"] = Field(
        description="improve: it must beat the champion. refresh: it must be no worse than the margin."
    )


class UseCaseSpec(Frozen):
    """What a use case is: values that people who write no torch can review. model.py and dataset.py say how."""

    name: Name = Field(description="The folder's name: lower-case letters, digits, _.")
    description: str = Field(default="", description="The question that the model answers, in one sentence.")
    owner: Annotated[str, StringConstraints(pattern=OWNER_PATTERN)] = Field(
        description="team:name or an e-mail address."
    )
    dataset: DatasetSpec
    task: TaskSpec = Field(description="What the label is and what the model answers.")
    prediction_time: str | None = Field(
        default=None,
        description="The column that says when the model is asked; left out where the rows hold no times, which a "
        "split by group, stratified or hash allows.",
    )
    target: str = Field(description="The label's name; contract.yaml defines it.")
    split: SplitSpec = Field(description="How the rows are split: by time, group, time_and_group, stratified or hash.")
    hyperparameters: Annotated[dict[str, Any], AfterValidator(_finite)] = Field(
        description="Handed to model.py as they are."
    )
    training: TrainingSpec
    trainer: Annotated[str, StringConstraints(pattern=SCRIPT_PATTERN)] | None = Field(
        default=None,
        description="The use case's own training script, for example train.py, in the place of Trainworthy's loop.",
    )
    stages: StagesSpec
    benchmark: BenchmarkSpec
    budget: BudgetSpec
    compute: ComputeSpec
    promotion: PromotionSpec
    preflight: PreflightSpec = Field(
        default_factory=PreflightSpec, description="What the network claims, and which checks do not apply."
    )
    validation: ValidationSpec = Field(default_factory=ValidationSpec, description="How the rows are judged.")

    @model_validator(mode="after")
    def _times_are_split_by_time(self) -> UseCaseSpec:
        if self.prediction_time is None and self.split.time_column is not None:
            raise ValueError(
                f"prediction_time is missing, and split.by: {self.split.by} needs it: name the column that says when "
                "the model is asked; rows without times are split by group, stratified or hash"
            )
        return self

    @model_validator(mode="after")
    def _training_is_of_the_kind(self) -> UseCaseSpec:
        unfit = kind_of(target_of(self.task)).unfit_settings(self.training)
        if unfit:
            raise ValueError("; ".join(unfit))
        return self

    @model_validator(mode="after")
    def _baselines_of_the_kind(self) -> UseCaseSpec:
        kind = kind_of(target_of(self.task))
        missing = [name for name in BASELINES if name in self.benchmark.baselines and name not in kind.baselines]
        if missing:
            raise ValueError(
                f"kind {kind.name} has no baseline {', '.join(missing)}: remove it from benchmark.baselines"
            )
        return self

    @model_validator(mode="after")
    def _no_whole_tensors_with_loaders(self) -> UseCaseSpec:
        whole = [name for name in ("reserve", "early_stopping") if getattr(self.training, name)]
        if self.training.tensors == "per_batch" and whole:
            raise ValueError(
                f"training.{' and '.join(whole)} hold whole tensors of their rows, and tensors: per_batch is "
                "there to avoid them: remove one of the two"
            )
        return self

    @model_validator(mode="after")
    def _own_trainer_is_the_loop(self) -> UseCaseSpec:
        ours = TrainingSpec.model_fields
        settings = [name for name in OF_OUR_LOOP if getattr(self.training, name) != ours[name].default]
        settings = [f"training.{name}" for name in settings]
        actions = self.training.monitors.model_dump()
        settings += [f"training.monitors.{name}: {value}" for name, value in actions.items() if value in OF_OUR_UPDATES]
        if actions["hang"] == "stop":
            settings.append("training.monitors.hang: stop")
        if self.stages.mode == "continue":
            settings.append("stages.mode continue")
        if self.trainer is not None and settings:
            raise ValueError(
                f"{', '.join(settings)} belong to Trainworthy's own loop and have no effect beside trainer: "
                "remove them, and do as much in the script"
            )
        return self

    @model_validator(mode="after")
    def _loaders_have_work(self) -> UseCaseSpec:
        if self.compute.loaders is not None and self.training.tensors == "ahead":
            raise ValueError(
                "compute.loaders has no effect while training.tensors is ahead: remove it, or say per_batch"
            )
        return self

    @model_validator(mode="after")
    def _stopped_stages_restart(self) -> UseCaseSpec:
        if self.training.early_stopping is not None and self.stages.mode == "continue":
            raise ValueError(
                "training.early_stopping needs stages.mode: restart, since a stage is the whole of its run"
            )
        return self


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
    problems += model_problems(folder / "model.py", script.REQUIRED_FUNCTIONS if trainer else REQUIRED_FUNCTIONS)
    if isinstance(trainer, str) and re.match(SCRIPT_PATTERN, trainer):
        problems += script.script_problems(folder, trainer)
    if spec is not None:
        known = kind_of(target_of(spec.task)).metrics
        problems += own_problems(folder, spec.benchmark.baselines, spec.benchmark.metrics, known)
    if declared:
        # Only here: the catalogue of checks costs imports that most use cases do not need.
        from lifecycle.preflight.not_applicable import not_applicable_problems

        problems += not_applicable_problems(declared, folder / "model.py")
    for name in ("contract.yaml", "dataset.py"):
        if not (folder / name).is_file() and not (name == "dataset.py" and spec and _built_elsewhere(folder, spec)):
            problems.append(Problem(name, "the file is missing", f"create {name} in the folder {folder.name}"))
    if spec is None or problems:
        if (folder / "contract.yaml").is_file():
            # Only on the way out: reading a contract costs imports that a good load does not need.
            from lifecycle.contract.model import contract_problems

            problems += contract_problems(folder / "contract.yaml")
        raise UseCaseError(folder.name, problems)
    return UseCase(spec=spec, folder=folder)


def _read_spec(folder: Path) -> tuple[UseCaseSpec | None, list[Problem], dict[str, Any]]:
    """The spec, None if there are problems, and what the file holds, also if it has mistakes."""
    path = folder / "use_case.yaml"
    if not path.is_file():
        missing = Problem("use_case.yaml", "the file is missing", f"create use_case.yaml in the folder {folder.name}")
        return None, [missing], {}
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=unique_keys_loader())  # noqa: S506 (a safe loader)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        return None, [Problem("use_case.yaml", f"not valid YAML: {error}", "mend the syntax at that line")], {}
    if not isinstance(values, dict):
        return None, [Problem("use_case.yaml", "must be a mapping of keys", "see docs/how-to/use-case.md", values)], {}
    name, problems = values.get("name"), []
    if isinstance(name, str) and name != folder.name:
        fix = f"write name: {folder.name}, or rename the folder"
        problems.append(Problem("use_case.yaml: name", "differs from the folder's name", fix, name))
    problems += metric_problems(values)
    try:
        return UseCaseSpec.model_validate(values), problems, values
    except ValidationError as error:
        return None, problems + [spec_problem(item, UseCaseSpec) for item in error.errors()], values


def _built_elsewhere(folder: Path, spec: UseCaseSpec) -> bool:
    """True if the dataset comes by other ways than this folder's dataset.py: by another stage's code, or imported."""
    return _another_stage(folder, spec) or _imported(folder.parents[1], spec)


def _another_stage(folder: Path, spec: UseCaseSpec) -> bool:
    try:
        stages = yaml.safe_load((folder.parents[1] / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
        stage = str(stages[spec.dataset.name])
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        return False
    return f"{folder.parent.name}/{folder.name}/dataset.py" not in stage


def _imported(project: Path, spec: UseCaseSpec) -> bool:
    """True if the version was published from an address, or data/<dataset>.dvc declares one."""
    from lifecycle.data.versions import read_versions

    if (project / "data" / f"{spec.dataset.name}.dvc").is_file():
        return True
    try:
        version = read_versions(project).get(spec.dataset.name, {}).get(spec.dataset.version)
    except DatasetError:
        return False  # told by whoever asks for the dataset
    return version is not None and version.source is not None


def _declared(preflight: Any) -> tuple[str, ...]:
    """Keys of preflight.not_applicable, also of a file that has mistakes elsewhere."""
    found = preflight.get("not_applicable") if isinstance(preflight, dict) else None
    return tuple(map(str, found)) if isinstance(found, dict) else ()


def model_problems(path: Path, required: tuple[str, ...] = REQUIRED_FUNCTIONS) -> list[Problem]:
    """What is wrong with model.py as far as its text tells: syntax and missing functions."""
    if not path.is_file():
        return [Problem("model.py", "the file is missing", f"create it with {', '.join(required)}")]
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        return [Problem(f"model.py:{error.lineno}", f"not valid Python: {error.msg}", "mend the syntax")]
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
