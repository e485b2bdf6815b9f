"""promote, shadow or reject: a pure function of the evidence.

Each rule gives findings: the best decision that it allows, and why. The decision is the worst of them.
Gates read the unfavourable end of an interval, never the point; what is missing or not finite rejects. A champion that
could not be scored says nothing about the candidate, so that allows shadow: not compared is not shown to be better.

rule               reject                          at most shadow                  else
control            fail, or not run                insufficient                    promote
earlier checks                                     any insufficient
accepted inputs    (tells only)
guardrail          whole interval beyond bound     unfavourable end beyond bound   promote
slice's bound      whole interval beyond bound     (its on_underpowered)           promote
slice's champion   high < -its margin              (its on_underpowered)           promote
gain over prior    high < 0                        low <= 0                        promote
gain over linear   high < -margin                  low < -margin                   promote; headline: is it better?
gradient_boosting  (tells only)
champion, improve  high < 0                        low <= 0                        promote
champion, refresh  high < -margin                  low <= -margin                  promote
champion           gain not finite                 champion not scored
no champion        unless first_model is declared                                  promote
rolled back        this model, and not since live
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from trainworthy.lifecycle.errors import ChampionError
from trainworthy.lifecycle.evaluation.comparison import not_better_than_prior, standing
from trainworthy.lifecycle.evaluation.slice_results import detectable
from trainworthy.lifecycle.promotion.evidence import CONTROLS, GuardrailResult, PromotionEvidence, usable
from trainworthy.lifecycle.promotion.history import RolledBack
from trainworthy.lifecycle.protocol.records import Comparison, Control, Estimate, SliceResult
from trainworthy.lifecycle.run_config import first_model_fix
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.spec.use_case import Guardrail, SliceSpec
from trainworthy.lifecycle.tasks.interval import groups_to_show
from trainworthy.lifecycle.wording import count, decimals_of, metric_name

Outcome = Literal["promote", "shadow", "reject"]
_WORST_FIRST: tuple[Outcome, ...] = ("reject", "shadow", "promote")
_UNDERPOWERED: dict[str, Outcome] = {"block": "reject", "shadow": "shadow", "warn": "promote"}
_NO_SPREAD = "an interval of width 0 shows that the groups are alike, as those without an event are, and no certainty"
_ALLOWED: dict[str, Outcome] = {"pass": "promote", "insufficient": "shadow", "fail": "reject"}


class Decision(Frozen):
    """The decision, its reasons (those that held the model back first) and the controls it saw.

    `headline` says beside the decision that the model is not better than the linear baseline; else empty.
    `held_back_by` are the reasons that allow less than promote, each with what it lacks; none for a promotion.
    """

    decision: Outcome
    reasons: tuple[str, ...]
    headline: str = ""
    held_back_by: tuple[str, ...]
    controls: tuple[Control, ...]


class Finding(NamedTuple):
    """The best decision that one rule allows, why, and what it lacks to allow more, where that can be told."""

    allows: Outcome
    reason: str
    lacks: str = ""

    @property
    def told(self) -> str:
        return f"{self.reason.removesuffix('.')}; {self.lacks}." if self.lacks else self.reason


def decide(evidence: PromotionEvidence) -> Decision:
    """The decision for this evidence; equal evidence gives an equal decision."""
    findings = [
        *_rolled_back(evidence.rolled_back),
        *_champion(evidence),
        *_accepted(evidence.accepted),
        *_prior(evidence),
        *_linear(evidence),
        *_gradient_boosting(evidence),
        *_guardrails(evidence.guardrails),
        *_slices(evidence),
        *_earlier_checks(evidence.insufficient_checks, evidence.open_questions),
        *_controls(evidence.controls),
    ]
    # sorted() is stable: within a decision the rules keep their order.
    findings.sort(key=lambda finding: _WORST_FIRST.index(finding.allows))
    return Decision(
        decision=findings[0].allows,
        reasons=tuple(finding.reason for finding in findings),
        headline=_headline(evidence),
        held_back_by=tuple(finding.told for finding in findings if finding.allows != "promote"),
        controls=evidence.controls,
    )


LEAVE_FIRST_MODEL = "leave first_model out of the run config: the model is compared with the champion"


def check_first_model(folder: Path, declared: bool, champion: str | None) -> None:
    """Raises ChampionError unless the run declares what the registry holds; call it before any cost.

    `folder` is the use case's own: what to do next may lie in it.
    """
    if declared and champion is not None:
        raise ChampionError(
            "first_model is declared, but there is a champion",
            value=champion,
            fix=LEAVE_FIRST_MODEL,
        )
    if not declared and champion is None:
        raise ChampionError("there is no champion to compare with", value=folder.name, fix=first_model_fix(folder))


def _champion(evidence: PromotionEvidence) -> Iterator[Finding]:
    name, comparison = evidence.champion, evidence.champion_comparison
    if evidence.first_model and (name is not None or comparison is not None):
        yield Finding("reject", f"First_model is declared, but the champion {name} exists: remove first_model.")
    if name is None:
        if evidence.first_model:
            yield Finding(
                "promote", "Declared as the first model of this use case: there is no champion, only baselines to beat."
            )
        else:
            yield Finding("reject", "There is no champion to compare with: declare first_model: true.")
        return
    if comparison is None:
        yield Finding("shadow", _not_scored(name, evidence.champion_error))
        return
    if not _measured(comparison, evidence.metric):
        yield Finding("reject", f"The gain over the champion {name} was not measured: score both on this benchmark.")
        return
    needed = 0.0 if evidence.purpose == "improve" else -evidence.margin
    rule = "to improve, the interval must lie above 0"
    if evidence.purpose == "refresh":
        rule = f"to refresh, the interval must lie above -{evidence.margin:g}"
    told = f"{_gain(comparison.gain, evidence.metric)}, against champion {name}"
    if comparison.gain.high < needed:
        yield Finding("reject", f"Worse than the champion: {told}; {rule}.")
    elif comparison.gain.low <= needed:
        means = "the interval includes 0, so the difference may be chance"
        if evidence.purpose == "refresh":
            means = f"it may be worse by the margin of {evidence.margin:g} or more"
        reason = f"Not proven good enough to replace the champion: {told}; {means}."
        yield Finding("shadow", reason, _lacks(comparison.gain, comparison.gain.value - needed))
    else:
        yield Finding("promote", f"Good enough to replace the champion: {told}; {rule}.")


def _not_scored(champion: str, error: str) -> str:
    why = f": {error}" if error else ""
    fix = "give the data what the champion needs, or go back to a champion that this data can be scored with"
    return f"The champion {champion} could not be scored on this benchmark{why}; nothing was compared: {fix}."


def _rolled_back(rolled_back: RolledBack | None) -> Iterator[Finding]:
    """What was taken off in service is not put back by the figures that it was promoted with."""
    if rolled_back is not None:
        yield Finding("reject", f"{rolled_back.told}.")


def _prior(evidence: PromotionEvidence) -> Iterator[Finding]:
    gain, title = _baseline(evidence, "prior"), evidence.words.prior
    if gain is None:
        yield Finding("reject", f"The gain over the {title} was not measured: evaluate again.")
        return
    told = _gain(gain, evidence.metric)
    if gain.high < 0:
        yield Finding("reject", f"Worse than the simplest baseline, the {title}: {told}.")
    elif gain.low <= 0:
        reason = f"Not shown to be better than the simplest baseline, the {title}: {told}."
        yield Finding("shadow", reason, _lacks(gain, gain.value))
    else:
        yield Finding("promote", f"Better than the {title}: {told}.")


def _linear(evidence: PromotionEvidence) -> Iterator[Finding]:
    gain, title = _baseline(evidence, "linear"), evidence.words.linear
    if gain is None:
        yield Finding("reject", f"The gain over {title} was not measured: evaluate again.")
        return
    told, margin = _gain(gain, evidence.metric), f"{evidence.margin:g}"
    if gain.high < -evidence.margin:
        yield Finding("reject", f"Worse than {title} by more than the margin of {margin}: {told}.")
    elif gain.low < -evidence.margin:
        reason = f"May be worse than {title} by more than the margin of {margin}: {told}."
        yield Finding("shadow", reason, _lacks(gain, gain.value + evidence.margin))
    else:
        yield Finding("promote", _compared_with(evidence, gain, "linear", told))


def _gradient_boosting(evidence: PromotionEvidence) -> Iterator[Finding]:
    if all(comparison.reference != "gradient_boosting" for comparison in evidence.baselines):
        return
    gain = _baseline(evidence, "gradient_boosting")
    if gain is None:
        yield Finding("promote", "The gain over gradient boosting was not measured.")
    else:
        told = _gain(gain, evidence.metric)
        yield Finding("promote", _compared_with(evidence, gain, "gradient_boosting", told))


def _headline(evidence: PromotionEvidence) -> str:
    """Empty where the model is better than the linear baseline, or that is itself not better than the prior."""
    gain = _baseline(evidence, "linear")
    if gain is None or gain.low > 0 or "linear" in not_better_than_prior(evidence.baseline_gains):
        return ""
    return f"{standing(gain)} {evidence.words.linear}"


def _compared_with(evidence: PromotionEvidence, gain: Estimate, name: str, told: str) -> str:
    """How the candidate stands to a simpler kind of model, by where the interval lies.

    A simpler model that is itself not shown to be better than the prior is no yardstick: how the candidate stands to it
    is not said.
    """
    title = evidence.words.reference(name)
    own = not_better_than_prior(evidence.baseline_gains).get(name)
    if own is not None:
        weak = f"{title[0].upper()}{title[1:]} is itself {standing(own)} the {evidence.words.prior}"
        return f"{weak}, so {told} over it shows nothing."
    found = standing(gain)
    simpler = "" if gain.low > 0 else ": consider the simpler model"
    return f"{found[0].upper()}{found[1:]} {title}: {told}{simpler}."


def _guardrails(results: Iterable[GuardrailResult]) -> Iterator[Finding]:
    for result in results:
        metric, estimate = metric_name(result.guardrail.metric), result.estimate
        if estimate is None or not usable(estimate):
            yield Finding("reject", f"The guardrail on {metric} was not measured: evaluate again.")
            continue
        rule, spare, hope = _distances(result.guardrail, estimate)
        told = f"{metric} {_interval(estimate)}, {rule}"
        if hope < 0:
            yield Finding("reject", f"Guardrail broken: {told}.")
        elif estimate.low == estimate.high:
            yield Finding("shadow", f"Guardrail not judged: {told}; {_NO_SPREAD}.")
        elif spare < 0:
            yield Finding("shadow", f"Guardrail not safely kept: {told}.", _lacks(estimate, (spare + hope) / 2))
        else:
            yield Finding("promote", f"Guardrail kept: {told}.")


def _slices(evidence: PromotionEvidence) -> Iterator[Finding]:
    for result in evidence.slices:
        if result.declared.bounded:
            yield _slice_bound(result)
        if result.declared.champion_margin is not None:
            yield from _slice_champion(result, evidence)


def _slice_bound(result: SliceResult) -> Finding:
    """Whether a slice keeps its bound; what its rows cannot show allows what was declared for that."""
    metric, estimate = metric_name(result.metric), result.estimate
    where = f"slice {result.slice} ({_rows(result)})"
    if estimate is None or not usable(estimate):
        return Finding(_UNDERPOWERED[result.declared.on_underpowered], f"Not measured on {where}: {_why(result)}.")
    rule, spare, hope = _distances(result.declared, estimate)
    told = f"{metric} {_interval(estimate)} on {where}, {rule}"
    if hope < 0:
        return Finding("reject", f"Bound of a slice broken: {told}.")
    # No spread at all between groups is what a few events look like as well as a sure thing.
    if spare < 0 or estimate.low == estimate.high:
        why = f"; {_NO_SPREAD}" if estimate.low == estimate.high else f"; {_detects(estimate)}"
        return Finding(
            _UNDERPOWERED[result.declared.on_underpowered],
            f"Bound of a slice not shown to be kept: {told}{why}.",
            _lacks(estimate, (spare + hope) / 2) if estimate.low < estimate.high else "",
        )
    return Finding("promote", f"Bound of a slice kept: {told}.")


def _slice_champion(result: SliceResult, evidence: PromotionEvidence) -> Iterator[Finding]:
    """Whether a slice is no worse than the champion's; without a champion nothing is asked."""
    if evidence.champion is None or evidence.champion_comparison is None:
        # No champion, or one that could not be scored, is told by the rule of the champion.
        return
    margin, gain = result.declared.champion_margin, result.gain
    assert margin is not None
    where = f"slice {result.slice} ({_rows(result)})"
    if gain is None or not usable(gain):
        yield Finding(
            _UNDERPOWERED[result.declared.on_underpowered],
            f"Not compared with the champion on {where}: {_why(result)}.",
        )
        return
    told = f"{_gain(gain, evidence.metric)}, on {where}, margin {margin:g}"
    if gain.high < -margin:
        yield Finding("reject", f"Worse than the champion on a slice by more than its margin: {told}.")
    elif gain.low <= -margin:
        yield Finding(
            _UNDERPOWERED[result.declared.on_underpowered],
            f"Not shown to be as good as the champion on a slice: {told}; {_detects(gain)}.",
            _lacks(gain, gain.value + margin),
        )
    else:
        yield Finding("promote", f"No worse than the champion on a slice: {told}.")


def _rows(result: SliceResult) -> str:
    return f"{count(result.rows)} rows"


def _why(result: SliceResult) -> str:
    return result.told.removesuffix(".") or "evaluate again"


def _detects(estimate: Estimate) -> str:
    size = detectable(estimate)
    return f"so many rows show differences from about {size:.{decimals_of(size, estimate.standard_error)}f} on"


def _distances(bound_of: Guardrail | SliceSpec, estimate: Estimate) -> tuple[str, float, float]:
    """The rule in words; the room that the unfavourable and the favourable end leave, below 0 is broken."""
    if bound_of.at_least is not None:
        bound = bound_of.at_least
        return f"at least {bound:g}", estimate.low - bound, estimate.high - bound
    assert bound_of.at_most is not None
    bound = bound_of.at_most
    return f"at most {bound:g}", bound - estimate.high, bound - estimate.low


def _controls(controls: Iterable[Control]) -> Iterator[Finding]:
    controls = tuple(controls)
    for name in CONTROLS:
        if all(control.name != name for control in controls):
            yield Finding("reject", f"Control {name} was not run.")
    for control in controls:
        allows = _ALLOWED[control.status]
        verb = {"pass": "passed", "insufficient": "could not be judged", "fail": "failed"}[control.status]
        yield Finding(allows, f"Control {control.name} {verb}: {control.reason}")


def _earlier_checks(names: tuple[str, ...], open_questions: tuple[str, ...]) -> Iterator[Finding]:
    for question in open_questions:
        yield Finding("shadow", f"{question}.")
    if names:
        yield Finding(
            "shadow", f"Earlier checks were inconclusive, which allows shadow at most: {', '.join(sorted(names))}."
        )


def _accepted(told: str) -> Iterator[Finding]:
    if told:
        yield Finding("promote", f"{told}.")


def _baseline(evidence: PromotionEvidence, name: str) -> Estimate | None:
    """The gain over a baseline; None unless it was measured exactly once on the primary metric."""
    found = [comparison for comparison in evidence.baselines if comparison.reference == name]
    return found[0].gain if len(found) == 1 and _measured(found[0], evidence.metric) else None


def _measured(comparison: Comparison, metric: str) -> bool:
    return comparison.metric == metric and usable(comparison.gain)


def _gain(gain: Estimate, metric: str) -> str:
    return f"{metric_name(metric)} gain {_interval(gain, sign='+')}, {gain.groups} groups"


def _interval(estimate: Estimate, sign: Literal["", "+"] = "") -> str:
    form = f"{sign},.{decimals_of(estimate.value, estimate.standard_error)}f"
    return f"{estimate.value:{form}} [{estimate.low:{form}}, {estimate.high:{form}}]"


def _lacks(estimate: Estimate, spare: float) -> str:
    """What would show that a bound is kept; `spare` is the room between the value and it, below 0 is missed."""
    groups = groups_to_show(estimate, spare)
    if groups is None:
        return "as measured, a better model is needed, not more rows"
    return f"if the value holds, about {count(groups)} groups would show that it suffices"
