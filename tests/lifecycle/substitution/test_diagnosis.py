"""Parts of a training exchanged for standard ones: the planted fault's own part is named, and what is equal is left."""

import shutil
from dataclasses import replace

import kind_jobs
import numpy as np
import pandas as pd
import pytest
import torch

from trainworthy.lifecycle.engine.substitution.answer_loss import NUMBERS, answer_loss, answers_of, output_loss
from trainworthy.lifecycle.engine.substitution.diagnose import run_diagnosis
from trainworthy.lifecycle.engine.substitution.plain_network import PlainNetwork, described
from trainworthy.lifecycle.errors import TrainingError
from trainworthy.lifecycle.gates.diagnosis import (
    NAMED_BY_CHANCE,
    ORDER,
    answer,
    fix_of_part,
    judged,
    part_at_fault,
    parts_in_order,
    recovers,
    recovery_standard_errors,
    trainings_within,
)
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.figures import Estimate
from trainworthy.lifecycle.protocol.jobs import DiagnoseJob
from trainworthy.lifecycle.protocol.training_figures import Diagnosis, Exchange
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.tasks import kind_of

KINDS = ("regression", "multiclass", "multilabel")


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    root = tmp_path_factory.mktemp("kinds")
    return {kind: kind_jobs.kind_case(kind, root / kind) for kind in KINDS}


def diagnosed(case, out, parts=ORDER, most=9, trainings=99.0, **fields):
    job = case.train_job(out / "training", "pilot", **fields)
    asked = DiagnoseJob(
        use_case_folder=job.use_case_folder, out=str(out), device="cpu", training=job, parts=parts, most=most,
        trainings=trainings,
    )  # fmt: skip
    return run_diagnosis(asked).diagnosis


def by_part(found):
    return {one.part: one for one in found.exchanges}


def test_loss_whose_penalty_outweighs_it_is_named(cases, tmp_path):
    penalty = ("return (outputs - targets) ** 2", "return (outputs - targets) ** 2 + 1e3 * outputs**2")
    case = cases["regression"].changed(tmp_path / "case", penalty)
    found = diagnosed(case, tmp_path, ("loss", "network"))
    assert found.at_fault == "loss"
    exchanged = by_part(found)["loss"].loss
    assert exchanged is not None
    assert exchanged < found.prior_loss < found.loss


@pytest.mark.parametrize("kind", KINDS)
def test_rate_that_moves_nothing_is_named_and_the_kinds_own_loss_is_left(cases, tmp_path, kind):
    case = cases[kind].declared(training={"optimizer": {"learning_rate": 1e-9}})
    found = diagnosed(case, tmp_path, ("loss", "recipe", "network"))
    assert found.at_fault == "recipe"
    assert by_part(found)["loss"].code == "nothing_to_exchange"
    assert by_part(found)["network"].status == "no_gain"
    assert "; declared: learning_rate 1e-09" in by_part(found)["recipe"].told


def test_recipe_at_fault_tells_the_settings_that_differ_from_the_standard_one(cases, tmp_path):
    case = cases["regression"].declared(training={"clip_norm": 1e-6, "optimizer": {"name": "sgd"}})
    found = diagnosed(case, tmp_path, ("recipe",))
    assert "clip_norm 1e-06" in by_part(found)["recipe"].told
    assert by_part(found)["recipe"].told.endswith(", sgd")
    assert found.at_fault == "recipe"
    assert "clip_norm 1e-06" in answer(found)


def test_inputs_that_lose_what_the_columns_tell_are_named(cases, tmp_path):
    lost = (('"numbers": torch', '"numbers": 0 * torch'), (".fillna(0)", ".fillna(0) * 0"))
    case = cases["multiclass"].changed(tmp_path / "case", *lost)
    found = diagnosed(case, tmp_path, ("network", "inputs"))
    assert found.at_fault == "inputs"


def test_training_labels_of_other_rows_are_named(cases, tmp_path):
    case, splits = cases["regression"], tmp_path / "splits"
    shutil.copytree(case.splits, splits)
    rows = pd.read_parquet(splits / "training.parquet")
    rows[case.rows.label] = np.random.default_rng(0).permutation(rows[case.rows.label])
    rows.to_parquet(splits / "training.parquet")
    found = diagnosed(replace(case, splits=splits), tmp_path, ("network", "rows"))
    assert found.at_fault == "rows"


def test_dropout_that_hides_the_inputs_is_named(cases, tmp_path):
    case = cases["regression"].changed(tmp_path / "case", ("nn.Dropout(0.1)", "nn.Dropout(0.98)"))
    found = diagnosed(case, tmp_path, ("regularization",))
    assert (found.at_fault, by_part(found)["regularization"].told) == ("regularization", "without dropout")


def test_at_most_so_many_exchanges_are_tried_and_none_after_the_budget(cases, tmp_path):
    case = cases["regression"]
    one = by_part(diagnosed(case, tmp_path / "one", ("precision", "regularization", "network"), most=1))
    assert [one[part].code for part in ("precision", "network")] == ["nothing_to_exchange", "most_exchanges"]
    with pytest.raises(TrainingError, match="budget"):
        diagnosed(case, tmp_path / "none", ("regularization",), ends_at=0.0)


def test_prediction_without_gradient_leaves_the_loss_as_it_is(cases, tmp_path):
    case = cases["multiclass"].changed(
        tmp_path / "case", ("return outputs.softmax(", "return outputs.detach().softmax(")
    )
    assert by_part(diagnosed(case, tmp_path, ("loss",)))["loss"].code == "not_exchangeable"


def test_exchanged_training_that_raises_says_nothing_of_its_part(cases, tmp_path, monkeypatch):
    monkeypatch.setattr(PlainNetwork, "forward", lambda self, inputs: self.no_such_layer(inputs))
    found = diagnosed(cases["regression"], tmp_path, ("network",))
    assert (found.at_fault, by_part(found)["network"].code) == (None, "raised")
    assert "no_such_layer" in by_part(found)["network"].told


def estimate(value, error=0.01):
    return Estimate(value=value, low=value - 2 * error, high=value + 2 * error, standard_error=error, groups=30)


def exchange(part, value, *contains):
    return Exchange(part=part, status="recovers", loss=1 - value, gain=estimate(value), contains=contains, told="x")


@pytest.mark.parametrize(
    ("gain", "below", "expected"),
    [
        (estimate(0.2), estimate(0.2), True),
        (estimate(0.2, 0.08), estimate(0.2), False),
        (estimate(0.2, 0.07), estimate(0.2), True),
        (estimate(0.01, 0.001), estimate(0.2), False),
        (estimate(0.2), estimate(0.001), False),
    ],
)
def test_exchange_recovers_by_significance_size_and_what_it_leads_to(gain, below, expected):
    assert recovers(gain, below, to_explain=1.0, compared=len(ORDER)) is expected


@pytest.mark.parametrize(("compared", "groups"), [(7, 8), (7, 20), (3, 8), (1, 30)])
def test_chance_alone_names_a_part_in_at_most_one_of_twenty_diagnoses(compared, groups):
    """Gains of nothing but noise; of seven and 8 groups a normal quantile names one in 14 %."""
    draws = 20_000
    noise = np.random.default_rng(0).standard_normal((draws, compared, groups))
    ratios = noise.mean(axis=2) / (noise.std(axis=2, ddof=1) / groups**0.5)
    named = (ratios > recovery_standard_errors(compared, groups)).any(axis=1).mean()
    # Four standard errors of the share itself.
    assert named <= NAMED_BY_CHANCE + 4 * (NAMED_BY_CHANCE / draws) ** 0.5
    if (compared, groups) == (7, 8):
        assert (ratios > 2.45).any(axis=1).mean() > 0.12


def test_exchange_has_to_show_more_among_more_that_are_compared():
    def tried(part, value):
        return Exchange(part=part, status="no_gain", loss=1.0, gain=estimate(value, 0.1), below_prior=estimate(0.5))

    left = Exchange(part="rows", status="not_tried", code="budget")
    first = tried("recipe", 0.21)
    others = [tried(part, 0.0) for part in ("loss", "network", "inputs", "precision")]
    assert [one.status for one in judged([first, left], 1.0)] == ["recovers", "not_tried"]
    assert [one.status for one in judged([first, *others], 1.0)] == ["no_gain"] * 5


def test_exchange_of_a_record_from_before_its_loss_was_held_against_the_prior_still_loads():
    written = exchange("recipe", 0.4).model_dump(mode="json", exclude={"below_prior"})
    assert Exchange.model_validate(written).below_prior is None


def test_larger_exchange_counts_for_what_it_adds_to_the_one_that_it_contains():
    network = exchange("network", 0.6, "loss")
    assert part_at_fault([exchange("loss", 0.5), network]) == "loss"
    assert part_at_fault([exchange("loss", 0.1), network, exchange("inputs", 0.65, "network", "loss")]) == "network"
    assert part_at_fault([exchange("recipe", 0.4), network]) == "network"
    assert part_at_fault([exchange("recipe", 0.4), exchange("network", 0.6, "loss", "recipe")]) == "recipe"
    assert part_at_fault([Exchange(part="rows", status="no_gain", gain=estimate(0.0), loss=1.0)]) is None


def test_exchange_that_contains_a_part_which_was_left_out_is_not_named():
    left_out = Exchange(part="network", status="not_tried", code="most_exchanges")
    assert part_at_fault([exchange("inputs", 0.6, "network", "loss"), left_out]) is None
    standard = Exchange(part="loss", status="not_tried", code="nothing_to_exchange")
    assert part_at_fault([exchange("network", 0.6, "loss"), standard]) == "network"


def test_exchanges_of_a_stopped_pilot_stay_within_their_share_of_the_full_training(cases, tmp_path):
    assert trainings_within(100, 1000) == pytest.approx(3.0)
    parts = ("regularization", "network", "rows")
    few = by_part(diagnosed(cases["regression"], tmp_path, parts, trainings=2.5))
    assert [few[part].code for part in parts] == ["", "", "most_exchanges"]


def test_answer_names_the_part_with_its_figures_or_those_that_are_not_at_fault():
    exchanges = (exchange("recipe", 0.4), Exchange(part="network", status="no_gain", gain=estimate(0.0), loss=1.0))
    found = Diagnosis(rows=100, updates=20, loss=1.0, prior_loss=0.9, exchanges=exchanges, at_fault="recipe")
    assert all(word in answer(found) for word in ("optimizer and schedule", "0.6000", "1.0000", "0.9000"))
    left = answer(found.model_copy(update={"at_fault": None, "exchanges": exchanges[1:]}))
    assert "network" in left
    alike = answer(found.model_copy(update={"exchanges": (exchanges[0], exchange("regularization", 0.395))}))
    assert "regularization recovers as much" in alike
    assert f"So {fix_of_part('recipe')}; or {fix_of_part('regularization')}" in alike
    inside = found.model_copy(update={"exchanges": (exchanges[0], exchange("inputs", 0.5, "network", "recipe"))})
    assert "inputs, which contains that exchange, recovers more" in answer(inside)
    assert answer(inside).endswith(f"; or {fix_of_part('inputs')}")
    as_much = found.model_copy(update={"exchanges": (exchanges[0], exchange("inputs", 0.41, "network", "recipe"))})
    assert "inputs" not in answer(as_much)


TARGETS = {
    "binary": Target(kind="binary", classes=(0, 1)),
    "multiclass": Target(kind="multiclass", classes=("a", "b", "c")),
    "multilabel": Target(kind="multilabel", classes=("a", "b")),
    "regression": Target(kind="regression"),
    "quantiles": Target(kind="regression", quantiles=(0.1, 0.5, 0.9)),
}


@pytest.mark.parametrize("name", TARGETS)
def test_loss_of_answers_and_of_a_plain_networks_outputs_is_the_kinds_own(name):
    kind, generator = kind_of(TARGETS[name]), torch.Generator().manual_seed(0)
    labels = kind.checked_labels(kind.sample_labels(50))
    targets = torch.from_numpy(kind.targets(kind.truth(kind.sample_labels(50))))
    outputs = torch.randn((50, *kind.answer_shape), generator=generator)
    answers = answers_of(kind, outputs)
    known = torch.from_numpy(kind.row_loss(*kind.checked(labels, answers.numpy().astype("float64")))).float()
    levels = TARGETS[name].quantiles
    torch.testing.assert_close(answer_loss(kind, levels, 1.0)(answers, targets), known, rtol=1e-4, atol=1e-5)
    if kind.loss not in NUMBERS or not levels:
        torch.testing.assert_close(output_loss(kind, levels, 1.0)(outputs, targets), known, rtol=1e-4, atol=1e-5)


def test_plain_network_takes_numbers_and_categories_of_any_shape_and_what_training_never_had():
    inputs = {
        "picture": torch.randn(20, 3, 4, 4), "codes": torch.randint(0, 5, (20, 2)), "none": torch.zeros(20, 0),
        "gap": torch.tensor([[float("nan")]] * 10 + [[1.0]] * 10),
    }  # fmt: skip
    kind = kind_of(TARGETS["multiclass"])
    model = PlainNetwork(described(inputs, standardized=True), kind, {})
    assert model(inputs).shape == (20, 3)
    unseen = inputs | {"codes": torch.full((20, 2), 99), "gap": torch.full((20, 1), float("inf"))}
    assert model(unseen).isfinite().all()


def test_part_that_the_failed_checks_references_tell_of_comes_first():
    failed = CheckResult(name="references", status="fail", code="rows")
    assert parts_in_order((failed,)) == ("rows", *ORDER[:-1])
    assert parts_in_order((failed.model_copy(update={"code": "inputs"}),))[:2] == ("network", "inputs")
    assert parts_in_order((failed.model_copy(update={"code": "diverged"}),)) == ORDER
