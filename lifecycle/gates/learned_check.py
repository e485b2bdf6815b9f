"""The checks `learned` and `beyond_linear`: what a stage's answer says of what the network has learned.

A loss curve in a few parts that are long enough to be compared.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trainworthy.lifecycle.gates.stage_words import fix_of
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.records import CurvePoint
from trainworthy.lifecycle.protocol.results import Learned, Progress
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
# How many standard errors the progressive loss must fall by to count as moved.
FALL_STANDARD_ERRORS = 3.0


def learned_check(
    learned: Learned | None, progress: Progress | None, device: str, curve: Sequence[CurvePoint], stage: str = "pilot"
) -> CheckResult:
    """Passes if the network's predictions carry information within a group, by size and significance.

    An untrained network ranks a little by luck, so the training must have lowered its own loss too, or the network must
    have known something before. Else rows and updates decide. It fails if the loss rose, or would not move in the whole
    training either; if what it shows on validation rows is not seen on those that it learned from; if as many
    validation rows show something and the stage's rows do not; if ENOUGH_UPDATES found nothing that the stage's rows
    show, or left the loss far above the prior's; or if the rows show measurably nothing. Otherwise it is insufficient,
    and the next stage asks again.
    """
    if learned is None:
        fix = fix_of("learned", "ended")
        return CheckResult(
            name="learned", status="insufficient", required=True, device=device, evidence="not measured", fix=fix
        )
    threshold = _threshold(learned)
    moved = _moved(progress, curve, stage)
    status, why, fix = _judged(learned, progress, threshold, moved, curve[-1].step if curve else 0)
    if fix == MORE and stage == "pilot":
        fix = f"{MORE}; full asks again"
    evidence = "; ".join([why] * bool(why) + [_rises(learned)])
    # A rise that is large enough is not what the check failed of.
    by_rise = status == "pass" or not learned.network.value >= threshold
    return CheckResult(
        name="learned", status=status, device=device, observed=learned.network.value,
        threshold=threshold if by_rise else None, evidence=evidence, fix=fix,
    )  # fmt: skip


# What a training did to its own loss; "little" is too few updates to tell.
Moved = Literal["fell", "little", "not", "rose"]
Status = Literal["pass", "fail", "insufficient"]
ROWS, NETWORK, NEARER, MORE = (fix_of("learned", case) for case in ("rows", "network", "nearer", "more"))


def _judged(
    learned: Learned, progress: Progress | None, threshold: float, moved: Moved, updates: int
) -> tuple[Status, str, str]:
    """Status, reason and fix."""
    network, reference, stage = learned.network, learned.reference, learned.stage_reference
    if not math.isfinite(learned.network_loss + network.value + reference.value):
        return "fail", f"the network's loss on the validation rows is {learned.network_loss}", NETWORK
    wild = learned.network_loss > MOST_OF_PRIOR * learned.prior_loss
    if wild and moved == "fell" and _on_its_way(learned, progress):
        return "insufficient", _still_far(learned, progress), NEARER
    stayed = moved == "not" and _stayed(learned, progress)
    if moved == "rose" or (wild and not stayed and (moved == "not" or updates >= ENOUGH_UPDATES)):
        return "fail", _diverged(learned, progress), fix_of("learned", "diverged")
    if moved == "not" and not _knew(learned, progress):
        return (
            "fail",
            _unmoved(learned, progress),
            fix_of("learned", "unmoved"),
        )
    if reference.low > 0 and stage is not None and stage.high < reference.low and stage.value < threshold:
        why = f"{learned.words.linear} learns nothing from the stage's rows, and does from as many validation rows"
        return "fail", why, ROWS
    if network.low > 0 and network.value >= threshold and not wild and moved != "little":
        if learned.own is not None and learned.own.high < threshold / learned.label_entropy:
            return "fail", _by_luck(learned), ROWS
        return "pass", "", ""
    if reference.low <= 0:
        smallest = SMALLEST_SHARE * learned.label_entropy
        if max(network.high, reference.high) < smallest:
            return "fail", "the validation rows show measurably nothing", ROWS
        return "insufficient", f"{reference.groups} groups of validation rows cannot tell", MORE
    if updates >= ENOUGH_UPDATES and network.high < threshold:
        return "fail", f"{updates} updates found nothing where {learned.words.linear} of the same rows does", NETWORK
    what = "these rows" if updates >= ENOUGH_UPDATES else f"{updates} updates on these rows"
    return "insufficient", f"{what} are too few to tell", MORE


def _knew(learned: Learned, progress: Progress | None) -> bool:
    """True if the network was trained before, so that it need not move: one of another seed knows as much."""
    untrained = learned.network_loss if progress is None else progress.untrained_loss
    return max(untrained, learned.network_loss) <= TRAINED_BEFORE * learned.prior_loss


def _stayed(learned: Learned, progress: Progress | None) -> bool:
    """True if the validation loss is no higher than at the first weights: of rare labels those lose more than a prior.

    Outputs of 0 give each label 0.5 and lose 0.69 nats, 3.5 times as much as a prior of 5 %.
    """
    return progress is not None and learned.network_loss <= (1 + SMALLEST_FALL) * progress.untrained_loss


def _on_its_way(learned: Learned, progress: Progress | None) -> bool:
    """True if answers began far from the labels, as of numbers in a large unit, and have come a good part nearer.

    The training's own loss then lies above the prior's as well: answers that mean something else do not show in it.
    """
    if progress is None or progress.first_loss - progress.fall.value <= learned.prior_loss:
        return False
    begun = progress.untrained_loss - learned.prior_loss
    return begun > 0 and progress.untrained_loss - learned.network_loss >= WAY_SO_FAR * begun


def _threshold(learned: Learned) -> float:
    """What the network's rise has to be at least."""
    smallest = SMALLEST_SHARE * learned.label_entropy
    return max(smallest, SHARE_OF_LINEAR * learned.reference.value) if learned.reference.low > 0 else smallest


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


def _rises(learned: Learned) -> str:
    """The statistic in words."""
    network, reference, said = learned.network, learned.reference, learned.words
    of_network, low, of_linear, linear_low = figures(network.value, network.low, reference.value, reference.low)
    return (
        f"exchanging predictions within a group costs {of_network} {said.a_row} (95 % from {low}); "
        f"for {said.linear} it costs {of_linear} (95 % from {linear_low})"
    )


def _diverged(learned: Learned, own: Progress | None) -> str:
    rose = ""
    if own is not None:
        first, now = figures(own.first_loss, own.first_loss - own.fall.value)
        rose = f"the training rows' loss went from {first} to {now}; "
    loss, prior = figures(learned.network_loss, learned.prior_loss)
    return f"{rose}the validation loss of {loss} stands beside {prior}, the loss of {learned.words.constant}"


def _by_luck(learned: Learned) -> str:
    assert learned.own is not None
    elsewhere = learned.network.value / learned.label_entropy
    return (
        f"on the rows that it learned from, permuted predictions lose {learned.own.value:.1%} of what is to explain "
        f"(95 % to {learned.own.high:.1%}), and on validation rows {elsewhere:.1%}: "
        "what it shows there is luck"
    )


def _still_far(learned: Learned, own: Progress | None) -> str:
    untrained = math.nan if own is None else own.untrained_loss
    return (
        f"the validation loss came from {untrained:.4g} at the first weights to {learned.network_loss:.4g}, and is "
        f"still above {learned.prior_loss:.4g}, that of the best constant answer"
    )


def _unmoved(learned: Learned, own: Progress | None) -> str:
    if own is None:
        fell = "the loss while training did not fall"
    else:
        share = own.fall.value / abs(own.first_loss) if own.first_loss else 0.0
        (first,) = figures(own.first_loss)
        fell = f"the updates lowered the training rows' loss of {first} by {share:.2g} of it"
    loss, prior = figures(learned.network_loss, learned.prior_loss)
    return f"{fell}, and the validation loss of {loss} is not below {prior}, the loss of {learned.words.constant}"


def beyond_linear_check(learned: Learned | None, device: str) -> CheckResult:
    """Warns if the network's predictions carry no more within a group than those of the kind's linear model.

    A model that is linear by nature does not, and is no fault: it goes on, and the benchmark judges it after full.
    Answers that are surer lose more when they are exchanged, right or not: a network whose own loss is below that of
    the linear model is no poorer than it.
    """
    if learned is None or learned.beyond_linear is None:
        return CheckResult(
            name="beyond_linear", status="insufficient", severity="warning", device=device, evidence="not measured",
            fix="see the check finite for what ended the stage",
        )  # fmt: skip
    found, smallest = learned.beyond_linear, SMALLEST_SHARE * learned.label_entropy
    said = learned.words
    value, low, high = figures(found.value, found.low, found.high, sign="+")
    evidence = (
        f"how well the network separates rows within a group, compared with {said.linear}: {value} [{low}, {high}] "
        f"{said.a_row}"
    )
    below = learned.below_linear is not None and learned.below_linear.low > 0
    if below and learned.below_linear is not None:
        evidence += f"; its loss is {learned.below_linear.value:.4g} lower"
    status = "pass" if found.low > 0 or below else "fail" if found.high < smallest else "insufficient"
    return CheckResult(
        name="beyond_linear", status=status, severity="warning", device=device, observed=found.value, threshold=0.0,
        evidence=evidence,
        fix="" if status == "pass" else f"consider {said.linear}; the benchmark compares the two after full",
    )  # fmt: skip


# The curve is judged in tenths. Single windows of few rows gave 1 to 50 % false alarms on simulated plateaus; tenths of
# at least 30 rows reach 3.7 standard errors in 12,000 of them (batches of 1 to 128, positives of 2 to 50 %).
PARTS, PART_ROWS = 10, 30


@dataclass(frozen=True)
class CurvePart:
    """Windows taken together: last step, rows, mean loss and variance of a row's loss."""

    step: int
    rows: int
    loss: float
    variance: float


def curve_parts(curve: Sequence[CurvePoint]) -> list[CurvePart]:
    """The curve in at most PARTS parts of about equally many windows, on average of PART_ROWS rows or more."""
    count = min(PARTS, len(curve), sum(point.rows for point in curve) // PART_ROWS)
    cuts = [round(number * len(curve) / count) for number in range(count + 1)] if count else [0]
    return [_pooled(curve[start:end]) for start, end in itertools.pairwise(cuts)]


def _pooled(points: Sequence[CurvePoint]) -> CurvePart:
    rows = sum(point.rows for point in points)
    loss = sum(point.loss * point.rows for point in points) / rows
    # Exact: a window's variance is its squared standard error times its rows, and means differ between windows.
    squared = sum((point.standard_error**2 * point.rows + point.loss**2) * point.rows for point in points) / rows
    return CurvePart(step=points[-1].step, rows=rows, loss=loss, variance=max(0.0, squared - loss**2))
