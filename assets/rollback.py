"""rollback: back to the champion before, once it has loaded and answered in a fresh process. No asset is made."""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import dagster as dg

from trainworthy.assets.announce import announce_rollback
from trainworthy.assets.champion import champion_of, enter, judged_alone, move_alias, verdict_log
from trainworthy.assets.stopped import StoppedError
from trainworthy.lifecycle.errors import ChampionError, TrainworthyError
from trainworthy.lifecycle.identity import sha256_file
from trainworthy.lifecycle.progress import never_silent
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.controls import ANSWER_TOLERANCE
from trainworthy.lifecycle.promotion.history import predecessor, rollback_target
from trainworthy.lifecycle.promotion.judged import artifacts_of
from trainworthy.lifecycle.promotion.log import LogEntry
from trainworthy.lifecycle.protocol.attempts import ChargedTo
from trainworthy.lifecycle.protocol.jobs import VerifyJob
from trainworthy.lifecycle.protocol.records import Verdict
from trainworthy.lifecycle.protocol.results import VerifyResult
from trainworthy.lifecycle.storage.shared.store import HeldLease
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.resources.launcher import Launcher
from trainworthy.resources.mlflow import Tracking
from trainworthy.resources.mlflow_model import RegisteredModel
from trainworthy.resources.workspace import Workspace

NO_REASON = "no reason was given"
_REASON = "Why: it is kept in the verdict log, shown by `trainworthy history`, and told when the model is judged again."


def rollback_job(use_case: UseCase) -> dg.JobDefinition:
    """The job rollback_<use case>. Its run config is `{reason: ...}`, and may be left out."""
    op_name = f"{use_case.name}__rollback"

    # Where there is no output there is nothing to pickle.
    @dg.op(name=op_name, out=dg.Out(dg.Nothing), config_schema={"reason": str}, description=__doc__)
    def rollback(
        context: dg.OpExecutionContext, workspace: Workspace, tracking: Tracking, launcher: Launcher
    ) -> dg.Output[None]:
        words = " ".join(context.op_config["reason"].split())
        run = Rollback(context, workspace, tracking, launcher, use_case, words or NO_REASON)
        return dg.Output(None, metadata=_guarded(run))

    def as_run_config(given: dict[str, Any]) -> dict[str, Any]:
        return {"ops": {op_name: {"config": {"reason": given["reason"]}}}, "loggers": {"console": {}}}

    reason = dg.Field(str, is_required=False, default_value=NO_REASON, description=_REASON)

    @dg.job(
        name=f"rollback_{use_case.name}",
        description=f"Back to the previous champion, once it answers its golden requests. {use_case.spec.description}",
        tags={"trainworthy/use_case": use_case.name},
        config=dg.ConfigMapping(config_fn=as_run_config, config_schema={"reason": reason}),
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        rollback()

    return job


@dataclass(frozen=True)
class Rollback:
    """What a rollback may use, and the operator's reason for it."""

    context: dg.OpExecutionContext
    workspace: Workspace
    tracking: Tracking
    launcher: Launcher
    use_case: UseCase
    reason: str


def _guarded(run: Rollback) -> dict[str, Any]:
    """Roll back alone; what a user can fix ends in one message."""
    try:
        with never_silent("rollback"), judged_alone(run.workspace, run.use_case) as held:
            shown = roll_back(run, held)
    except TrainworthyError as error:
        announce_rollback(run.workspace, run.use_case, run.context.run_id, run.context.log, refused=error)
        raise StoppedError(f"the rollback of {run.use_case.name} stopped\n{error}") from None
    announce_rollback(run.workspace, run.use_case, run.context.run_id, run.context.log)
    return shown


def roll_back(run: Rollback, held: HeldLease) -> dict[str, Any]:
    """Verify the previous champion, write the log, move the aliases; gives what Dagster shows. `held` is the lease.

    Nothing is changed before the verification. The log is written before the alias moves: it is the truth, and
    where a crash leaves the two apart every later step says so.
    """
    started, name = time.perf_counter(), run.use_case.name
    entries = log.read(verdict_log(run))
    artifacts = artifacts_of(entries, run.workspace.records)
    if log.champion(entries) and predecessor(entries, artifacts) is None:
        champion_of(run)  # An alias that a rollback left behind is told before that there is nothing to go back to.
    target = rollback_target(entries, artifacts)
    model = _registered(run, target)
    run.context.log.info(f"asking version {target.model_version}, the champion before, its golden requests")
    with ThreadPoolExecutor(max_workers=1) as threads:
        # MLflow is imported here while the worker imports torch: two to three seconds each.
        agreed = threads.submit(champion_of, run)
        verified = verify(run, target, model)
    champion = agreed.result()
    assert champion is not None
    verified_at, stays = time.perf_counter(), champion.artifact_sha256 == artifacts.get(target.model_version)
    entry = enter(
        run, held, action="rollback", model_version=target.model_version,
        verdict_sha256=target.verdict_sha256, previous_verdict_sha256=entries[-1].verdict_sha256, reason=run.reason,
    )  # fmt: skip
    switched_at = time.perf_counter()
    left = predecessor((*entries, entry), artifacts)
    move_alias(run.tracking, name, held, target.model_version, left.model_version if left else None)
    ended = time.perf_counter()
    seconds = {"seconds": ended - started, "alias_seconds": ended - switched_at, "load_seconds": verified.load_seconds}
    shown = _shown(run, champion, target, verified, seconds)
    key = dg.AssetKey([name, "promotion"])
    run.context.log_event(dg.AssetObservation(key, description="rolled back", metadata=shown))
    artifact = "the artifact stays, and decides by its operating point of then; " if stays else ""
    run.context.log.info(
        f"the champion is version {target.model_version} again, version {champion.version} is withdrawn: {artifact}"
        f"{verified.golden.requests} golden requests answered, largest difference {verified.golden.difference:.1e}; "
        f"{ended - started:.1f} s, of which {verified_at - started:.1f} s to find, load and ask it in a fresh process "
        f"and {ended - switched_at:.3f} s to move the alias"
    )
    return shown


def verify(run: Rollback, target: LogEntry, model: RegisteredModel) -> VerifyResult:
    """The version's registered files, which its verdict bound, load in a fresh process and answer as on record.

    Raises WorkerError if they do not load or have no golden requests, ChampionError for other
    answers or another decision.
    """
    bound = _bound(run, target)
    _refuse_other_decision(model, bound.get("decision"))
    job = VerifyJob(
        use_case_folder=str(model.artifact / "code"),
        out=str(run.workspace.state.folder("rollback", run.use_case.name, run.context.run_id)),
        device="cpu",
        artifact=str(model.artifact),
        artifact_sha256=bound["model"],
    )
    charged_to = ChargedTo(
        run_id=run.context.run_id, use_case=run.use_case.name, step="rollback", identity=bound["model"]
    )
    verified = run.launcher.run(run.context, job, charged_to)
    assert isinstance(verified, VerifyResult)
    if not verified.golden.difference <= ANSWER_TOLERANCE:
        fix = "look for another version of torch or another processor than it was trained with, or train a new model"
        problem = f"version {model.version} answers its golden requests otherwise than when it was written"
        raise ChampionError(problem, value={"largest difference": verified.golden.difference}, fix=fix)
    return verified


def _registered(run: Rollback, target: LogEntry) -> RegisteredModel:
    model = run.tracking.version(run.use_case.name, target.model_version)
    if model is None:
        fix = "restore the registry from a backup, or train a new model"
        raise ChampionError("the previous champion is gone from the registry", value=target.model_version, fix=fix)
    return model


def _bound(run: Rollback, target: LogEntry) -> Mapping[str, str]:
    """sha256 of what the version's verdict was about."""
    verdict = run.workspace.records.get(run.use_case.name, "promotion", target.verdict_sha256)
    assert isinstance(verdict, Verdict)
    return verdict.binds


def _refuse_other_decision(model: RegisteredModel, bound: str | None) -> None:
    """Raises ChampionError unless the version decides by what its verdict was about; None is by nothing."""
    registered = sha256_file(model.decision_file) if model.decision_file.is_file() else None
    if registered != bound:
        problem = f"version {model.version} does not decide by what its verdict was about"
        fix = f"restore {model.decision_file} from a backup"
        raise ChampionError(problem, value={"verdict": bound, "registered": registered}, fix=fix)


def _shown(
    run: Rollback, champion: RegisteredModel, target: LogEntry, verified: VerifyResult, seconds: dict[str, float]
) -> dict[str, Any]:
    """What Dagster shows of the rollback, on its run and on the page of the asset promotion."""
    return {
        "rollback/from_version": champion.version,
        "rollback/to_version": target.model_version,
        "rollback/verdict_sha256": target.verdict_sha256,
        "rollback/reason": run.reason,
        "rollback/golden_requests": verified.golden.requests,
        "rollback/largest_difference": verified.golden.difference,
        "rollback/latency_ms": verified.latency.most_ms,
        **{f"rollback/{name}": value for name, value in seconds.items()},
    }
