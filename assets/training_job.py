"""The worker's jobs of a training and what every job names: code, folder, device, columns and files."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, Literal

from trainworthy.assets.contract import judged_contract
from trainworthy.assets.mirror import stage_folder
from trainworthy.assets.step_run import StepRun
from trainworthy.lifecycle.contract.model import Contract
from trainworthy.lifecycle.cost.checkpoint_interval import interruptions
from trainworthy.lifecycle.data.snapshot import snapshot_is_whole
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.gates.seeds import of_seed
from trainworthy.lifecycle.protocol.jobs import CheckpointRef, KeptFeatures, Rows, TrainJob
from trainworthy.lifecycle.protocol.records import DatasetVersion, Snapshot, StageReport
from trainworthy.lifecycle.spec.split import Windows
from trainworthy.lifecycle.spec.task import target_of
from trainworthy.lifecycle.tasks import Kind, kind_of

Stage = Literal["smoke", "pilot", "full"]


def train_job(
    run: StepRun, snapshot: Snapshot, training_run: str, stage: Stage, seed: int, *, rerun_steps: int | None = None,
    seconds_left: float = math.inf, processes: int | None = None,
) -> TrainJob:  # fmt: skip
    """The worker's job for one training of a stage; with `rerun_steps` from its start, that many steps, elsewhere.

    `seconds_left` is what the budget still allows, `processes` are those of the use case if None. A seed that is not
    the declared one has a folder and an identity of its own, so that each resumes for itself.
    """
    spec, state = run.use_case.spec, run.workspace.state
    declared = seed == spec.training.seed
    folder = stage_folder(state, run.use_case, training_run, stage, seed)
    if rerun_steps is not None:
        folder = state.folder("reruns", run.use_case.name, run.run_id, stage)
    continued = spec.stages.mode == "continue"
    start = None
    if continued and declared and rerun_steps is None and stage != "smoke":
        before = run.record("pilot" if stage == "full" else "smoke", StageReport)
        assert before.checkpoint is not None
        assert before.checkpoint_sha256 is not None
        start = CheckpointRef(path=str(state.absolute(before.checkpoint)), sha256=before.checkpoint_sha256)
    return TrainJob(
        **job_base(run, snapshot, folder),
        # One continued run has one identity; restarted stages are trainings of their own.
        identity=(training_run if continued else f"{training_run}:{stage}") + ("" if declared else f"_seed_{seed}"),
        stage=stage,
        stages=spec.stages,
        training=of_seed(spec.training, seed),
        hyperparameters=spec.hyperparameters,
        training_file=str(state.absolute(snapshot.splits["training"].file.path)),
        validation_file=str(state.absolute(snapshot.splits["validation"].file.path)),
        calibration_file=str(state.absolute(snapshot.splits["calibration"].file.path)),
        start=start,
        slices=spec.benchmark.slice_columns,
        frozen=spec.preflight.frozen,
        trainer=spec.trainer,
        split=spec.split if spec.trainer else None,
        unreviewed=judged_contract(run).unreviewed_features,
        processes=processes or spec.compute.processes,
        sharding=spec.compute.sharding,
        collective_timeout_seconds=spec.compute.collective_timeout_seconds,
        stop_after_steps=rerun_steps,
        # A rerun has to prepare its features anew: what it shows would be half of it otherwise.
        kept_features=None
        if rerun_steps is not None
        else KeptFeatures(
            folder=str(state.folder("features", run.use_case.name)),
            split_sha256=snapshot.splits["training"].file.sha256,
        ),
        ends_at=None if math.isinf(seconds_left) else time.time() + seconds_left,
        interruptions=interruptions(
            spec.compute.spot,
            run.sku.interruptions_per_hour,
            run.workspace.require_durable() if rerun_steps is None else None,
            spec.compute.nodes,
        ),
    )


def job_base(run: StepRun, snapshot: Snapshot, out: Path) -> dict[str, Any]:
    """What every job names: the code, the folder of the answer, the device, and the columns."""
    contract, split = judged_contract(run), run.use_case.spec.split
    sensitive = set(contract.sensitive_columns)
    if not snapshot_is_whole(run.workspace.state, snapshot.splits):
        fix = f"materialize {run.use_case.name}/snapshot again"
        raise DatasetError("a file of the snapshot is missing or was changed", value=snapshot.content_hash, fix=fix)
    return {
        "use_case_folder": str(run.use_case.folder),
        "out": str(out),
        "device": run.use_case.spec.compute.job_device,
        "loaders": run.use_case.spec.compute.loaders,
        "rows": Rows(
            features=snapshot.feature_columns,
            label=snapshot.label,
            group=split.resample_by,
            split_by_time=isinstance(split, Windows) and split.group_column is None,
            keys=tuple(name for name in contract.primary_key if name not in sensitive),
            sensitive=contract.sensitive_columns,
            weight=contract.weight_column,
            target=target_of(run.use_case.spec.task, contract.label.classes),
            **_files(run, contract, snapshot),
        ),
    }


def _files(run: StepRun, contract: Contract, snapshot: Snapshot) -> dict[str, Any]:
    """The columns of files, and the dataset's folder that they lie in; {} without any.

    Those of any role: a champion may read a column that is no feature any more. What names a row's group is stored with
    the predictions, as the text that it is.
    """
    read, group = {column.name for column in contract.file_columns}, run.use_case.spec.split.resample_by
    files = (column.name for column in contract.columns if column.file)
    columns = tuple(name for name in files if name in read or name != group)
    if not columns:
        return {}
    dataset = run.workspace.records.get(run.use_case.name, "dataset", snapshot.parents["dataset"])
    assert isinstance(dataset, DatasetVersion)
    folder = run.workspace.state.absolute(dataset.path)
    if not folder.is_dir():
        fix = f"materialize {run.use_case.name}/dataset again"
        raise DatasetError("the folder of the dataset's files is missing", value=str(folder), fix=fix)
    label_file = contract.label.column if contract.label.column in columns else None
    return {"files": columns, "files_root": str(folder), "label_file": label_file}


def job_kind(run: StepRun) -> Kind:
    """What the use case predicts."""
    return kind_of(target_of(run.use_case.spec.task, judged_contract(run).label.classes))
