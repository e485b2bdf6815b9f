"""A step as a Dagster asset: key, dependencies, checks, owner, words, and the resources that it is handed.

Each step's own file gives its work (StepWork), and is imported when the step runs.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import dagster as dg

from trainworthy.assets.announce import announced
from trainworthy.assets.step import StepEvents, StepWork, run_step
from trainworthy.assets.step_run import StepResources
from trainworthy.lifecycle.code_identity import KEPT, CodeOnDisk
from trainworthy.lifecycle.gates.own_names import may_have_own
from trainworthy.lifecycle.gates.preflight import CHECKS as PREFLIGHT_CHECKS
from trainworthy.lifecycle.gates.preflight import OWN, TRAINER
from trainworthy.lifecycle.gates.stage import CHECKS as STAGE_CHECKS
from trainworthy.lifecycle.gates.step_checks import QUESTIONS
from trainworthy.lifecycle.protocol.operating_point import DECISIONS
from trainworthy.lifecycle.protocol.records import PARENTS, STAGES, Step
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.resources.launcher import Launcher
from trainworthy.resources.mlflow import Tracking
from trainworthy.resources.settings import read_settings
from trainworthy.resources.workspace import Intent, Workspace

CHECKS: dict[Step, tuple[str, ...]] = {
    "dataset": ("content_hash", "backfill"),
    "snapshot": ("contract", "availability", "files", "splits", "class_balance", "history", "leakage", "drift"),
    "preflight": PREFLIGHT_CHECKS,
    "smoke": STAGE_CHECKS["smoke"],
    "pilot": STAGE_CHECKS["pilot"],
    "full": STAGE_CHECKS["full"],
    "evaluation": ("predictions", "groups", "benchmark_window", "prediction_drift", "looks", "blind_spots"),
    "promotion": ("dataset", "benchmark", "cost", "reproducibility", "deployment"),
}
DESCRIPTIONS: dict[Step, str] = {
    "dataset": "A published version of the dataset, fetched through DVC and checked against its content hash.",
    "snapshot": "Rows that keep the contract, labelled and split; immutable, addressed by content.",
    "preflight": "Forecasts of memory and cost, one batch end to end, ten batches overfitted: is a training worth it?",
    "smoke": "Training on the smallest fraction: does the loop run, and are the labels those of their rows?",
    "pilot": "Training on a tenth: has the network learned something, and can the rest be paid?",
    "full": "Training on all training rows; calibrates and exports the artifact.",
    "evaluation": "The exported artifact and its baselines on the benchmark, with intervals and slices.",
    "promotion": "Five controls and the comparisons: promote, shadow or reject. The verdict.",
}


def step_asset(
    use_case: UseCase,
    step: Step,
    own_work: Callable[[Step], StepWork],
    *,
    kinds: set[str],
    pool: str | None = None,
) -> dg.AssetsDefinition:
    """The asset <use case>/<step>. `own_work` is asked for the step's work when it runs."""
    key = dg.AssetKey([use_case.name, step])

    @dg.asset(
        name=step,
        key_prefix=use_case.name,
        # The nearest alone: what a step reads of earlier ones came through it, and the graph is a row.
        deps=[dg.AssetKey([use_case.name, parent]) for parent in PARENTS[step][:1]],
        check_specs=[
            dg.AssetCheckSpec(name, asset=key, description=QUESTIONS[name], blocking=True)
            for name in checks_of(use_case, step)
        ],
        group_name=use_case.name,
        owners=[use_case.spec.owner],
        tags={"trainworthy/use_case": use_case.name},
        description=DESCRIPTIONS[step],
        code_version=code_version(use_case.folder, step),
        kinds=kinds,
        pool=pool,
    )
    def asset(
        context: dg.AssetExecutionContext,
        workspace: Workspace,
        tracking: Tracking,
        launcher: Launcher,
        intent: Intent,
    ) -> StepEvents:
        resources = StepResources(workspace, tracking, launcher, intent)
        at_version = use_case.at_version(intent.dataset_version)
        own = own_work(step)
        with own.around(resources, use_case, context.run.run_id), announced(context, workspace, at_version, step):
            yield from run_step(context, resources, use_case, step, own)

    return asset


def checks_of(use_case: UseCase, step: Step) -> tuple[str, ...]:
    """The step's checks; a training script of the use case's own is asked for itself, before and while it trains.

    What a use case has none of is no check of it: no decision, and no check_ function of its own.
    """
    with_script = use_case.spec.trainer is not None and step in ("preflight", *STAGES)
    decides = use_case.spec.benchmark.decision is not None and step == "evaluation"
    names = (*CHECKS[step], *((TRAINER,) if with_script else ()), *((DECISIONS,) if decides else ()))
    return tuple(name for name in names if name != OWN or may_have_own(use_case.folder / "model.py"))


def gpu_pool(use_case: UseCase) -> str | None:
    """The pool that bounds how many steps hold a GPU of this machine at once, over all runs of the instance."""
    compute = use_case.spec.compute
    return "gpu" if compute.gpus and not compute.elsewhere else None


def code_version(use_case_folder: Path, step: Step) -> str:
    """The code of the step as this process loaded it. A step that runs hashes anew what lies on disk."""
    return _loaded_code().step(use_case_folder, step)[:16]


@functools.cache
def _loaded_code() -> CodeOnDisk:
    """Read once for all assets."""
    return CodeOnDisk(read_settings().var.joinpath(*KEPT))
