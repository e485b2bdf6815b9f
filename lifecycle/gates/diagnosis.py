"""What the exchange of parts says of a training: which part is at fault, and what to look at.

An exchange recovers where its gain is more than chance gives the best of those compared in one of twenty diagnoses, and
a fiftieth of what there is to explain, as much as a network has to have learned; and where what it leads to is better
than the best constant answer by as much: noise in place of a signal may be learned more or less, too. That is the
chance of the validation rows. A standard part may also do better by right: then a healthy training has a part named
(docs/benchmarks.md, section general).

When a stage's checks stop it for what the training did, few parts are tried, the cheap ones first;
`trainworthy diagnose <run>` tries them at any time.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainworthy.lifecycle.gates.references_check import NAME, SMALLEST_SHARE
from trainworthy.lifecycle.protocol.checks import CheckResult, stopping
from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.protocol.results import TrainResult
from trainworthy.lifecycle.protocol.training_figures import Diagnosis, Exchange, Part
from trainworthy.lifecycle.wording import figures

# Exchanges that a stopped stage may try, and the share of a full training's updates that they may make together; the
# training as it is comes beside them.
MOST_EXCHANGES, SHARE_OF_FULL = 3, 0.3
# Trainings that an exchange takes: a recipe's rate is found by eight of a twentieth, and rows are exchanged in halves.
TRAININGS: Mapping[Part, float] = {
    "loss": 1.0, "recipe": 1.4, "network": 1.0, "regularization": 1.0, "precision": 1.0, "inputs": 1.0, "rows": 2.0,
}  # fmt: skip
# Tried in this order. Inputs and rows come last, unless the check's references tell of them.
ORDER: tuple[Part, ...] = ("loss", "recipe", "network", "regularization", "precision", "inputs", "rows")
# The share of diagnoses in which the chance of the validation rows alone may name a part, whichever it is.
NAMED_BY_CHANCE = 0.05
# What two gains differ by, if they do.
ALIKE_STANDARD_ERRORS = 2.0
# What the training did, in contrast to what it cost.
DIAGNOSED = ("finite", "monitors", "loss_rise", NAME)
# By the code of the check `references`, what is tried first: of inputs what comes with them as well, the network and,
# if there is one, the augmentation.
FIRST: Mapping[str, tuple[Part, ...]] = {
    "rows": ("rows",),
    "shift": ("rows",),
    "inputs": ("network", "inputs", "regularization"),
    "by_heart": ("recipe", "network"),
    "less_inputs": ("network", "inputs", "regularization"),
}
DIAGNOSED_STAGES = ("smoke", "pilot")

_WORDS: Mapping[str, Mapping[str, str]] = {
    entry["id"]: entry
    for entry in tomllib.loads(Path(__file__).with_name("parts.toml").read_text(encoding="utf-8"))["part"]
}


def recovery_standard_errors(compared: int, groups: int) -> float:
    """How many standard errors the gain of one of `compared` exchanges has to show, 1.6 to 3.2 with 1 to 7 of them.

    The best is named, so that each has to show more (Bonferroni, one-sided), by Student's t: the standard error is
    itself of so few as 8 `groups`, of which a normal quantile would name one of seven in 14 % of diagnoses by chance.
    """
    from scipy.special import stdtrit

    return float(stdtrit(groups - 1, 1 - NAMED_BY_CHANCE / compared))


def judged(exchanges: Sequence[Exchange], to_explain: float) -> tuple[Exchange, ...]:
    """The exchanges, those that have a gain with the status that it shows among all that have one."""
    compared = sum(exchange.gain is not None for exchange in exchanges)
    return tuple(
        exchange if exchange.gain is None or exchange.below_prior is None else exchange.model_copy(
            update={
                "status": "recovers" if recovers(exchange.gain, exchange.below_prior, to_explain, compared)
                else "no_gain"
            }
        )
        for exchange in exchanges
    )  # fmt: skip


def recovers(gain: Estimate, below_prior: Estimate, to_explain: float, compared: int) -> bool:
    """Whether an exchange lowers the loss by its `gain`, so that something was learned with it: the loss then lies
    `below_prior`, that of the best constant answer. `to_explain` is the loss of the validation rows' own best constant.
    """
    return all(
        estimate.value > recovery_standard_errors(compared, estimate.groups) * estimate.standard_error
        and estimate.value >= SMALLEST_SHARE * abs(to_explain)
        for estimate in (gain, below_prior)
    )


def part_at_fault(exchanges: Sequence[Exchange]) -> Part | None:
    """The part whose exchange recovers most, beyond what those do that it contains. None if none recovers.

    One that contains a part which was left out for what it takes is not named: it might be that part.
    """
    left_out = {exchange.part for exchange in exchanges if exchange.code in LEFT_OUT}
    gains: dict[Part, float] = {
        exchange.part: exchange.gain.value for exchange in exchanges if exchange.gain is not None
    }
    own: dict[Part, float] = {
        exchange.part: gains[exchange.part] - max(0.0, *(gains.get(part, 0.0) for part in exchange.contains), 0.0)
        for exchange in exchanges
        if exchange.status == "recovers" and left_out.isdisjoint(exchange.contains)
    }
    return max(own, key=lambda part: own[part], default=None)


def to_diagnose(stage: str, result: TrainResult, checks: Sequence[CheckResult]) -> CheckResult | None:
    """The check that stops smoke or pilot for what its training did; None where nothing is to be diagnosed.

    Of a training script nothing can be exchanged: only it makes its updates.
    """
    if stage not in DIAGNOSED_STAGES or result.trainer is not None:
        return None
    return next((check for check in stopping(checks) if check.name in DIAGNOSED and check.status == "fail"), None)


def parts_in_order(checks: Sequence[CheckResult]) -> tuple[Part, ...]:
    """All parts, the one that a stage's references tell of first."""
    first = next((FIRST[check.code] for check in checks if check.name == NAME and check.code in FIRST), ())
    return (*first, *(part for part in ORDER if part not in first))


def trainings_within(stage_updates: int, full_updates: int) -> float:
    """How many trainings of its size a stopped stage's exchanges may make together."""
    return SHARE_OF_FULL * full_updates / max(1, stage_updates)


def with_diagnosis(checks: Sequence[CheckResult], failed: CheckResult, diagnosis: Diagnosis) -> tuple[CheckResult, ...]:
    """The checks, with the answer before what the failed one advises, and all exchanges among its details."""
    rows = tuple(exchange_row(exchange) for exchange in diagnosis.exchanges)
    fix = f"{answer(diagnosis)}; else: {failed.fix}"
    with_answer = failed.model_copy(update={"fix": fix, "details": (*rows, *failed.details)})
    return tuple(with_answer if check is failed else check for check in checks)


def answer(diagnosis: Diagnosis) -> str:
    """The part at fault with its figures and what to look at, or that none is."""
    tried = [exchange for exchange in diagnosis.exchanges if exchange.loss is not None]
    at_fault = next((exchange for exchange in tried if exchange.part == diagnosis.at_fault), None)
    if not tried:
        return "no part of the training could be exchanged for a standard one"
    if at_fault is None:
        lowest, before = figures(min(exchange.loss or 0.0 for exchange in tried), diagnosis.loss)
        parts = ", ".join(exchange.part for exchange in tried)
        return (
            f"no part is at fault alone: of the exchanges of {parts}, the best leaves a validation loss of {lowest} in "
            f"the place of {before}"
        )
    before, now, prior = figures(diagnosis.loss, at_fault.loss or 0.0, diagnosis.prior_loss)
    losses = f"the validation loss is {now} in the place of {before}; the best constant answer has {prior}"
    others, beyond = _alike(diagnosis, at_fault), _more_with(diagnosis, at_fault)
    alike = "".join(f"; {part} recovers as much" for part in others)
    more = "".join(f"; {part}, which contains that exchange, recovers more" for part in beyond)
    exchanged = f"{at_fault.part}: with {part_name(at_fault.part)} exchanged ({at_fault.told})"
    fixes = "; or ".join(fix_of_part(part) for part in (at_fault.part, *others, *beyond))
    return f"{exchanged}, {losses}{alike}{more}. So {fixes}"


def _alike(diagnosis: Diagnosis, at_fault: Exchange) -> list[Part]:
    """Other parts whose exchange recovers about as much, and neither contains this one nor is contained in it."""
    assert at_fault.gain is not None
    least = at_fault.gain.value - ALIKE_STANDARD_ERRORS * at_fault.gain.standard_error
    alike = [
        exchange
        for exchange in diagnosis.exchanges
        if exchange.status == "recovers" and exchange.part not in at_fault.contains
    ]
    return [exchange.part for exchange in alike if exchange.gain is not None and exchange.gain.value >= least
            and exchange.part != at_fault.part and at_fault.part not in exchange.contains]  # fmt: skip


def _more_with(diagnosis: Diagnosis, at_fault: Exchange) -> list[Part]:
    """Parts whose exchange contains the one at fault and recovers measurably more: they may be at fault, too."""
    assert at_fault.gain is not None
    beyond = at_fault.gain.value + ALIKE_STANDARD_ERRORS * at_fault.gain.standard_error
    return [
        exchange.part
        for exchange in diagnosis.exchanges
        if exchange.status == "recovers" and at_fault.part in exchange.contains
        and exchange.gain is not None and exchange.gain.value > beyond
    ]  # fmt: skip


def part_name(part: Part) -> str:
    """As people call it."""
    return _WORDS[part]["symptom"]


def fix_of_part(part: Part) -> str:
    """What to look at where its exchange recovers."""
    return _WORDS[part]["fix"]


def exchange_row(exchange: Exchange) -> dict[str, str | float | None]:
    """An exchange as a row of a table."""
    gain = exchange.gain
    return {
        "part": exchange.part,
        "result": exchange.status.replace("_", " ")
        if exchange.status != "not_tried"
        else f"not tried: {_WHY[exchange.code]}",
        "loss": exchange.loss,
        "gain": None if gain is None else gain.value,
        "standard error": None if gain is None else gain.standard_error,
        "exchanged for": exchange.told,
    }


# Codes of parts that were left out for what their exchange takes.
LEFT_OUT = frozenset({"most_exchanges", "budget"})
_WHY = {
    "": "",
    "nothing_to_exchange": "it is a standard one",
    "not_exchangeable": "it can't be exchanged",
    "raised": "the exchanged training raised",
    "most_exchanges": "left out for what it takes; trainworthy diagnose --all tries every part",
    "budget": "the run's budget is as good as spent",
}
