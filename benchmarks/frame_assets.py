"""Our frame around eight steps whose own work is a constant. Dagster's process loads this module.

What is real: the definitions of the use case, identities, records, provenance, checks, metadata, data versions.
What is left out: the steps' work with its workers, MLflow, the report and the pictures.
"""

import os
from collections.abc import Mapping
from typing import Any, NoReturn
from unittest import mock

import dagster as dg

from trainworthy.assets import declare, metadata, step
from trainworthy.assets.step import StepOutcome, StepWork
from trainworthy.assets.step_run import INTENT_TAG
from trainworthy.lifecycle.protocol.checks import holds
from trainworthy.lifecycle.protocol.records import (
    STEPS,
    Body,
    Cost,
    DatasetBody,
    EvaluationBody,
    Forecast,
    PreflightBody,
    SnapshotBody,
    Split,
    StageBody,
    Step,
    StoredFile,
    VerdictBody,
)
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.pipeline.build import load_all
from trainworthy.pipeline.console import console
from trainworthy.resources.launcher import Launcher
from trainworthy.resources.mlflow import TrackedRun, Tracking
from trainworthy.resources.workspace import Intent, Workspace

CHECKS_AN_ASSET = int(os.environ.get("BENCHMARK_CHECKS", "3"))
SHA256 = "0" * 64


class NoTracking(Tracking):
    """Takes what a step writes to MLflow and keeps nothing.

    A method of Tracking that is not overridden here would ask the real MLflow: `client` refuses that by name.
    """

    @property
    def client(self) -> NoReturn:  # pyright: ignore[reportIncompatibleVariableOverride]
        raise AssertionError("a step asked MLflow by a method that NoTracking lacks: add the method to NoTracking")

    def run(self, use_case: str, dagster_run_id: str, tags: Mapping[str, str], name: str = "") -> TrackedRun:
        return TrackedRun("none", "none")

    def tags(self, run: TrackedRun) -> Mapping[str, str]:
        # As of a run whose earlier steps are all there, or every step would write them again.
        return {f"step/{step}": "passed" for step in STEPS}

    def log_values(self, run: TrackedRun, **values: Any) -> None:
        pass

    def log_curve(self, run: TrackedRun, stage: str, lines: Any) -> None:
        pass

    def log_inputs(self, run: TrackedRun, inputs: Any) -> None:
        pass

    def show_columns(self, run: TrackedRun, metrics: Any) -> None:
        pass

    def describe(self, run: TrackedRun, name: str, version: str, judged: Any) -> None:
        pass

    def log_files(self, run: TrackedRun, files: Mapping[str, bytes]) -> None:
        pass

    def end(self, run: TrackedRun, status: str, name: str = "") -> None:
        pass


def frame_asset(use_case: UseCase, name: Step) -> dg.AssetsDefinition:
    """The step `name` with CHECKS_AN_ASSET checks and constants for its work."""
    names = tuple(f"check_{number}" for number in range(CHECKS_AN_ASSET))
    checks = tuple(holds(c, True, observed=1.0, threshold=2.0, evidence="a constant") for c in names)
    questions = {check: "Is a constant a constant?" for check in names}
    work = StepWork(lambda run: StepOutcome(checks=checks, body=constant_body(name)))
    with mock.patch.dict(declare.CHECKS, {name: names}), mock.patch.dict(declare.QUESTIONS, questions):
        return declare.step_asset(use_case, name, lambda step: work, kinds=set())


def constant_body(name: Step) -> Body:
    """A valid result of the step, small and the same each time."""
    file = StoredFile(path="file", sha256=SHA256, bytes=1)
    split = Split(name="split", file=file, rows=1, positives=1, groups=1, start="2024-01-01", end="2024-01-02")
    forecast = Forecast(name="f", unit="usd", value=1.0, low=0.5, high=2.0)
    stage = StageBody(
        training_run="run",
        fraction=1.0,
        seed=0,
        rows=1,
        steps=1,
        resumed_from_step=0,
        checkpoint=None,
        checkpoint_sha256=None,
        prefix_steps=1,
        prefix_sha256=SHA256,
        parameters=1,
        parameters_sha256=SHA256,
        artifact="artifact",
        artifact_sha256=SHA256,
        metrics={"log_loss": 0.5},
        curve=(),
    )
    bodies: dict[Step, Body] = {
        "dataset": DatasetBody(
            name="toy_rows", revision="v1", dvc_hash="h", content_hash=SHA256, rows=1, path="p", files=(file,)
        ),
        "snapshot": SnapshotBody(
            content_hash=SHA256,
            contract_sha256=SHA256,
            label_sha256=SHA256,
            label="positive",
            feature_columns=("x",),
            rows=4,
            excluded_rows=0,
            excluded_share=0.0,
            benchmark="b",
            splits={n: split for n in ("training", "validation", "calibration", "benchmark")},
        ),
        "preflight": PreflightBody(memory_bytes=forecast, seconds=forecast, cost_usd=forecast),
        "smoke": stage,
        "pilot": stage,
        "full": stage,
        "evaluation": EvaluationBody(
            benchmark="b",
            rows=1,
            groups=1,
            primary="log_loss",
            metrics=(),
            comparisons=(),
            reliability=(),
            predictions=file,
            latency_ms=1.0,
            artifact="artifact",
            artifact_sha256=SHA256,
        ),
        "promotion": VerdictBody(
            decision="promote",
            reasons=("a constant",),
            controls=(),
            comparisons=(),
            model_name="toy",
            model_version="1",
            champion=None,
            first_model=True,
            evaluation_identity=SHA256,
            evidence={},
            binds={},
            step_costs={},
            model_cost=Cost(),
            previous_verdict_sha256=None,
        ),
    }
    return bodies[name]


mock.patch.object(step, "write_report", return_value=None).start()
mock.patch.object(metadata, "pictures_of", return_value={}).start()
use_case = next(found for found in load_all()[0] if found.name == "toy")
_assets = [frame_asset(use_case, name) for name in STEPS]
defs = dg.Definitions(
    assets=_assets,
    resources={"workspace": Workspace(), "tracking": NoTracking(), "launcher": Launcher(), "intent": Intent()},
    loggers={"console": console},
    jobs=[
        dg.define_asset_job(
            "frame",
            selection=_assets,
            executor_def=dg.in_process_executor,
            config={"loggers": {"console": {}}},
            tags={INTENT_TAG: "candidate"},
        )
    ],
)
