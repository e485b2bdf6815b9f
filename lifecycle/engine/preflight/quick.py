"""What of preflight needs no training: configuration, inputs, wiring and start, on few rows and without a forecast.

On rows that are made from the contract nothing is asked that judges values: made ones are spread as no data are.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.contract.sample import sample_rows
from trainworthy.lifecycle.contract.sample_files import with_sample_files
from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.configuration import checks as configuration
from trainworthy.lifecycle.engine.preflight.configuration.kernels import in_fp32
from trainworthy.lifecycle.engine.preflight.inputs import checks as inputs
from trainworthy.lifecycle.engine.preflight.on_device import on_device
from trainworthy.lifecycle.engine.preflight.one_batch import checks as one_batch
from trainworthy.lifecycle.engine.preflight.run import checked, for_cuda
from trainworthy.lifecycle.engine.preflight.sample import Sample, draw_sample, fewest_rows
from trainworthy.lifecycle.engine.preflight.start import checks as start
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.preflight.wiring import checks as wiring
from trainworthy.lifecycle.engine.trainers.preflight import has_network, with_script
from trainworthy.lifecycle.engine.training.recipe import make_recipe
from trainworthy.lifecycle.files.tree import FILES
from trainworthy.lifecycle.gates.check import Check
from trainworthy.lifecycle.oversampling import oversample
from trainworthy.lifecycle.plan import make_plan
from trainworthy.lifecycle.protocol.jobs import PreflightJob, QuickJob
from trainworthy.lifecycle.protocol.results import PreflightResult
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.spec.split import HashSplit, Shares
from trainworthy.lifecycle.task import error_line, load_task
from trainworthy.lifecycle.tasks.labels import kind_of_rows, labels_of

# As many rows as the networks have that the checks are held against (benchmarks/healthy.py): 250 to 3,000.
ROWS = 2_000
# Those made from the contract are all made one by one, files among them.
MADE_ROWS = 512
JUDGES_VALUES = ("start.initial_loss", "start.activations")


def run_quick(job: QuickJob) -> PreflightResult:
    """The trials of what can be asked; `untried` says what was not, and why. Raises what model.py raises on rows."""
    return on_device(job, _run)


def _run(job: QuickJob, device: str) -> PreflightResult:
    # More threads only wait for each other on so few rows.
    torch.set_num_threads(1)
    empty: dict[str, Any] = {"memory": None, "seconds": None, "device": device}
    if not has_network(load_task(Path(job.use_case_folder))):
        return PreflightResult(untried=f"only {job.trainer} knows the network", **empty)
    with tempfile.TemporaryDirectory() as folder:
        preflight_job = _preflight_job(job, Path(folder))
        rows = read_rows(
            preflight_job.training_file,
            preflight_job.rows,
            (preflight_job.rows.weight,) if preflight_job.rows.weight else (),
        )
        sample = checked(draw_sample(preflight_job, rows, device, ROWS))
        if job.made_rows:
            sample = replace(sample, subject=_as_planned(preflight_job, sample, job.made_rows))
        trials, why = _tried(preflight_job, sample, device, bool(job.made_rows))
    return PreflightResult(trials=trials, untried=why, **empty)


def _tried(job: PreflightJob, sample: Sample, device: str, made: bool) -> tuple[tuple[Trial, ...], str]:
    """The trials, each family as far as what it needs has passed, and why the rest was not tried."""

    def tried(checks: tuple[Check[Any], ...], trial_subject: Any) -> tuple[Trial, ...]:
        return run_checks(
            checks, trial_subject, device=device, not_applicable=job.claims.not_applicable,
            describe=lambda error: error_line(
                error, Path(job.use_case_folder), sensitive=bool(job.rows.sensitive_features)
            ),
        )  # fmt: skip

    subject, of_rows = sample.subject, () if made else inputs.CHECKS
    trials = tried((start.FINITE_WEIGHTS,), subject)
    if trials[0].status == "fail":
        return trials, f"not tried: all else, since {trials[0].evidence}"
    kernels = for_cuda(tried((configuration.KERNELS,), subject), job, device)
    if kernels[0].status not in ("pass", "not_applicable"):
        return (
            *trials,
            *kernels,
            *tried(of_rows, in_fp32(subject)),
        ), f"not tried: all else, since {kernels[0].evidence}"
    (update,) = tried((one_batch.TRAINS,), (job, sample))
    trials = (*trials, *kernels, update)
    if update.status in ("fail", "error") and update.code != one_batch.NO_UPDATE:
        return (*trials, *tried(of_rows, subject)), "not tried: wiring and start, since no update goes through"
    checks = (*configuration.CHECKS, *of_rows, *wiring.CHECKS, *start.CHECKS)
    left_out = [*dict.fromkeys(check.family for check in inputs.CHECKS), *JUDGES_VALUES] if made else []
    trials += tried(tuple(check for check in checks if check.id not in left_out), subject)
    return trials, f"not tried on made rows, whose values say nothing: {', '.join(left_out)}" if left_out else ""


def _preflight_job(job: QuickJob, folder: Path) -> PreflightJob:
    """The job by which a sample is drawn, of the snapshot's files or of made ones."""
    rows = job.rows
    files: dict[str, Any] = {"training_file": job.training_file, "validation_file": job.validation_file}
    if job.made_rows:
        rows = rows.model_copy(update={"files_root": str(folder)})
        files = _made_files(job, folder)
    # Splits decide nothing here.
    split = HashSplit(
        by="hash", resample_by=rows.group, salt="none", shares=Shares(validation=0.2, calibration=0.2, benchmark=0.2)
    )
    preflight_job = PreflightJob(
        use_case_folder=job.use_case_folder, out=job.out, device=job.device, rows=rows, loaders=job.loaders,
        training=job.training, stages=job.stages, hyperparameters=job.hyperparameters, claims=job.claims, split=split,
        prediction_time=None, data_folders=(), memory_limit_bytes=0, trainer=job.trainer, processes=job.processes,
        **files,
    )  # fmt: skip
    return with_script(preflight_job) if job.trainer else preflight_job


def _made_files(job: QuickJob, folder: Path) -> dict[str, str]:
    """Two files of rows made from the contract, training's and validation's, with labels as varied as they come."""
    contract, rows = load_contract(Path(job.use_case_folder) / "contract.yaml"), job.rows
    files = folder / FILES
    files.mkdir()
    made = with_sample_files(sample_rows(contract, rows.features, MADE_ROWS, MADE_ROWS // 2), contract, files)
    for name in set(rows.files) & set(made):
        # As a dataset's rows name them.
        made[name] = [None if path is None else f"{FILES}/{Path(path).name}" for path in made[name]]
    made[rows.label] = kind_of_rows(rows).sample_labels(len(made))
    for name in {rows.group, *rows.keys} - set(made):
        made[name] = np.arange(len(made))
    if rows.weight:
        made[rows.weight] = 1.0
    paths = {}
    for name, part in (("training", made.iloc[: MADE_ROWS // 2]), ("validation", made.iloc[MADE_ROWS // 2 :])):
        paths[f"{name}_file"] = str(folder / f"{name}.parquet")
        part.to_parquet(paths[f"{name}_file"], index=False)
    return paths


def _as_planned(job: PreflightJob, sample: Sample, rows: int) -> Subject:
    """The subject of made rows with the plan of so many."""
    labels = np.resize(labels_of(job.rows, sample.rows), rows)
    plan = make_plan(rows, job.training, job.stages, "full", oversample(labels, job.training.oversampling))
    recipe = make_recipe(sample.task, job.training, plan.horizon_steps)
    return replace(sample.subject, plan=plan, recipe=recipe, labels=labels, fewest_rows=fewest_rows(job, rows))
