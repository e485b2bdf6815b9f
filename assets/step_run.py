"""Which step of which run is being made, and what it may use.

`StepOfRun` is all that a picture, a report or a page of metadata is told; `StepRun` is what a step's own work gets.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

import dagster as dg

from trainworthy.lifecycle.cost.prices import Sku
from trainworthy.lifecycle.errors import StateError
from trainworthy.lifecycle.protocol.attempts import ChargedTo
from trainworthy.lifecycle.protocol.jobs import AnyJob
from trainworthy.lifecycle.protocol.records import Record, Step
from trainworthy.lifecycle.protocol.results import AnyResult
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.resources.dagster_private import DagsterPrivateError
from trainworthy.resources.launcher import Launcher
from trainworthy.resources.mlflow import TrackedRun, Tracking
from trainworthy.resources.workspace import Intent, Workspace

# The tag that a job puts on its runs: candidate, experiment, preflight or validation.
INTENT_TAG = "trainworthy/intent"
# Data is judged and nothing trained: no MLflow run, and neither newest records nor latest report are moved.
VALIDATION = "validation"
# Training that leaves the benchmark alone.
EXPERIMENT = "experiment"
# Training that ends with a verdict.
CANDIDATE = "candidate"
BENCHMARK_STEPS: tuple[Step, ...] = ("evaluation", "promotion")
# The rerun of promotion trains as well.
TRAINING_STEPS: tuple[Step, ...] = ("smoke", "pilot", "full", "promotion")
# What a run is found by in Dagster's list: its dataset version, its verdict, or the step that stopped it.
DATASET_TAG, VERDICT_TAG, STOPPED_TAG = "trainworthy/dataset", "trainworthy/verdict", "trainworthy/stopped_at"
# The code location by which Dagster lists a job's runs: it puts it on a run that is launched.
REPOSITORY_TAG = ".dagster/repository"
RecordT = TypeVar("RecordT", bound=Record)


@dataclass(frozen=True)
class StepOfRun:
    """The step by what it is: its use case, its run, the records that it is made from, its identity.

    `use_case` is at the dataset version of this run, `intent` what the job is for (INTENT_TAG).
    """

    use_case: UseCase
    step: Step
    run_id: str
    intent: str
    upstream: Mapping[Step, Record]
    identity: str
    code_sha256: str

    def record(self, step: Step, kind: type[RecordT]) -> RecordT:
        """An upstream record by its type."""
        return cast(RecordT, self.upstream[step])

    @property
    def dataset(self) -> str:
        """The dataset version, for example `flights@v10`."""
        return f"{self.use_case.spec.dataset.name}@{self.use_case.spec.dataset.version}"

    def named(self, what: str) -> str:
        """A name for the run that people know, for example `flights@v10 · shadow`."""
        return f"{self.dataset} · {what}"

    @property
    def trains(self) -> bool:
        """True unless the run only validates data."""
        return self.intent != VALIDATION


@dataclass(frozen=True)
class StepResources:
    """What Dagster hands to every step; `declared` is the run config's."""

    workspace: Workspace
    tracking: Tracking
    launcher: Launcher
    declared: Intent


@dataclass(frozen=True)
class StepRun(StepOfRun, StepResources):
    """A step with all that it may use: the stores, the worker, its machine's price, Dagster's context."""

    context: dg.AssetExecutionContext
    sku: Sku

    def tracked(self) -> TrackedRun:
        """The MLflow run of this Dagster run."""
        tags = {"use_case": self.use_case.name, "intent": self.intent, "task": self.use_case.spec.task.kind}
        return self.tracking.run(self.use_case.name, self.run_id, tags, self.named(self.intent))

    @property
    def machines(self) -> int:
        """How many are rented for it: those that train together, for the stages and the rerun of their first steps."""
        return self.use_case.spec.compute.nodes if self.step in TRAINING_STEPS else 1

    @property
    def rented(self) -> Sku:
        """What its machines cost together."""
        return self.sku.times(self.machines)

    @property
    def charged_to(self) -> ChargedTo:
        """Whom a worker's cost belongs to, with the price of the machines that are paid for."""
        return ChargedTo(
            run_id=self.run_id, use_case=self.use_case.name, step=self.step, identity=self.identity,
            dataset=self.dataset, sku=self.use_case.spec.compute.sku, usd_per_hour=self.rented.usd_per_hour,
        )  # fmt: skip

    def in_worker(self, job: AnyJob, seconds_left: float = math.inf, *, fresh: bool = False) -> AnyResult:
        """The worker's answer, charged to this step; as Launcher.run."""
        return self.launcher.run(
            self.context, job, self.charged_to, seconds_left, fresh=fresh, compute=self.use_case.spec.compute
        )


@contextlib.contextmanager
def without_store(run: StepRun) -> Iterator[None]:
    """Around what keeps or shows that a step was interrupted: what interrupted it is to be raised, not a StateError."""
    try:
        yield
    except StateError as error:
        run.context.log.warning(f"{run.step} was interrupted, and not all of that could be kept: {error}")


def show_in_location(context: dg.AssetExecutionContext) -> None:
    """Tag the run with its location, unless Dagster has: it was launched, or its module is not known.

    Of `dagster job execute -m MODULE` Dagster notes the module alone, which is the location's name as well:
    workspace.yaml says the same.
    """
    module = None if REPOSITORY_TAG in context.run.tags else module_of(context.run)
    if module is not None:
        context.instance.add_run_tags(context.run.run_id, {REPOSITORY_TAG: f"__repository__@{module}"})


def module_of(run: dg.DagsterRun) -> str | None:
    """The module of a run that was not launched; None of any other, and where Dagster does not say."""
    try:
        from trainworthy.resources.dagster_private import ModuleCodePointer

        if run.remote_job_origin is not None or run.job_code_origin is None:
            return None
        pointer = run.job_code_origin.repository_origin.code_pointer
        return pointer.module if isinstance(pointer, ModuleCodePointer) else None
    except (DagsterPrivateError, AttributeError):
        return None
