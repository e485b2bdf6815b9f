"""How each slice stands to its bound and to the champion, and what that allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainworthy.lifecycle.promotion.evidence import PromotionEvidence, usable
from trainworthy.lifecycle.promotion.finding import (
    NO_SPREAD,
    UNDERPOWERED,
    Finding,
    Lacking,
    Outcome,
    declared_in_words,
    gain_in_words,
    interval_in_words,
    lacking,
    lacking_of,
    room,
)
from trainworthy.lifecycle.protocol.figures import Estimate, SliceResult, Standing
from trainworthy.lifecycle.wording import count, decimals_of, metric_name


def judged_slice(result: SliceResult, evidence: PromotionEvidence) -> SliceResult:
    """The result with its standings. Without a champion, or one that was not scored, nothing is asked of a margin:
    the rule of the champion tells of that.
    """
    met = evidence.champion is not None and evidence.champion_comparison is not None
    standings = {
        "bound": _bound(result) if result.declared.bounded else "not_asked",
        "champion": _champion(result) if result.declared.champion_margin is not None and met else "not_asked",
    }
    return result.model_copy(update=standings)


def _bound(result: SliceResult) -> Standing:
    estimate = result.estimate
    if estimate is None or not usable(estimate):
        return "not_shown"
    _, spare, hope = room(result.declared, estimate)
    if hope < 0:
        return "broken"
    # No spread at all is what a few events look like as well as a sure thing.
    return "kept" if spare >= 0 and estimate.has_width else "not_shown"


def _champion(result: SliceResult) -> Standing:
    gain, margin = result.gain, result.declared.champion_margin
    assert margin is not None
    if gain is None or not usable(gain) or not gain.has_width:
        return "not_shown"
    return "broken" if gain.high < -margin else "kept" if gain.low > -margin else "not_shown"


def slice_findings(results: Iterable[SliceResult], primary: str) -> Iterator[Finding]:
    """What the judged slices allow."""
    for result in results:
        if result.bound != "not_asked":
            yield Finding(_allows(result, result.bound), *_bound_in_words(result))
        if result.champion != "not_asked":
            yield Finding(_allows(result, result.champion), *_champion_in_words(result, primary))


def _allows(result: SliceResult, standing: Standing) -> Outcome:
    if standing == "not_shown":
        return UNDERPOWERED[result.declared.on_underpowered]
    return "reject" if standing == "broken" else "promote"


def _bound_in_words(result: SliceResult) -> tuple[str, Lacking | None]:
    """The finding, and what it lacks."""
    estimate = result.estimate
    if estimate is None or not usable(estimate):
        return (
            f"Bound not measured on {_where(result)}: {_why(result)}{_declared(result)}.",
            None,
        )
    rule, spare, _ = room(result.declared, estimate)
    details = f"{metric_name(result.metric)} {interval_in_words(estimate)} on {_where(result)}, {rule}"
    if result.bound == "not_shown" and not estimate.has_width:
        return f"Bound of a slice not judged: {details}; {NO_SPREAD}.", None
    if result.bound == "not_shown":
        lacks = lacking_of(result.declared, estimate)
        beyond = f"{-spare:.{decimals_of(spare, estimate.standard_error)}f}"
        details = (
            f"{details}: the unfavourable end lies {beyond} beyond it; {_detects(result, estimate)}{_declared(result)}"
        )
        return f"Bound of a slice not shown to be kept: {details}.", lacks
    return f"Bound of a slice {result.bound}: {details}.", None


def _champion_in_words(result: SliceResult, primary: str) -> tuple[str, Lacking | None]:
    gain, margin = result.gain, result.declared.champion_margin
    assert margin is not None
    if gain is None or not usable(gain):
        return (
            f"Not compared with the champion on {_where(result)}: {_why(result)}{_declared(result)}.",
            None,
        )
    details = f"{gain_in_words(gain, primary)}, on {_where(result)}, margin {margin:g}"
    if result.champion == "broken":
        return f"Worse than the champion on a slice by more than its margin: {details}.", None
    if result.champion == "kept":
        return f"No worse than the champion on a slice: {details}.", None
    if not gain.has_width:
        return (
            f"Not compared with the champion on a slice: {details}; {NO_SPREAD}{_declared(result)}.",
            None,
        )
    if gain.high < 0:
        details = f"Worse than the champion on a slice, and not shown to be so within its margin: {details}"
    else:
        details = f"Not shown to be as good as the champion on a slice: {details}; {_detects(result, gain)}"
    return f"{details}{_declared(result)}.", lacking(gain, gain.value + margin)


def _where(result: SliceResult) -> str:
    return f"slice {result.slice} ({count(result.rows)} rows)"


def _why(result: SliceResult) -> str:
    return result.told.removesuffix(".") or "evaluate again"


def _detects(result: SliceResult, estimate: Estimate) -> str:
    size = estimate.detectable
    about = f"{size:.{decimals_of(size, estimate.standard_error)}f}"
    return f"{count(estimate.groups)} groups like these show a difference of about {about} or more"


def _declared(result: SliceResult) -> str:
    """What is declared for a slice that too few rows tell of, where it is not the default."""
    return declared_in_words(result.declared.on_underpowered)
