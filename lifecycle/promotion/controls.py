"""The five controls: what must hold besides the model's figures before it may ship.

Each takes plain values and gives one Control. A control fails if anything it saw is wrong; it is
insufficient if nothing is wrong but something was not measured; only then does it pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from trainworthy.lifecycle.protocol.checks import CheckResult, at_most
from trainworthy.lifecycle.protocol.latency import Latency
from trainworthy.lifecycle.protocol.records import Control, Forecast
from trainworthy.lifecycle.protocol.serving import ServingFigure
from trainworthy.lifecycle.provenance import uncommitted

if TYPE_CHECKING:
    Finding = tuple[Literal["pass", "fail", "insufficient"], str]


# Of two answers to one request. The same graph on the same machine: only the batch size may differ.
ANSWER_TOLERANCE = 1e-5


def dataset_control(
    *,
    published_content_hash: str | None,
    found_content_hash: str | None,
    contract_passed: bool | None,
    snapshot_dataset_identity: str | None,
    dataset_identity: str | None,
) -> Control:
    """The bytes are the published ones, the contract passed, and the snapshot was made from this dataset.

    `published_content_hash` is declared for the version, `found_content_hash` recomputed from its rows;
    `snapshot_dataset_identity` is that of the parent which the snapshot's record names. Records of one identity may be
    several: two equal runs at once make one each, and a dataset whose files were lost is made again.
    """
    return _control(
        "dataset",
        "the rows are the published ones, keep the contract and are those of the snapshot.",
        _equal("content hash of the dataset", published_content_hash, found_content_hash),
        _true("contract", contract_passed, "the contract is broken: see the snapshot's checks"),
        _equal("dataset that the snapshot names", snapshot_dataset_identity, dataset_identity),
    )


def benchmark_control(
    *,
    windows: Iterable[CheckResult],
    label_sha256: str | None,
    benchmark_label_sha256: str | None,
    evaluation_checks: Iterable[CheckResult],
) -> Control:
    """The benchmark is apart from all that both models saw, has the same label, and was scored validly.

    `windows` tell whether it is apart from what each model saw: the candidate, and the champion if there is one.
    """
    windows = tuple(windows)
    window_problems = (
        [check.evidence for check in windows if check.status != "pass"] if windows else ["nothing to compare"]
    )
    checks = tuple(evaluation_checks)
    bad = [check.name for check in checks if check.status in ("fail", "error") and check.severity == "error"]
    unmeasured = [check.name for check in checks if check.status == "insufficient" and check.severity == "error"]
    if bad:
        scored: Finding = ("fail", f"evaluation checks failed: {', '.join(bad)}")
    elif unmeasured or not checks:
        scored = ("insufficient", f"evaluation checks were not measured: {', '.join(unmeasured) or 'none ran'}")
    else:
        scored = ("pass", "")
    return _control(
        "benchmark",
        "none of its rows is one that the models were trained on, same label definition, and the scores are valid.",
        ("fail" if window_problems else "pass", f"window: {'; '.join(window_problems)}"),
        _equal("label definition", benchmark_label_sha256, label_sha256),
        scored,
    )


def cost_control(*, spent_usd: float, budget_usd: float, forecast: Forecast | None, actual_usd: float) -> Control:
    """The model's cost was forecast before it was spent.

    `spent_usd` is what the model cost until it is judged, `actual_usd` the part that the forecast was about. A cost
    above the forecast's high passes and is told: the budget is what was agreed, and budget_check has held it by now.
    """
    spent = f"until it was judged the model cost {_dollars(spent_usd, budget_usd)} of the budget of "
    spent += _dollars(budget_usd, spent_usd)
    if forecast is None:
        return _control("cost", "", ("insufficient", f"{spent}; nothing was forecast: run preflight"))
    actual, most = _dollars(actual_usd, forecast.high), _dollars(forecast.high, actual_usd)
    spent += f"; its training, which preflight forecast at {most} at most, cost {actual}"
    return _control("cost", f"{spent}: the forecast was too low." if actual_usd > forecast.high else f"{spent}.")


def _dollars(amount: float, other: float) -> str:
    """An amount with enough decimals to differ from `other` in print, four at least."""
    difference = abs(amount - other)
    return f"{amount:.{min(max(4, 1 - math.floor(math.log10(difference))), 9) if difference else 4}f} USD"


def budget_check(spent_usd: float, budget_usd: float) -> CheckResult:
    """Stops the run before it judges a model that cost more than its budget.

    Money follows the wall clock, and so what else the machine did: it ends a run, and says nothing about a model.
    """
    return at_most(
        "cost",
        spent_usd,
        budget_usd,
        evidence=f"the model cost {spent_usd:.4f} USD, more than its budget of {budget_usd:.4f} USD; it was not judged",
        fix="raise budget.run_usd and run the same command again: what was trained is reused, and then judged",
    )


# The rerun has a process of its own; two of preflight's trainings, which were equal, share one.
OTHER_PROCESS = (
    "something in the use case differs from process to process, such as hash() of a text, the order of a set, the "
    "clock, or numbers drawn without a seed; where to_tensors uses it, the model that is served answers otherwise, too"
)


def reproducibility_control(
    *,
    git_commit: str | None,
    changed_files: Sequence[str] | None,
    recorded_prefix_sha256: str | None,
    rerun_prefix_sha256: str | None,
    prefix_steps: int,
    inexact_resume: str = "",
    installed: str | None = None,
) -> Control:
    """The code and the dataset's entry are a commit's, and a rerun of the first updates gave the same parameters.

    `changed_files` names what is not; None if something lies in no git repository. `prefix_steps` updates were rerun.
    `installed` is the version of an installed Trainworthy, whose files are held against what was installed.
    `inexact_resume` says why an uninterrupted training may have ended otherwise; empty if it would not.
    """
    not_committed = uncommitted(git_commit, changed_files, installed)
    code: Finding = ("insufficient" if not_committed else "pass", not_committed)
    steps: Finding = ("pass" if prefix_steps > 0 else "insufficient", "no step was run again")
    by = f"commit {(git_commit or '')[:12]}" + (f", {installed}" if installed else "")
    return _control(
        "reproducibility",
        f"{by}; the first {prefix_steps} steps gave the same parameters again.",
        code,
        _with_hint(
            _equal(f"parameters after {prefix_steps} steps", recorded_prefix_sha256, rerun_prefix_sha256), OTHER_PROCESS
        ),
        steps,
        ("insufficient" if inexact_resume else "pass", inexact_resume),
    )


def deployment_control(
    *,
    loaded: bool | None,
    rows_compared: int,
    difference: float | None,
    golden_difference: float | None,
    tolerance: float,
    latency: Latency | None,
    latency_limit_ms: float,
    size_mb: float | None,
    size_limit_mb: float,
    serving: Sequence[ServingFigure] = (),
    ratio_limits: Mapping[str, float] | None = None,
) -> Control:
    """The shipped artifact loads in a fresh process, answers as evaluated, and is quick and small enough.

    `difference` is the largest difference of answers, as a share of their scale (largest_difference), over
    `rows_compared` rows, `golden_difference` that over the artifact's own golden requests, by which it
    would be verified if it were rolled back to. `serving` holds it against the champion, if there is one,
    and `ratio_limits` are what is declared for that.
    """
    rows: Finding = ("pass" if rows_compared > 0 else "insufficient", "no answers were compared")
    return _control(
        "deployment",
        f"loaded in a new process, the saved model gave the same {rows_compared} predictions (largest difference "
        f"{_figure(difference)}); latency {latency.told if latency else '?'} (limit {latency_limit_ms:g} ms), "
        f"size {_figure(size_mb)} MB (limit {size_limit_mb:g}).{_serving_text(serving, ratio_limits)}",
        _true("loading in a fresh process", loaded, "the artifact does not load in a fresh process"),
        rows,
        _within("difference of answers", difference, tolerance),
        _within("difference of golden answers", golden_difference, tolerance),
        _quick_enough(latency, latency_limit_ms),
        _within("size in MB", size_mb, size_limit_mb),
        *(_beside_champion(figure) for figure in serving),
    )


def _control(name: str, passed: str, *findings: Finding) -> Control:
    """The worst finding decides; the reason holds all that are not a pass, the worst first."""
    by_status = {
        status: [why for finding_status, why in findings if finding_status == status]
        for status in ("fail", "insufficient")
    }
    reasons = by_status["fail"] + by_status["insufficient"]
    if not reasons:
        return Control(name=name, status="pass", reason=passed)
    return Control(name=name, status="fail" if by_status["fail"] else "insufficient", reason=f"{'; '.join(reasons)}.")


def _equal(what: str, declared: str | None, measured: str | None) -> Finding:
    if not declared or not measured:
        return "insufficient", f"{what}: not measured"
    return "pass" if declared == measured else "fail", f"{what}: {measured[:12]} instead of {declared[:12]}"


def _with_hint(finding: Finding, hint: str) -> Finding:
    """The finding; if it is a failure, with what to look for."""
    status, reason = finding
    return (status, f"{reason}: {hint}") if status == "fail" else finding


def _true(what: str, value: bool | None, problem: str) -> Finding:
    if value is None:
        return "insufficient", f"{what}: not measured"
    return "pass" if value else "fail", problem


def _within(what: str, value: float | None, limit: float) -> Finding:
    if value is None:
        return "insufficient", f"{what}: not measured"
    # A NaN on either side is not <=, so it fails.
    return "pass" if 0 <= value <= limit else "fail", f"{what}: {value:g}, allowed {limit:g}"


def _quick_enough(latency: Latency | None, limit_ms: float) -> Finding:
    if latency is None:
        return "insufficient", "latency: not measured"
    status, reason = latency.within(limit_ms), f"latency: {latency.told}, allowed {limit_ms:g} ms"
    if status == "insufficient":
        reason += (
            f"; measured {latency.rounds} times beside other work, which leaves {latency.least_ms:.3g} to "
            f"{latency.most_ms:.3g} ms: run the same command again while the machine has less to do"
        )
    return status, reason


def _serving_text(serving: Sequence[ServingFigure], limits: Mapping[str, float] | None) -> str:
    if serving:
        return f" Beside the champion: {'; '.join(figure.in_words for figure in serving)}."
    return " benchmark.at_most_champion asks nothing: there is no champion." if limits else ""


def _beside_champion(figure: ServingFigure) -> Finding:
    reason, status = figure.in_words, figure.standing
    if status == "not_asked":
        return "pass", reason
    if status == "insufficient" and figure.busy:
        reason += (
            f"; other work took part of the time in {figure.busy} of {figure.rounds} rounds: run the same command "
            "again while the machine has less to do"
        )
    return status, reason


def _figure(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}"
