"""promotion: register → deployment evidence → decide → verdict → alias. The only step that judges the model."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainworthy.assets.champion import champion_of, enter, judged_alone, move_alias, verdict_log
from trainworthy.assets.champion_evidence import ChampionEvidence, champion_evidence, earlier_champions
from trainworthy.assets.committed import committed_entry, not_in_commit
from trainworthy.assets.contract import judged_contract
from trainworthy.assets.evidence import (
    ASK,
    accepted_inputs,
    benchmark_tags,
    benchmark_windows,
    binds,
    deployment_evidence,
    insufficient_checks,
    model_cost,
    open_questions,
    reproducibility_evidence,
    stage_costs,
    step_costs,
)
from trainworthy.assets.serving import serving_figures
from trainworthy.assets.step import StepOutcome, StepWork
from trainworthy.assets.step_run import StepResources, StepRun
from trainworthy.assets.stopped import StoppedError
from trainworthy.assets.suite import benchmark_window, limits_changed
from trainworthy.lifecycle.errors import ChampionError, DatasetError, TrainworthyError
from trainworthy.lifecycle.evaluation.operating_point import operating_point, same_point, sha256_of
from trainworthy.lifecycle.files.content import content_hash
from trainworthy.lifecycle.files.versions import published_version
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.controls import (
    benchmark_control,
    budget_check,
    cost_control,
    dataset_control,
    deployment_control,
    reproducibility_control,
)
from trainworthy.lifecycle.promotion.decide import LEAVE_FIRST_MODEL, decide
from trainworthy.lifecycle.promotion.evidence import PromotionEvidence, guardrail_results
from trainworthy.lifecycle.promotion.history import RolledBack, predecessor, rolled_back
from trainworthy.lifecycle.promotion.judged import artifacts_of
from trainworthy.lifecycle.promotion.prefix import made_by_several
from trainworthy.lifecycle.promotion.reuse import still_answers
from trainworthy.lifecycle.promotion.trained_by_script import inexact_resume
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.figures import CANDIDATE
from trainworthy.lifecycle.protocol.latency import Latency
from trainworthy.lifecycle.protocol.records import (
    Control,
    DatasetVersion,
    EvaluationReport,
    PreflightReport,
    Record,
    Snapshot,
    StageReport,
    Step,
    Verdict,
    VerdictBody,
)
from trainworthy.lifecycle.protocol.serving import ServingFigure, to_measure_again
from trainworthy.lifecycle.provenance import commit_of, git_state, installed_version
from trainworthy.lifecycle.spec.benchmark import BenchmarkSpec, OnUnderpowered
from trainworthy.lifecycle.storage.records import record_sha256
from trainworthy.lifecycle.tasks import words_of
from trainworthy.lifecycle.use_case import UseCase
from trainworthy.resources.mlflow_model import RegisteredModel


@contextlib.contextmanager
def judgement(resources: StepResources, use_case: UseCase, run_id: str) -> Iterator[None]:
    """One judgement at a time. Ends with a failure if the run config wants one for the verdict that this run has."""
    with contextlib.ExitStack() as lease:
        try:
            held = lease.enter_context(judged_alone(resources.workspace, use_case))
        except TrainworthyError as error:
            raise StoppedError(f"{use_case.name} stopped at promotion\n{error}") from None
        resources.workspace.leases[use_case.name] = held
        yield
    verdict = resources.workspace.records.of_run(use_case.name, "promotion", run_id)
    fail_on = resources.declared.fail_on
    if isinstance(verdict, Verdict) and fails_the_run(fail_on, verdict.decision):
        raise StoppedError(f"the verdict is {verdict.decision}, and fail_on is {fail_on}")


def fails_the_run(fail_on: str, decision: str) -> bool:
    """True if the run config wants exit code 1 for this decision."""
    return decision in {"never": (), "reject": ("reject",), "shadow": ("reject", "shadow")}[fail_on]


def judge(run: StepRun) -> StepOutcome[VerdictBody]:
    """Register, collect evidence, decide; the alias moves only after the verdict is written."""
    evaluation, full = run.record("evaluation", EvaluationReport), run.record("full", StageReport)
    name = run.use_case.name
    within = budget_check(model_cost(run).usd, run.use_case.spec.budget.run_usd)
    if within.stops:
        return StepOutcome(checks=(within,), body=None)
    champion = compared = champion_of(run)
    first_model = run.declared.first_model
    if first_model and champion is not None and champion.artifact_sha256 != full.artifact_sha256:
        raise ChampionError(
            "first_model is declared, but there is a champion",
            value=f"{name} version {champion.version}",
            fix=LEAVE_FIRST_MODEL,
        )
    tell = run.context.log.info
    tell("registering the model in MLflow")
    model = run.tracking.register(
        run.tracked(), name, run.workspace.state.absolute(evaluation.artifact), evaluation.artifact_sha256,
        tags=benchmark_tags(run), contract=judged_contract(run),
        point=operating_point(run.use_case.spec.benchmark, evaluation.thresholds),
    )  # fmt: skip
    if champion is not None and champion.artifact_sha256 == model.artifact_sha256:
        # A model is never compared with itself, under whichever decision, but with what it replaced when promoted.
        compared, first_model = _replaced(run, champion)
    evidence, decides = _evidence(run, first_model, model, compared), model.decides
    decision = decide(evidence.promotion)
    held, newest = run.workspace.leases[name], log.read(verdict_log(run))
    held.check()
    body = VerdictBody(
        decision=decision.decision,
        reasons=decision.reasons,
        codes=decision.codes,
        headline=decision.headline,
        held_back_by=decision.held_back_by,
        controls=decision.controls,
        comparisons=evaluation.comparisons + tuple(filter(None, [evidence.promotion.champion_comparison])),
        slices=decision.slices,
        answers=evidence.against.answers,
        serving=evidence.serving,
        changed_limits=evidence.promotion.changed_limits,
        blind_spots=evidence.against.blind_spots,
        champion_figures=evidence.against.figures,
        earlier_champions=earlier_champions(run, model),
        model_name=name,
        model_version=model.version,
        decides=decides,
        champion=champion.version if champion else None,
        compared_with=compared.version if compared else None,
        first_model=first_model,
        evaluation_identity=evaluation.identity,
        evidence=evidence.recorded,
        measure_again=evidence.measure_again,
        binds=binds(run) | ({} if decides is None else {"decision": sha256_of(decides)}),
        step_costs=step_costs(run),
        model_cost=model_cost(run),
        previous_verdict_sha256=newest[-1].verdict_sha256 if newest else None,
    )

    def after(record: Record) -> None:
        assert isinstance(record, Verdict)
        enter(
            run, held, action=record.decision, model_version=model.version,
            verdict_sha256=record_sha256(record), previous_verdict_sha256=record.previous_verdict_sha256,
        )  # fmt: skip
        if record.decision == "promote":
            # Not what it was compared with: the champion before may be the same artifact under another decision.
            entries = log.read(verdict_log(run))
            before = predecessor(entries, artifacts_of(entries, run.workspace.records))
            move_alias(run.tracking, name, held, model.version, before.model_version if before else None)

    checks = tuple(_control_check(control) for control in decision.controls)
    return StepOutcome(checks=checks, body=body, seeds=(full.seed,), after=after)


@dataclass(frozen=True)
class Evidence:
    """What the decision is made from, and the figures behind it."""

    promotion: PromotionEvidence
    against: ChampionEvidence
    recorded: dict[str, Any]
    serving: tuple[ServingFigure, ...]
    measure_again: tuple[str, ...]


def _evidence(run: StepRun, first_model: bool, model: RegisteredModel, champion: RegisteredModel | None) -> Evidence:
    spec, full = run.use_case.spec, run.record("full", StageReport)
    evaluation, snapshot = run.record("evaluation", EvaluationReport), run.record("snapshot", Snapshot)
    dataset, preflight = run.record("dataset", DatasetVersion), run.record("preflight", PreflightReport)
    tell = run.context.log.info
    tell("loading the registered files in a fresh process: golden answers and latency")
    deployment = deployment_evidence(run, model)
    if champion is not None and deployment["loaded"]:
        tell(f"serving version {model.version} and the champion, version {champion.version}, in turns")
    serving = serving_figures(run, model, champion) if deployment["loaded"] else ()
    tell(f"training the first {full.prefix_steps} updates again: the same weights?")
    rerun_sha256 = reproducibility_evidence(run)
    if champion is not None:
        tell(f"comparing with the champion, version {champion.version}, on this benchmark")
    against = champion_evidence(run, champion)
    tell("asking whether the rows are still the published ones, by their content hash")
    commit = commit_of(run.use_case.folder)
    changed, installed = not_in_commit(run.use_case), installed_version()
    published = published_version(run.use_case.project, dataset.name, dataset.revision)
    costs = model_cost(run)
    controls = (
        dataset_control(
            published_content_hash=published.content_hash,
            found_content_hash=recomputed_content_hash(run, dataset),
            contract_passed=snapshot.passed,
            snapshot_dataset_identity=_parent_identity(run, snapshot, "dataset"),
            dataset_identity=dataset.identity,
        ),
        benchmark_control(
            windows=benchmark_windows(run, evaluation, champion),
            label_sha256=snapshot.label_sha256,
            benchmark_label_sha256=champion.tags.get("label_sha256") if champion else snapshot.label_sha256,
            # What asks a person was measured.
            evaluation_checks=[check for check in evaluation.checks if check.name not in ASK],
        ),
        cost_control(
            spent_usd=costs.usd,
            budget_usd=spec.budget.run_usd,
            forecast=preflight.cost_usd,
            actual_usd=sum(cost.usd for cost in stage_costs(run).values()),
        ),
        reproducibility_control(
            git_commit=commit,
            changed_files=changed,
            recorded_prefix_sha256=full.prefix_sha256,
            rerun_prefix_sha256=rerun_sha256,
            prefix_steps=full.prefix_steps,
            inexact_resume=made_by_several(full) or inexact_resume(run.use_case.spec.trainer, full, preflight),
            installed=installed,
        ),
        deployment_control(
            **deployment,
            latency_limit_ms=spec.benchmark.latency_ms,
            size_limit_mb=spec.benchmark.size_mb,
            serving=serving,
            ratio_limits=spec.benchmark.ratio_limits,
        ),
    )
    promotion = PromotionEvidence(
        words=words_of(evaluation),
        metric=spec.benchmark.primary.metric,
        margin=spec.benchmark.primary.margin,
        purpose=spec.promotion.purpose,
        first_model=first_model,
        champion=champion.version if champion else None,
        baselines=evaluation.comparisons,
        baseline_gains=evaluation.baseline_gains,
        champion_comparison=against.comparison,
        champion_error=against.error,
        guardrails=guardrail_results(
            spec.benchmark.guardrails, evaluation.metrics, "candidate", evaluation.calibration, _undefined(evaluation)
        ),
        slices=against.slices,
        changed_limits=limits_changed(run),
        disparities=evaluation.fairness,
        difference_limits=_difference_limits(spec.benchmark),
        protected_columns=() if spec.benchmark.fairness is None else spec.benchmark.fairness.columns,
        on_underpowered_difference=_on_underpowered(spec.benchmark),
        behaviour=evaluation.behaviour,
        behaviour_tests=spec.benchmark.behaviour,
        controls=controls,
        rolled_back=_rolled_back(run, model),
        insufficient_checks=insufficient_checks(run),
        open_questions=open_questions(run),
        accepted=accepted_inputs(run),
        window=benchmark_window(run),
    )
    recorded = {
        "deployment": deployment | {"latency": deployment["latency"] and deployment["latency"].model_dump()},
        "rerun_prefix_sha256": rerun_sha256,
        "git_commit": commit,
        "changed_files": changed,
        **({"trainworthy": installed} if installed else {}),
        **({"backfill": dataset.backfill.told} if dataset.backfill else {}),
    }
    latency: Latency | None = deployment["latency"]
    quick_enough = latency is None or latency.within(spec.benchmark.latency_ms) == "pass"
    again = {*(() if quick_enough else ("latency",)), *to_measure_again(serving)}
    return Evidence(promotion, against, recorded, serving, measure_again=tuple(sorted(again)))


def _on_underpowered(benchmark: BenchmarkSpec) -> OnUnderpowered:
    return "shadow" if benchmark.fairness is None else benchmark.fairness.on_underpowered


def _undefined(evaluation: EvaluationReport) -> dict[str, str]:
    """Why a metric of the candidate has no value, by metric, as the check of groups tells it."""
    details = [detail for check in evaluation.checks if check.name == "groups" for detail in check.details]
    return {str(detail["metric"]): str(detail["reason"]) for detail in details if detail.get("model") == CANDIDATE}


def _difference_limits(benchmark: BenchmarkSpec) -> dict[str, float]:
    """How far rates may lie apart between values of a protected column; empty where nothing is declared."""
    limits = benchmark.fairness.at_most_difference if benchmark.fairness is not None else {}
    return {str(rate): limit for rate, limit in limits.items()}


def _parent_identity(run: StepRun, record: Record, step: Step) -> str | None:
    sha256 = record.parents.get(step)
    return run.workspace.records.get(run.use_case.name, step, sha256).identity if sha256 else None


def recomputed_content_hash(run: StepRun, dataset: DatasetVersion) -> str | None:
    """The content hash of the rows as they lie there now; None if they cannot be read."""
    try:
        return content_hash(run.workspace.state.absolute(dataset.path)).sha256
    except DatasetError:
        return None


def verdict_stands(run: StepRun, record: Record) -> bool:
    """True if the log holds this verdict and nothing that it depends on has changed.

    False for a log or a champion that cannot be trusted: judging anew stops with the reason.
    """
    try:
        entries, champion = log.read(verdict_log(run)), champion_of(run)
    except TrainworthyError:
        return False
    if not isinstance(record, Verdict) or record_sha256(record) not in {entry.verdict_sha256 for entry in entries}:
        return False
    dirty = git_state(run.use_case.folder)[1]
    version = champion.version if champion else None
    of_champion = champion is not None and champion.artifact_sha256 == record.binds["model"]
    return still_answers(record, run.identity, dirty, version, run.declared.first_model, of_champion=of_champion)


def _replaced(run: StepRun, champion: RegisteredModel) -> tuple[RegisteredModel | None, bool]:
    """The champion that this one replaced, and whether it was declared to be the first, by its own verdict."""
    entries = [e for e in log.read(verdict_log(run)) if e.action == "promote" and e.model_version == champion.version]
    if not entries:
        fix = "run trainworthy on another state folder, or point the alias at a version that a verdict promoted"
        raise ChampionError("the champion was never promoted by a verdict", value=champion.version, fix=fix)
    verdict = run.workspace.records.get(run.use_case.name, "promotion", entries[-1].verdict_sha256)
    assert isinstance(verdict, Verdict)
    if verdict.compared_with is None:
        return None, verdict.first_model
    replaced = {model.version: model for model in run.tracking.versions(champion.name)}.get(verdict.compared_with)
    if replaced is None:
        problem = f"version {verdict.compared_with}, which the champion replaced, is gone from the registry"
        fix = "restore the registry from a backup: the champion is judged by what it replaced"
        raise ChampionError(problem, value=f"{champion.name} version {champion.version}", fix=fix)
    return replaced, verdict.first_model


def _rolled_back(run: StepRun, model: RegisteredModel) -> RolledBack | None:
    """The rollback that took this model off; a version whose files were lost is registered under another number.

    One from an artifact's decision to another decision of it is about the decision alone.
    """
    entries = log.read(verdict_log(run))
    versions = {known.version: known for known in run.tracking.versions(model.name)}
    for known in versions.values():
        rollback = rolled_back(entries, known.version) if known.artifact_sha256 == model.artifact_sha256 else None
        if rollback is None:
            continue
        to = versions.get(rollback.to_version)
        if to is None or to.artifact_sha256 != known.artifact_sha256 or same_point(known.tags, model.tags):
            return rollback
    return None


def _control_check(control: Control) -> CheckResult:
    """A control as a check that shows, and never stops: a rejected model is a result."""
    return CheckResult(name=control.name, status=control.status, severity="warning", evidence=control.reason)


STEP = StepWork(judge, read=committed_entry, reusable=verdict_stands, around=judgement)
