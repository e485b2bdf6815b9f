"""The check `references`: has the network learned something, and what would references of the same rows have?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trainworthy.lifecycle.gates.curve_parts import curve_parts
from trainworthy.lifecycle.gates.stage_words import fix_of
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.protocol.results import LINEAR, Arm, Progress, References
from trainworthy.lifecycle.protocol.training_figures import CurvePoint
from trainworthy.lifecycle.protocol.words import Words
from trainworthy.lifecycle.wording import figures

# Measured on flights, validation months March to December: healthy networks rise by 0.044 to 0.104,
# shuffled labels by -0.003 to 0.007, logistic regression by about as much as the network.
SHARE_OF_LINEAR = 0.25
# What a rise must be at least, as a share of the loss of the best constant answer: on flights 0.02 × 0.5 nats = 0.01.
SMALLEST_SHARE = 0.02
# Of the training label prior's loss on the validation rows. Measured on flights in November: healthy 0.84, learning
# rate × 100 1.62, × 1000 5.0; in a month whose base rate moved a healthy network lay a little above 1.
MOST_OF_PRIOR = 1.25
# Of the way from the first weights' loss to the prior's. Diverged networks end above where they began; answers in
# another unit than the labels stay where they are.
WAY_SO_FAR = 0.25
# Below this share of the prior's loss a network knows something without having moved: it was trained before.
TRAINED_BEFORE = 0.98
# From so many updates on, a network that finds nothing where a regression of the same rows does is at fault.
# Healthy pilots with 6 % positives had found nothing after 24 updates, and something after 72.
ENOUGH_UPDATES = 72
# Of the loss at the first weights: what a training that learns lowers it by. A rise counts a gain about twice.
SMALLEST_FALL = SMALLEST_SHARE / 2
# Of what there is to explain: how much more of it than the network a reference must explain to be told of. Measured by
# benchmarks/references.py: healthy networks lay at 0.09 at most (rare positives, 300 rows), on flights below 0.01, but
# for a table that suits trees alone (0.10 and 0.16); those with a planted fault that had learned something lay at 0.12
# to 0.54.
FAR_SHARE = 0.10
# Codes of a network that has learned something: less than a reference, or its own rows by heart as well.
LEARNED_LESS, BY_HEART = frozenset({"less", "less_inputs"}), "by_heart"
LEARNED = LEARNED_LESS | {BY_HEART}
NAME = "references"
# How many standard errors the progressive loss must fall by to count as moved.
FALL_STANDARD_ERRORS = 3.0


def references_check(
    references: References | None,
    progress: Progress | None,
    device: str,
    curve: Sequence[CurvePoint],
    stage: str = "pilot",
) -> CheckResult:
    """Passes if the network's predictions carry information within a group, by size and significance.

    An untrained network ranks a little by luck, so the training must have lowered its own loss too, or the network must
    have known something before. Else rows and updates decide. It fails if as many validation rows show something to a
    reference and the stage's rows do not, whatever the network did; if the loss rose, or would not move in the whole
    training either; if what it shows on validation rows is not seen on those that it learned from; if ENOUGH_UPDATES
    of a later stage than smoke found nothing that the linear model finds in as many rows, or any left the loss far
    above the prior's; or if the rows show measurably nothing. Otherwise it is insufficient, and the next stage asks
    again; smoke fails of no update before there were ENOUGH_UPDATES.

    The pilot warns of a network that has learned something and is measurably worse than a reference of the same rows;
    it and full warn of one that knows its rows by heart. Neither is a training that failed: with more rows, or
    calibrated, the same network may be a good one.
    """
    if references is None:
        return CheckResult(
            name=NAME, status="insufficient", required=True, device=device, evidence="not measured",
            fix=fix_of(NAME, "ended"),
        )  # fmt: skip
    facts = _StageFacts(references, progress, _moved(progress, curve, stage), curve[-1].step if curve else 0, stage)
    verdict = _judged(facts)
    fix = f"{verdict.fix}; {LATER[stage]}" if verdict.code == "more" and stage in LATER else verdict.fix
    evidence = "; ".join([*[verdict.why] * bool(verdict.why), *_arms(references)])
    # A rise that is large enough is not what the check failed of.
    threshold = _threshold(references)
    by_rise = verdict.status == "pass" or not references.network.value >= threshold
    # What smoke's few rows leave open, the pilot is asked, and is no question of the verdict.
    warns = verdict.code in LEARNED or (verdict.status == "insufficient" and stage == "smoke")
    observed, limit = references.network.value, threshold if by_rise else None
    if verdict.code in LEARNED_LESS:
        observed, limit = verdict.share, FAR_SHARE
    if verdict.code == BY_HEART:
        observed, limit = references.network_loss, MOST_OF_PRIOR * references.prior_loss
    return CheckResult(
        name=NAME, status=verdict.status, severity="warning" if warns else "error", device=device, observed=observed,
        threshold=limit, evidence=evidence, fix=fix, code=verdict.code,
    )  # fmt: skip


# What a training did to its own loss; "little" is too few updates to tell.
Moved = Literal["fell", "little", "not", "rose"]
Status = Literal["pass", "fail", "insufficient"]
LATER = {"smoke": "the pilot asks again", "pilot": "full asks again"}


@dataclass(frozen=True)
class _StageFacts:
    """What is known of a stage when its check is asked."""

    references: References
    progress: Progress | None
    moved: Moved
    updates: int
    stage: str

    @property
    def enough(self) -> bool:
        return self.updates >= ENOUGH_UPDATES


@dataclass(frozen=True)
class _Verdict:
    """A status, why, and which of the check's fixes, none if it passes; how far the network lies behind a reference."""

    status: Status
    code: str = ""
    why: str = ""
    share: float = 0.0

    @property
    def fix(self) -> str:
        return fix_of(NAME, self.code) if self.code else ""


def _judged(facts: _StageFacts) -> _Verdict:
    references, network = facts.references, facts.references.network
    threshold = _threshold(references)
    linear = _linear(references).rise
    if not math.isfinite(references.network_loss + network.value + linear.value):
        return _Verdict("fail", "network", f"the network's loss on the validation rows is {references.network_loss}")
    return (
        _of_rows(references)
        or _of_updates(facts)
        or _of_what_it_shows(facts, threshold)
        or _of_too_little(facts, threshold)
    )


def _of_updates(facts: _StageFacts) -> _Verdict | None:
    """What the training did to its loss, where that alone tells."""
    references, progress, moved = facts.references, facts.progress, facts.moved
    wild = _wild(references) and not _by_heart(facts)
    if wild and _own_rows_are_well(references) and moved == "fell" and _linear_is_wild(references):
        return _Verdict("fail", "shift", _of_another_kind(references))
    if wild and moved == "fell" and _on_its_way(references, progress):
        return _Verdict("insufficient", _nearer(references), _still_far(references, progress))
    stayed = moved == "not" and _stayed(references, progress)
    failed: Status = "fail" if facts.enough or facts.stage != "smoke" else "insufficient"
    if moved == "rose" or (wild and not stayed and (moved == "not" or facts.enough)):
        return _Verdict(failed, _in_inputs(facts) or "diverged", _diverged(references, progress))
    if moved == "not" and not _knew(references, progress):
        return _Verdict(failed, _in_inputs(facts) or "unmoved", _unmoved(references, progress))
    return None


def _nearer(references: References) -> str:
    """The fix of answers that begin far off: only numbers have a mean and a spread to begin at."""
    words = references.words
    if not words.unit:
        return "nearer"
    if words.constant == Words().constant:
        return "nearer_event"
    return "nearer_labels" if words.constant.endswith("each label") else "nearer_classes"


def _of_rows(references: References) -> _Verdict | None:
    """As many validation rows show something to a reference, and the stage's rows do not."""
    for there in references.arms:
        fitted = references.arm(there.reference, "stage", there.inputs)
        if there.fitted_on != "validation" or fitted is None or fitted.draws == 1 or there.rise.low <= 0:
            continue
        if fitted.rise.high < there.rise.low and fitted.rise.value < _least(references, there):
            name = references.words.reference(there.reference)
            why = f"{name} learns nothing from the stage's rows, and does from as many validation rows"
            rise = fitted.of_itself
            # Size decides: shuffled labels reach a small significant rise of each other as well.
            if rise is None or rise.low <= 0 or rise.value < _least(references, there):
                return _Verdict("fail", "rows", why)
            itself = f"of each other the stage's rows tell something ({_rise(rise)} {references.words.a_row})"
            return _Verdict("fail", "shift", f"{why}; {itself}: what inputs or labels mean differs between the two")
    return None


def _of_what_it_shows(facts: _StageFacts, threshold: float) -> _Verdict | None:
    """The network has learned something; whether it could have learned more."""
    references, network = facts.references, facts.references.network
    by_heart = _wild(references) and _by_heart(facts)
    wild = _wild(references) and not by_heart
    if not (network.low > 0 and network.value >= threshold) or wild or facts.moved == "little":
        return None
    if references.own is not None and references.own.high < threshold / references.label_entropy:
        # That its own rows tell something, and little, is what a slow start looks like, too.
        slow = references.own.low > 0 and not facts.enough
        return _Verdict("fail", "few_updates" if slow else "rows", _not_of_its_rows(facts))
    if by_heart and facts.stage != "smoke":
        return _Verdict("fail", BY_HEART, _known_by_heart(references))
    better = _better(references) if facts.enough and facts.stage == "pilot" else None
    if better is None:
        return _Verdict("pass")
    code = "less_inputs" if _lost_in_inputs(references, better) else "less"
    return _Verdict("fail", code, _price(references, better, facts.updates), _share_behind(references, better))


def _of_too_little(facts: _StageFacts, threshold: float) -> _Verdict:
    """The network shows too little: whether rows, updates or the network are why."""
    references, network = facts.references, facts.references.network
    shown = [arm for arm in references.arms if arm.fitted_on == "validation" and arm.rise.low > 0]
    if not shown:
        smallest = SMALLEST_SHARE * references.label_entropy
        highest = max(arm.rise.high for arm in references.arms if arm.fitted_on == "validation")
        if max(network.high, highest) < smallest and facts.stage != "smoke":
            return _Verdict("fail", "rows", "the validation rows show measurably nothing")
        return _Verdict("insufficient", "more", _groups_that_tell(references))
    # At smoke the network may not have had the time; and that it needs so many updates was measured with the linear
    # model: what trees alone find may take more.
    fair = facts.stage != "smoke" and any(arm.reference == LINEAR for arm in shown)
    if fair and facts.enough and network.high < threshold:
        name = references.words.reference(shown[0].reference)
        why = f"{facts.updates} updates found nothing where {name} of the same rows does"
        return _Verdict("fail", _in_inputs(facts) or "network", why)
    what = "these rows" if facts.enough else f"{facts.updates} updates on these rows"
    return _Verdict("insufficient", "more", f"{what} are too few to tell")


def _linear(references: References) -> Arm:
    """The reference with which the thresholds were measured; it is always asked."""
    return next(arm for arm in references.arms if arm.reference == LINEAR and arm.fitted_on == "validation")


def _wild(references: References) -> bool:
    return references.network_loss > MOST_OF_PRIOR * references.prior_loss


def _own_rows_are_well(references: References) -> bool:
    """True if rows that it learned from, asked in the same way, cost less than a constant."""
    own, prior = references.own_loss, references.own_prior_loss
    return own is not None and prior is not None and own < prior


def _linear_is_wild(references: References) -> bool:
    """True if the linear model of the stage's rows is as far off on validation rows: they are of another kind.

    Stretched to them it may rank them well, as where an input has another unit.
    """
    arm = references.arm(LINEAR, "stage")
    loss = None if arm is None else arm.unstretched_loss
    return loss is not None and not loss <= MOST_OF_PRIOR * references.prior_loss


def _by_heart(facts: _StageFacts) -> bool:
    """True of a network that knows its rows, and something of others: no training that failed.

    Smoke's few rows may not tell yet what it knows of others.
    """
    references = facts.references
    known = references.network.low > 0 or facts.stage == "smoke"
    return known and _own_rows_are_well(references) and not _linear_is_wild(references)


def _of_another_kind(references: References) -> str:
    assert references.own_loss is not None
    own, loss, prior = figures(references.own_loss, references.network_loss, references.prior_loss)
    name = references.words.linear
    return (
        f"the loss is {own} on rows that it learned from and {loss} on validation rows, where "
        f"{references.words.constant} has {prior}, and {name} of the stage's rows is far off as well: what inputs or "
        "labels mean differs between the two"
    )


def _better(references: References) -> Arm | None:
    """The reference of the stage's rows that the network is furthest behind, if that is measurable and counts."""
    arms = [arm for arm in references.arms if arm.fitted_on == "stage" and arm.inputs == "columns"]
    ahead = [arm for arm in arms if arm.behind is not None and arm.behind.low > 0]
    best = max(ahead, key=lambda arm: _share_behind(references, arm), default=None)
    return best if best is not None and _share_behind(references, best) >= FAR_SHARE else None


def _share_behind(references: References, arm: Arm) -> float:
    """By how much of what there is to explain the network's loss lies above the reference's."""
    return 0.0 if arm.behind is None else arm.behind.value / references.label_entropy


def _in_inputs(facts: _StageFacts) -> str:
    """The code of inputs that are at fault for what a network did not learn; empty if they are not known to be."""
    better = _better(facts.references) if facts.enough else None
    return "inputs" if better is not None and _lost_in_inputs(facts.references, better) else ""


def _lost_in_inputs(references: References, better: Arm) -> bool:
    """Whether the same reference loses most of what the network lacks once it is fitted on the network's tensors."""
    same = references.arm(better.reference, "stage", "tensors")
    if same is None or same.loss is None or better.loss is None:
        return False
    return same.loss - better.loss > (references.stretched_loss - better.loss) / 2


def _groups_that_tell(references: References) -> str:
    """How many groups would tell a rise that counts from none, by how surely these know the largest."""
    best = max((arm.rise for arm in references.arms if arm.fitted_on == "validation"), key=lambda rise: rise.value)
    counts = max(best.value, SMALLEST_SHARE * references.label_entropy)
    needed = math.ceil(best.groups * ((best.high - best.low) / 2 / counts) ** 2)
    too_few = f"{best.groups} groups of validation rows cannot tell"
    return f"{too_few}; about {needed:,} would" if needed > best.groups else too_few


def _knew(references: References, progress: Progress | None) -> bool:
    """True if the network was trained before, so that it need not move: one of another seed knows as much."""
    untrained = references.network_loss if progress is None else progress.untrained_loss
    return max(untrained, references.network_loss) <= TRAINED_BEFORE * references.prior_loss


def _stayed(references: References, progress: Progress | None) -> bool:
    """True if the validation loss is no higher than at the first weights: of rare labels those lose more than a prior.

    Outputs of 0 give each label 0.5 and lose 0.69 nats, 3.5 times as much as a prior of 5 %.
    """
    return progress is not None and references.network_loss <= (1 + SMALLEST_FALL) * progress.untrained_loss


def _on_its_way(references: References, progress: Progress | None) -> bool:
    """True if answers began far from the labels, as of numbers in a large unit, and have come a good part nearer.

    The training's own loss then lies above the prior's as well: answers that mean something else do not show in it.
    """
    if progress is None or progress.first_loss - progress.fall.value <= references.prior_loss:
        return False
    begun = progress.untrained_loss - references.prior_loss
    return begun > 0 and progress.untrained_loss - references.network_loss >= WAY_SO_FAR * begun


def _threshold(references: References) -> float:
    """What the network's rise has to be at least: a share of what the linear model finds, and of what there is."""
    return _least(references, _linear(references))


def _least(references: References, there: Arm) -> float:
    """The same beside another reference of the validation rows."""
    smallest = SMALLEST_SHARE * references.label_entropy
    return max(smallest, SHARE_OF_LINEAR * there.rise.value) if there.rise.low > 0 else smallest


def _moved(progress: Progress | None, curve: Sequence[CurvePoint], stage: str) -> Moved:
    """By the paired fall; by the curve where the first weights are not known, which only tells a fall from none.

    The pilot asks that curve. A later stage may go on from it, or begin where it ended, and need not fall again.
    """
    if progress is None:
        return "fell" if stage != "pilot" or _curve_fell(curve) else "not"
    least, fall = SMALLEST_FALL * abs(progress.first_loss), progress.fall
    if fall.value >= least and fall.low > 0:
        return "fell"
    if fall.value <= -least and fall.high < 0:
        return "rose"
    # A whole training makes so many times the updates: one that would not lower its loss then is not worth its compute.
    return "little" if fall.high / progress.share_of_full >= least else "not"


def _curve_fell(curve: Sequence[CurvePoint]) -> bool:
    """True if the curve's last part lies significantly below its first one."""
    parts = curve_parts(curve)
    if len(parts) < 2:
        return False
    noise = math.sqrt(sum(part.variance / part.rows for part in (parts[0], parts[-1])))
    return parts[0].loss - parts[-1].loss > FALL_STANDARD_ERRORS * noise


def _arms(references: References) -> list[str]:
    """The statistic in words, of the network and the first reference that finds something; what references took."""
    there = next((arm for arm in references.arms if arm.fitted_on == "validation" and arm.rise.low > 0), None)
    there, said = there or _linear(references), references.words
    fitted = references.arm(there.reference, "stage", there.inputs)
    on = " on the network's tensors" if there.inputs == "tensors" else ""
    where = "within a group" if references.within_groups else "between rows"
    evidence = (
        f"exchanging predictions {where} costs {_rise(references.network)} {said.a_row}; "
        f"for {said.reference(there.reference)}{on}, fitted on validation rows, {_rise(there.rise)}"
    )
    evidence += f", on the stage's rows {_rise(fitted.rise)}" if fitted is not None else ""
    return [evidence, f"the references took {sum(arm.cpu_seconds for arm in references.arms):.1f} CPU seconds"]


def _rise(rise: Estimate) -> str:
    value, low = figures(rise.value, rise.low)
    return f"{value} (95 % from {low})"


def _diverged(references: References, own: Progress | None) -> str:
    rose = ""
    if own is not None:
        first, now = figures(own.first_loss, own.first_loss - own.fall.value)
        rose = f"the training rows' loss went from {first} to {now}; "
    loss, prior = figures(references.network_loss, references.prior_loss)
    return f"{rose}the validation loss of {loss} stands beside {prior}, the loss of {references.words.constant}"


def _known_by_heart(references: References) -> str:
    assert references.own_loss is not None
    own, loss, prior = figures(references.own_loss, references.network_loss, references.prior_loss)
    return (
        f"the loss is {own} on rows that it learned from and {loss} on validation rows, where "
        f"{references.words.constant} has {prior}: it knows its rows by heart, and is surer of others than it may be"
    )


def _not_of_its_rows(facts: _StageFacts) -> str:
    """What is known where validation rows show more than the rows that were learned from bear out."""
    own, elsewhere = facts.references.own, facts.references.network.value / facts.references.label_entropy
    assert own is not None
    measured = (
        f"on the rows that it learned from, permuted predictions lose {own.value:.1%} of what is to explain (95 % "
        f"{own.low:.1%} to {own.high:.1%}), and on validation rows {elsewhere:.1%}"
    )
    known = (
        "no measurable part of its own rows" if own.low <= 0 else "a part of its own rows that is too small to count"
    )
    return f"{measured}: in {facts.updates} updates it learned {known}, so that the rest is not what it learned"


def _still_far(references: References, own: Progress | None) -> str:
    untrained = math.nan if own is None else own.untrained_loss
    return (
        f"the validation loss came from {untrained:.4g} at the first weights to {references.network_loss:.4g}, and is "
        f"still above {references.prior_loss:.4g}, that of the best constant answer"
    )


def _unmoved(references: References, own: Progress | None) -> str:
    if own is None:
        fell = "the loss while training did not fall"
    else:
        share = own.fall.value / abs(own.first_loss) if own.first_loss else 0.0
        (first,) = figures(own.first_loss)
        fell = f"the updates lowered the training rows' loss of {first} by {share:.2g} of it"
    loss, prior = figures(references.network_loss, references.prior_loss)
    return f"{fell}, and the validation loss of {loss} is not below {prior}, the loss of {references.words.constant}"


def _price(references: References, better: Arm, updates: int) -> str:
    """What a reference reaches, and for how much."""
    assert better.loss is not None
    loss, own = figures(better.loss, references.stretched_loss)
    evidence = (
        f"{references.words.reference(better.reference)} of the same rows reaches a loss of {loss} in "
        f"{better.cpu_seconds:.1f} CPU seconds; the network {own} after {updates} updates (losses of answers that were "
        "stretched to the labels)"
    )
    same = references.arm(better.reference, "stage", "tensors")
    if same is None or same.loss is None:
        return evidence
    return f"{evidence}, and the same reference on the network's tensors {figures(same.loss, better.loss)[0]}"
