"""promote, shadow or reject: a pure function of the evidence.

Each rule gives findings: the best decision that it allows, and why. The decision is the worst of them.
Gates read the unfavourable end of an interval, never the point; what is missing or not finite rejects. A gain whose
interval has no width allows shadow: groups that are all alike do not say how far the next one may lie. A champion that
could not be scored says nothing about the candidate, so that allows shadow: not compared is not shown to be better.

rule               reject                          at most shadow                  else
control            fail, or not run                insufficient                    promote
earlier checks                                     any insufficient
accepted inputs    (tells only)
changed limits     (tells only)
guardrail          whole interval beyond bound     unfavourable end beyond bound   promote
limit of fairness  a pair surely beyond it         (its on_underpowered)           promote
test of behaviour  whole interval beyond limit     high > limit, or not measured   promote
slice's bound      whole interval beyond bound     (its on_underpowered)           promote
slice's champion   high < -its margin              (its on_underpowered)           promote
gain over prior    high < 0                        low <= 0                        promote
gain over linear   high < -margin                  low < -margin                   promote; headline: is it better?
gradient_boosting  (tells only)                                                    headline: high < -margin?
spread of seeds                                    not known of some that trained
champion, improve  high < 0                        low <= 0                        promote
champion, refresh  high < -margin                  low <= -margin                  promote
champion           gain not finite                 champion not scored
no champion        unless first_model is declared                                  promote
rolled back        this model, and not since live
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from trainworthy.lifecycle.errors import ChampionError
from trainworthy.lifecycle.evaluation.comparison import not_better_than_prior, standing
from trainworthy.lifecycle.promotion.evidence import CONTROLS, GuardrailResult, PromotionEvidence, usable
from trainworthy.lifecycle.promotion.finding import (
    NO_SPREAD,
    Finding,
    Ruling,
    gain_in_words,
    interval_in_words,
    lacking,
    lacking_of,
    room,
)
from trainworthy.lifecycle.promotion.history import RolledBack
from trainworthy.lifecycle.promotion.limit_rules import (
    behaviour_findings,
    fairness_findings,
    judged_slice,
    slice_findings,
)
from trainworthy.lifecycle.protocol.figures import Comparison, Estimate, SliceResult
from trainworthy.lifecycle.protocol.records import Control
from trainworthy.lifecycle.protocol.suite import ChangedLimit
from trainworthy.lifecycle.run_config import first_model_fix
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.tasks.interval import rows_and_room
from trainworthy.lifecycle.wording import metric_name

_WORST_FIRST: tuple[Ruling, ...] = ("reject", "shadow", "promote")
_ALLOWED: dict[str, Ruling] = {"pass": "promote", "insufficient": "shadow", "fail": "reject"}


class Decision(Frozen):
    """The decision, its reasons (those that held the model back first) and the controls it saw.

    `headline` says beside the decision that the model is not better than the linear baseline, or worse than gradient
    boosting by more than the margin, unless something else alone held it back; else empty.
    `codes` are those of the reasons, in their order: a rule, and how it stands.
    `held_back_by` are the reasons that allow less than promote, each with what it lacks; none for a promotion. `slices`
    say how each stands to what is declared for it.
    """

    decision: Ruling
    reasons: tuple[str, ...]
    codes: tuple[str, ...]
    headline: str = ""
    held_back_by: tuple[str, ...]
    controls: tuple[Control, ...]
    slices: tuple[SliceResult, ...] = ()


def decide(evidence: PromotionEvidence) -> Decision:
    """The decision for this evidence; equal evidence gives an equal decision."""
    slices = tuple(judged_slice(result, evidence) for result in evidence.slices)
    findings = [
        *_rolled_back(evidence.rolled_back),
        *_open_questions(evidence.open_questions),
        *_champion(evidence),
        *_accepted(evidence.accepted),
        *_changed_limits(evidence.changed_limits),
        *_prior(evidence),
        *_linear(evidence),
        *_gradient_boosting(evidence),
        *_seeds(evidence),
        *_guardrails(evidence.guardrails),
        *slice_findings(slices, evidence.metric),
        *fairness_findings(
            evidence.disparities,
            evidence.difference_limits,
            evidence.protected_columns,
            evidence.on_underpowered_difference,
        ),
        *behaviour_findings(evidence.behaviour, evidence.behaviour_tests),
        *_earlier_checks(evidence.insufficient_checks),
        *_controls(evidence.controls),
    ]
    # sorted() is stable: within a decision the rules keep their order.
    findings.sort(key=lambda finding: _WORST_FIRST.index(finding.allows))
    decision = findings[0].allows
    # Beside a rejection or a shadow for another reason it would read as that reason.
    says_why = decision == "promote" or any(finding.allows == decision for finding in _linear(evidence))
    return Decision(
        decision=decision,
        reasons=tuple(finding.reason for finding in findings),
        codes=tuple(finding.code for finding in findings),
        headline=_headline(evidence) if says_why else "",
        held_back_by=tuple(
            finding.in_words(evidence.window, decision) for finding in findings if finding.allows != "promote"
        ),
        controls=evidence.controls,
        slices=slices,
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
        yield Finding(
            "reject", "champion.exists", f"First_model is declared, but the champion {name} exists: remove first_model."
        )
    if name is None:
        if evidence.first_model:
            yield Finding(
                "promote",
                "champion.first",
                "Declared as the first model of this use case: there is no champion, only baselines to beat. "
                f"The next candidate {_asked_of_a_successor(evidence)}.",
            )
        else:
            yield Finding(
                "reject", "champion.missing", "There is no champion to compare with: declare first_model: true."
            )
        return
    if comparison is None:
        yield Finding("shadow", "champion.not_scored", _not_scored(name, evidence.champion_error))
        return
    if not _measured(comparison, evidence.metric):
        yield Finding(
            "reject",
            "champion.not_measured",
            f"The gain over the champion {name} was not measured: score both on this benchmark.",
        )
        return
    needed = 0.0 if evidence.purpose == "improve" else -evidence.margin
    rule = "to improve, the interval must lie above 0"
    if evidence.purpose == "refresh":
        rule = f"to refresh, the interval must lie above -{evidence.margin:g}"
    gain_text = f"{gain_in_words(comparison.gain, evidence.metric)}, against champion {name}"
    if not comparison.gain.has_width:
        yield Finding("shadow", "champion.without_spread", f"Not compared with the champion: {gain_text}; {NO_SPREAD}.")
    elif comparison.by_rows.high < needed:
        # What the seeds leave open is whether the recipe is better; the model at hand is worse by its rows.
        yield Finding(
            "reject",
            "champion.worse",
            f"Worse than the champion: {_by_rows(comparison)}, against champion {name}; {rule}.",
        )
    elif comparison.gain.low <= needed:
        means = "the interval includes 0, so the difference may be chance"
        if evidence.purpose == "refresh":
            means = f"it may be worse by the margin of {evidence.margin:g} or more"
        why = f"every model after the first {_asked_of_a_successor(evidence)}"
        reason = f"Not proven good enough to replace the champion ({why}): {gain_text}; {means}."
        yield Finding(
            "shadow", "champion.not_shown", reason, lacking(*rows_and_room(comparison, comparison.gain.value - needed))
        )
    else:
        yield Finding("promote", "champion.good_enough", f"Good enough to replace the champion: {gain_text}; {rule}.")


def _asked_of_a_successor(evidence: PromotionEvidence) -> str:
    """The rule that a candidate beside a champion has to keep, which a first model is not asked."""
    if evidence.purpose == "improve":
        return "has to beat the champion as well (promotion.purpose: improve)"
    return f"must not be worse than the champion by {evidence.margin:g} or more (promotion.purpose: refresh)"


def _by_rows(comparison: Comparison) -> str:
    return gain_in_words(comparison.by_rows, comparison.metric)


def _not_scored(champion: str, error: str) -> str:
    why = f": {error}" if error else ""
    fix = "give the data what the champion needs, or go back to a champion that this data can be scored with"
    return f"The champion {champion} could not be scored on this benchmark{why}; nothing was compared: {fix}."


def _rolled_back(rolled_back: RolledBack | None) -> Iterator[Finding]:
    """What was taken off in service is not put back by the figures that it was promoted with."""
    if rolled_back is not None:
        yield Finding("reject", "model.rolled_back", f"{rolled_back.sentence}.")


def _prior(evidence: PromotionEvidence) -> Iterator[Finding]:
    measured, title = _baseline(evidence, "prior"), evidence.words.prior
    if measured is None:
        yield Finding("reject", "prior.not_measured", f"The gain over the {title} was not measured: evaluate again.")
        return
    gain = measured.gain
    gain_text = gain_in_words(gain, evidence.metric)
    if not gain.has_width:
        yield Finding(
            "shadow",
            "prior.without_spread",
            f"Not compared with the simplest baseline, the {title}: {gain_text}; {NO_SPREAD}.",
        )
    elif measured.by_rows.high < 0:
        yield Finding("reject", "prior.worse", f"Worse than the simplest baseline, the {title}: {_by_rows(measured)}.")
    elif gain.low <= 0:
        reason = f"Not shown to be better than the simplest baseline, the {title}: {gain_text}."
        yield Finding("shadow", "prior.not_shown", reason, lacking(*rows_and_room(measured, gain.value)))
    else:
        yield Finding("promote", "prior.better", f"Better than the {title}: {gain_text}.")


def _linear(evidence: PromotionEvidence) -> Iterator[Finding]:
    measured, title = _baseline(evidence, "linear"), evidence.words.linear
    if measured is None:
        yield Finding("reject", "linear.not_measured", f"The gain over {title} was not measured: evaluate again.")
        return
    gain = measured.gain
    gain_text, margin = gain_in_words(gain, evidence.metric), f"{evidence.margin:g}"
    if not gain.has_width:
        yield Finding("shadow", "linear.without_spread", f"Not compared with {title}: {gain_text}; {NO_SPREAD}.")
    elif measured.by_rows.high < -evidence.margin:
        reason = f"Worse than {title} by more than the margin of {margin}: {_by_rows(measured)}."
        yield Finding("reject", "linear.worse", reason)
    elif gain.low < -evidence.margin:
        reason = f"May be worse than {title} by more than the margin of {margin}: {gain_text}."
        yield Finding(
            "shadow", "linear.not_shown", reason, lacking(*rows_and_room(measured, gain.value + evidence.margin))
        )
    else:
        yield Finding("promote", "linear.compared", _compared_with(evidence, gain, "linear", gain_text))


def _gradient_boosting(evidence: PromotionEvidence) -> Iterator[Finding]:
    if all(comparison.reference != "gradient_boosting" for comparison in evidence.baselines):
        return
    measured = _baseline(evidence, "gradient_boosting")
    if measured is None:
        yield Finding("promote", "gradient_boosting.not_measured", "The gain over gradient boosting was not measured.")
    else:
        gain_text = gain_in_words(measured.gain, evidence.metric)
        reason = _compared_with(evidence, measured.gain, "gradient_boosting", gain_text)
        if measured.gain.shows_loss:
            yield Finding("promote", "gradient_boosting.worse", reason)
        else:
            yield Finding("promote", "gradient_boosting.compared", reason)


def _seeds(evidence: PromotionEvidence) -> Iterator[Finding]:
    """Seeds whose spread is not known: a gain that may be one seed's is not shown to be the recipe's."""
    gains = (*evidence.baselines, *filter(None, [evidence.champion_comparison]))
    unknown = {
        comparison.seeds.told: comparison.seeds
        for comparison in gains
        if comparison.seeds is not None and comparison.seeds.sd is None
    }
    for reason, spread in unknown.items():
        fix = "train full again, or take a metric of the task's kind that asks for no decision"
        yield Finding(
            "shadow",
            "seeds.unknown_spread",
            f"The spread between {spread.seeds} seeds is in no interval of a gain: {reason}; {fix}.",
        )


def _headline(evidence: PromotionEvidence) -> str:
    """How it stands to the simpler models that it ought to beat; a simpler model that is not shown to be better than
    the prior is no yardstick."""
    no_yardstick, said = not_better_than_prior(evidence.baseline_gains), []
    measured = _baseline(evidence, "linear")
    if measured is not None and not measured.gain.shows_gain and "linear" not in no_yardstick:
        said.append(f"{standing(measured.gain)} {evidence.words.linear}")
    boosted = _baseline(evidence, "gradient_boosting")
    if boosted is not None and boosted.by_rows.high < -evidence.margin and "gradient_boosting" not in no_yardstick:
        said.append(f"worse than {evidence.words.reference('gradient_boosting')}")
    return " and ".join(said)


def _compared_with(evidence: PromotionEvidence, gain: Estimate, name: str, gain_text: str) -> str:
    """How the candidate stands to a simpler kind of model, by where the interval lies.

    A simpler model that is itself not shown to be better than the prior is no yardstick: how the candidate stands to it
    is not said.
    """
    title = evidence.words.reference(name)
    own = not_better_than_prior(evidence.baseline_gains).get(name)
    if own is not None:
        weak = f"{title[0].upper()}{title[1:]} is itself {standing(own)} the {evidence.words.prior}"
        return f"{weak}, so {gain_text} over it shows nothing."
    stands = standing(gain)
    simpler = "" if gain.shows_gain else ": consider the simpler model"
    return f"{stands[0].upper()}{stands[1:]} {title}: {gain_text}{simpler}."


def _guardrails(results: Iterable[GuardrailResult]) -> Iterator[Finding]:
    for result in results:
        metric, estimate = metric_name(result.measured), result.estimate
        if estimate is None or not usable(estimate):
            why = f" ({result.reason})" if result.reason else ""
            yield Finding(
                "reject", "guardrail.not_measured", f"The guardrail on {metric} was not measured{why}: {result.fix}."
            )
            continue
        rule, spare, hope = room(result.guardrail, estimate)
        measured = f"{metric} {interval_in_words(estimate)}, {rule}"
        if hope < 0:
            yield Finding("reject", "guardrail.broken", f"Guardrail broken: {measured}.")
        elif not estimate.has_width:
            yield Finding("shadow", "guardrail.without_spread", f"Guardrail not judged: {measured}; {NO_SPREAD}.")
        elif spare < 0:
            lacks = lacking_of(result.guardrail, estimate)
            yield Finding("shadow", "guardrail.not_shown", f"Guardrail not safely kept: {measured}.", lacks)
        else:
            yield Finding("promote", "guardrail.kept", f"Guardrail kept: {measured}.")


def _controls(controls: Iterable[Control]) -> Iterator[Finding]:
    controls = tuple(controls)
    for name in CONTROLS:
        if all(control.name != name for control in controls):
            yield Finding("reject", f"control.{name}.missing", f"Control {name} was not run.")
    for control in controls:
        allows = _ALLOWED[control.status]
        verb = {"pass": "passed", "insufficient": "could not be judged", "fail": "failed"}[control.status]
        yield Finding(
            allows, f"control.{control.name}.{control.status}", f"Control {control.name} {verb}: {control.reason}"
        )


def _open_questions(questions: tuple[str, ...]) -> Iterator[Finding]:
    """First of what holds a model back: an answer may explain the rest."""
    for question in questions:
        yield Finding("shadow", "checks.open_question", f"{question[0].upper()}{question[1:]}.")


def _earlier_checks(names: tuple[str, ...]) -> Iterator[Finding]:
    if names:
        yield Finding(
            "shadow",
            "checks.insufficient",
            f"Earlier checks were inconclusive, which allows shadow at most: {', '.join(sorted(names))}.",
        )


def _accepted(accepted: str) -> Iterator[Finding]:
    if accepted:
        yield Finding("promote", "checks.accepted_warnings", f"{accepted}.")


def _changed_limits(changes: Iterable[ChangedLimit]) -> Iterator[Finding]:
    """A limit that was moved is told, with who moved it; what it allows is its own rule's to say."""
    for change in changes:
        by = f" ({change.by})" if change.by else ""
        yield Finding(
            "promote",
            "limits.changed",
            f"Changed since the last verdict: {change.key}, {_declared(change.before)} before, now "
            f"{_declared(change.now)}{by}.",
        )


def _declared(value: str) -> str:
    return "not declared" if value == "null" else value


def _baseline(evidence: PromotionEvidence, name: str) -> Comparison | None:
    """The comparison with a baseline; None unless it was measured exactly once on the primary metric."""
    matches = [comparison for comparison in evidence.baselines if comparison.reference == name]
    return matches[0] if len(matches) == 1 and _measured(matches[0], evidence.metric) else None


def _measured(comparison: Comparison, metric: str) -> bool:
    return comparison.metric == metric and usable(comparison.gain)
