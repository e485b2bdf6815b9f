"""Where a declared loss leads: to the labels for losses of every kind, below 0 or not, and away from them if turned."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from benchmarks.networks import mlp
from trainworthy.lifecycle.engine.preflight.wiring import descent
from trainworthy.lifecycle.engine.preflight.wiring.descent import Descent
from trainworthy.lifecycle.engine.preflight.wiring.predictions import predictions
from trainworthy.lifecycle.tasks.binary import Binary
from trainworthy.lifecycle.tasks.language_model import LanguageModel
from trainworthy.lifecycle.tasks.multiclass import Multiclass
from trainworthy.lifecycle.tasks.multilabel import Multilabel
from trainworthy.lifecycle.tasks.regression import Regression
from trainworthy.lifecycle.tasks.segmentation import Segmentation

ROWS = 64
YES_NO = (torch.arange(ROWS) % 16 == 0).float()
OF_THREE = torch.arange(ROWS) % 3
NUMBERS = torch.linspace(-1, 1, ROWS) ** 3
LABELS = torch.stack([YES_NO, torch.arange(ROWS) % 2], dim=1).float()


def descend(*given) -> Descent:
    """Of a loss that takes free outputs."""
    found = descent.descend(*given)
    assert found is not None
    return found


def bce(outputs, targets, **options):
    return functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none", **options)


def classes(outputs, targets, **options):
    return functional.cross_entropy(outputs, targets, reduction="none", **options)


def density(outputs, targets):
    mean, log_spread = outputs.T
    return log_spread + 0.5 * ((targets - mean) / log_spread.exp()).square()


def elbo(outputs, targets):
    mean, log_variance = outputs[:, 1], outputs[:, 2]
    return bce(outputs[:, 0], targets) + 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance)


def pinball(outputs, targets):
    off, levels = targets[:, None] - outputs, torch.tensor([0.1, 0.9])
    return torch.maximum(levels * off, (levels - 1) * off).mean(dim=1)


def of_texts(outputs, targets):
    return functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(dim=1)


def soft(outputs):
    return outputs.softmax(dim=1)


KINDS = {
    "binary": (Binary(), (), YES_NO, torch.sigmoid),
    "classes": (Multiclass((0, 1, 2)), (3,), OF_THREE, soft),
    "labels": (Multilabel(("a", "b")), (2,), LABELS, torch.sigmoid),
    "numbers": (Regression(), (), NUMBERS, lambda outputs: outputs),
    "prices": (Regression(), (), 300 + 40 * NUMBERS, lambda outputs: outputs),
    "quantiles": (Regression(quantiles=(0.1, 0.9)), (2,), NUMBERS, lambda outputs: outputs.sort(dim=1).values),
    "masks": (Segmentation((0, 1)), (2, 4, 4), (torch.arange(ROWS * 16) % 2).reshape(ROWS, 4, 4), soft),
    "texts": (
        LanguageModel(length=8), (8, 256), 97 + (torch.arange(ROWS)[:, None] + torch.arange(8)) % 26,
        lambda outputs: outputs.softmax(dim=2),
    ),
}  # fmt: skip
LOSSES = {
    "log loss": ("binary", bce),
    "rare positives count fifty times": ("binary", lambda o, t: bce(o, t, pos_weight=torch.tensor(50.0))),
    "smoothed": ("binary", lambda o, t: bce(o, t * 0.8 + 0.1)),
    "reward": ("binary", lambda o, t: -torch.sigmoid(o * (2 * t - 1))),
    "hinge": ("binary", lambda o, t: (1 - o * (2 * t - 1)).clamp(min=0)),
    "cross entropy": ("classes", classes),
    "focal": ("classes", lambda o, t: (1 - (-classes(o, t)).exp()) ** 2 * classes(o, t)),
    "energy": ("classes", lambda o, t: o.logsumexp(dim=1) - o.gather(1, t[:, None])[:, 0] - 100),
    "labels": ("labels", lambda o, t: bce(o, t).mean(dim=1)),
    "squared error": ("numbers", lambda o, t: (o - t).square()),
    "absolute error": ("prices", lambda o, t: (o - t).abs()),
    "pinball": ("quantiles", pinball),
    "masks": ("masks", lambda o, t: classes(o, t).mean(dim=(1, 2))),
    "texts": ("texts", of_texts),
}


def found(name, turned=False, start=None, **other):
    kind_name, loss = LOSSES[name]
    kind, shape, targets, predict = KINDS[kind_name]
    outputs = torch.randn(ROWS, *shape, generator=torch.Generator().manual_seed(0)) * 0.1 if start is None else start
    sign = -1 if turned else 1
    return descend(lambda o, t: sign * loss(o, t), other.get("predict", predict), kind, outputs, targets)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_leads_to_the_labels_and_its_negative_away_from_them(name):
    sound, turned = found(name), found(name, turned=True)
    assert not sound.worse, sound
    assert turned.worse, turned
    assert "rises from" in str(turned)


@pytest.mark.parametrize("zeros", [True, False])
def test_outputs_that_begin_alike_are_no_obstacle(zeros):
    start = torch.zeros(ROWS) if zeros else torch.full((ROWS,), 0.3)
    assert not found("log loss", start=start).worse
    assert found("log loss", start=start, turned=True).worse


@pytest.mark.parametrize(
    ("loss", "shape", "targets", "kind", "predict"),
    [
        (density, (2,), NUMBERS * 1e-3, Regression(), lambda outputs: outputs[:, 0]),
        (elbo, (3,), YES_NO, Binary(), lambda outputs: torch.sigmoid(outputs[:, 0])),
    ],
)
def test_a_density_below_0_and_a_bound_with_a_divergence_lead_to_the_labels(loss, shape, targets, kind, predict):
    outputs = torch.randn(ROWS, *shape, generator=torch.Generator().manual_seed(0)) * 0.1
    assert not descend(loss, predict, kind, outputs, targets).worse
    assert descend(lambda o, t: -loss(o, t), predict, kind, outputs, targets).worse


def test_probabilities_and_their_logarithms_stay_such():
    outputs = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0)).log_softmax(dim=1)
    kind, of_log = Multiclass((0, 1, 2)), lambda o, t: functional.nll_loss(o, t, reduction="none")
    assert not descend(of_log, torch.exp, kind, outputs, OF_THREE).worse
    assert descend(lambda o, t: -of_log(o, t), torch.exp, kind, outputs, OF_THREE).worse


def drawn(*shape, seed, spread):
    return torch.randn(ROWS, *shape, generator=torch.Generator().manual_seed(seed)) * spread


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("unit", [1.0, 1e3, 1e5])
def test_a_column_of_another_unit_hides_nothing_and_alarms_nothing(unit, seed):
    def both(outputs, targets):
        return (outputs[:, 0] - targets).square() + (outputs[:, 1] - unit * targets).square()

    outputs = drawn(2, seed=seed, spread=torch.tensor([1.0, unit]))
    assert not descend(both, lambda o: o[:, 0], Regression(), outputs, NUMBERS).worse
    assert descend(lambda o, t: -both(o, t), lambda o: o[:, 0], Regression(), outputs, NUMBERS).worse


@pytest.mark.parametrize("spread", [0.03, 0.04, 1.0, 10.0])
@pytest.mark.parametrize("seed", range(3))
def test_logarithms_of_large_labels_lead_to_them(spread, seed):
    incomes = torch.exp(10.8 + 0.3 * NUMBERS)
    of_logarithm = lambda o, t: (o - t.log1p()).square()
    outputs = drawn(seed=seed, spread=spread)
    assert not descend(of_logarithm, torch.expm1, Regression(), outputs, incomes).worse


@pytest.mark.parametrize("spread", [0.1, 0.3, 1.0])
def test_a_density_with_the_wrong_sign_is_told_although_it_soon_has_no_finite_value(spread):
    outputs = drawn(2, seed=0, spread=spread)
    sound = descent.descend(density, lambda o: o[:, 0], Regression(), outputs, NUMBERS)
    # A density that is exact ends without a finite value as well.
    assert sound is None or not sound.worse
    assert descend(lambda o, t: -density(o, t), lambda o: o[:, 0], Regression(), outputs, NUMBERS).worse


@pytest.mark.parametrize("low", [-1.0, 0.0])
def test_quantiles_that_pass_each_other_and_numbers_between_0_and_1_are_judged(low):
    outputs = (drawn(2, seed=0, spread=1.0).sigmoid() + low) * 0.9
    kind = Regression(quantiles=(0.1, 0.9))
    assert not descend(pinball, lambda o: o, kind, outputs, NUMBERS).worse
    assert descend(lambda o, t: -pinball(o, t), lambda o: o, kind, outputs, NUMBERS).worse


def rates(outputs, counts):
    return outputs - counts * outputs.log()


@pytest.mark.parametrize("seed", range(3))
def test_rates_that_must_be_positive_are_moved_where_they_are(seed):
    counts = torch.poisson(3 * NUMBERS.exp(), generator=torch.Generator().manual_seed(seed))
    outputs = functional.softplus(drawn(seed=seed, spread=0.1))
    assert not descend(rates, lambda o: o, Regression(), outputs, counts).worse
    assert descend(lambda o, t: -rates(o, t), lambda o: o, Regression(), outputs, counts).worse


def test_functions_that_refuse_free_numbers_are_not_judged():
    def refusing(outputs, targets):
        assert bool((outputs <= 1).all())
        return (outputs - targets).square()

    outputs = torch.full((ROWS,), 1.0)
    assert descent.descend(refusing, lambda o: 1 / 0, Regression(), outputs, NUMBERS) is None


def test_a_trained_start_that_loses_certainty_is_no_fault():
    sure = (2 * YES_NO - 1) * 12
    smoothed = found("smoothed", start=sure)
    assert smoothed.own[1] > smoothed.own[0]
    assert not smoothed.worse


def test_a_predict_that_turns_the_answers_is_one():
    assert found("log loss", predict=lambda outputs: torch.sigmoid(-outputs)).worse


def test_a_loss_of_the_wrong_sign_fails_with_its_cause_before_anything_is_trained():
    setup = mlp(0)
    subject = replace(setup.subject(), kind=Binary(), predict=torch.sigmoid)
    recipe = replace(subject.recipe, loss_fn=lambda outputs, targets: -setup.loss_fn(outputs, targets))
    assert predictions(subject).status == "pass"
    turned = predictions(replace(subject, recipe=recipe))
    assert turned.status == "fail"
    assert "wrong sign" in turned.cause
    # Where rows are no examples of an answer, nothing is claimed of them.
    unused = subject.claims.model_copy(update={"labels": "unused"})
    assert predictions(replace(subject, recipe=recipe, claims=unused)).status == "insufficient"
