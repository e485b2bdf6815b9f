"""One lifecycle per use case: its eight assets and its jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from trainworthy.assets.declare import gpu_pool, step_asset
from trainworthy.assets.freshness import freshness_asset_check, freshness_spec, watched
from trainworthy.assets.rollback import rollback_job
from trainworthy.assets.step import StepWork
from trainworthy.assets.step_run import INTENT_TAG, VALIDATION
from trainworthy.lifecycle.protocol.records import STAGES, STEPS, Step
from trainworthy.lifecycle.run_config import run_config
from trainworthy.lifecycle.spec.use_case import chosen_engine
from trainworthy.lifecycle.use_case import UseCase

if TYPE_CHECKING:
    from trainworthy.resources.dagster_private import UnresolvedAssetJobDefinition as UnresolvedAssetJob

# Name, intent, last step, description.
JOBS: tuple[tuple[str, str, Step, str], ...] = (
    ("train", "candidate", "promotion", "Dataset to verdict: train in stages, evaluate on the benchmark, judge."),
    ("experiment", "experiment", "full", "Dataset to the validation split: the benchmark stays untouched."),
    ("preflight", "preflight", "preflight", "Dataset to preflight: the checks for a pull request."),
    ("validate", VALIDATION, "snapshot", "Dataset, snapshot and freshness: is the data still good? Sends alerts."),
)


def lifecycle_assets(use_case: UseCase) -> list[dg.AssetsDefinition]:
    """The eight assets of a use case, in the order in which data flows."""
    engine = "polars" if chosen_engine(use_case.spec.validation.engine) == "fused" else "great_expectations"
    pool = gpu_pool(use_case)
    return [
        watched(use_case, step_asset(use_case, "dataset", own_work, kinds={"dvc", "parquet"})),
        step_asset(use_case, "snapshot", own_work, kinds={engine, "parquet"}),
        step_asset(use_case, "preflight", own_work, kinds={"pytorch"}, pool=pool),
        *(step_asset(use_case, stage, own_work, kinds={"pytorch"}, pool=pool) for stage in STAGES),
        step_asset(use_case, "evaluation", own_work, kinds={"scikit-learn"}),
        step_asset(use_case, "promotion", own_work, kinds={"mlflow"}),
    ]


def own_work(step: Step) -> StepWork:
    """What the step's own file gives. It is imported when the step runs: loading the definitions needs none of it."""
    match step:
        case "dataset":
            from trainworthy.assets.dataset import STEP
        case "snapshot":
            from trainworthy.assets.snapshot import STEP
        case "preflight":
            from trainworthy.assets.preflight import STEP
        case "smoke" | "pilot" | "full":
            from trainworthy.assets.training import STEP
        case "evaluation":
            from trainworthy.assets.evaluation import STEP
        case "promotion":
            from trainworthy.assets.promotion import STEP
    return STEP


def lifecycle_checks(use_case: UseCase) -> list[dg.AssetChecksDefinition]:
    """The checks that no step makes."""
    return [freshness_asset_check(use_case)]


def lifecycle_jobs(use_case: UseCase) -> list[UnresolvedAssetJob | dg.JobDefinition]:
    """train_<use case>, experiment_<use case>, preflight_<use case>, validate_<use case>, rollback_<use case>.

    Steps run in this process: Dagster's default starts one a step, about 2 CPU seconds each, and what
    needs a process of its own (torch, user code) has the worker.
    """
    return [*(_job(use_case, *job) for job in JOBS), rollback_job(use_case)]


def _job(use_case: UseCase, name: str, intent: str, last: Step, description: str) -> UnresolvedAssetJob:
    steps = STEPS[: STEPS.index(last) + 1]
    # What stands in the launchpad: all that a run may declare, as it is without a word.
    declared = {"first_model": False, "fail_on": "never"} if last == "promotion" else {}
    # An asset's checks are selected with it; freshness is asked of the clock, which no training may depend on.
    selected = dg.AssetSelection.assets(*[dg.AssetKey([use_case.name, step]) for step in steps])
    validates = intent == VALIDATION
    return dg.define_asset_job(
        f"{name}_{use_case.name}",
        selection=selected if validates else selected - dg.AssetSelection.checks(freshness_spec(use_case).key),
        description=f"{description} {use_case.spec.description}".strip(),
        tags={INTENT_TAG: intent, "trainworthy/use_case": use_case.name},
        config=run_config(**declared, dataset_version=""),
        executor_def=dg.in_process_executor,
    )
