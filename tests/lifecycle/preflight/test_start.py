from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from benchmarks.healthy import HEALTHY
from benchmarks.healthy_fresh import Mixture, mixture_density
from benchmarks.networks import cnn, feed_forward, gpt, mlp, unet
from benchmarks.setup import ForwardOf
from trainworthy.lifecycle.engine.outputs.best_constant import constant_losses
from trainworthy.lifecycle.engine.outputs.free_outputs import lowest_loss
from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.start.checks import CHECKS
from trainworthy.lifecycle.engine.preflight.start.initial_loss import (
    FEW_ROWS,
    LABEL_IN_INPUT,
    NO_LOWER_BOUND,
    NOT_LOADED,
    NOT_NORMALISED,
    ROWS,
)
from trainworthy.lifecycle.engine.training.rows.spread import spread_rows
from trainworthy.lifecycle.engine.training.state import TrainData
from trainworthy.lifecycle.spec.preflight import PreflightSpec

ODD = (
    "label_smoothing", "tied_weights", "sparse_relu", "declared_imbalance", "bf16", "multi_task", "batch_of_one",
    "noisy_regression", "batch_statistics", "in_batch_negatives", "autoencoder", "monte_carlo_dropout", "lora",
    "focal_loss", "hinge_loss", "log_probabilities", "probabilities", "heteroscedastic", "counts", "zero_head",
    "fine_tuning", "saturating", "reparametrised",
)  # fmt: skip


def tried(setup, name: str = "") -> Any:
    """The trials of the family by name, or the named one."""
    subject = setup.subject() if hasattr(setup, "subject") else setup
    found = {trial.check: trial for trial in run_checks(CHECKS, subject, device="cpu", not_applicable={})}
    return found[name] if name else found


def raised(trials) -> dict[str, str]:
    return {name: trial.evidence for name, trial in trials.items() if trial.status not in ("pass", "not_applicable")}


@pytest.mark.parametrize("host", [mlp, cnn, unet, gpt])
def test_healthy_hosts_pass_every_check(host):
    assert raised(tried(host(5))) == {}


@pytest.mark.parametrize("name", ODD)
def test_healthy_odd_trainings_raise_nothing(name):
    assert raised(tried(HEALTHY[name](5))) == {}


def test_best_constant_of_a_log_loss_is_the_entropy_of_the_shares():
    targets = torch.tensor([0] * 70 + [1] * 20 + [2] * 10)
    loss = lambda outputs, targets: functional.cross_entropy(outputs, targets, reduction="none")
    found = constant_losses(loss, torch.randn(100, 3), targets)
    shares = torch.tensor([0.7, 0.2, 0.1])
    assert found.best == pytest.approx(float(-(shares * shares.log()).sum()), rel=1e-3)
    assert found.neutral == pytest.approx(1.0986, rel=1e-3)


@pytest.mark.parametrize("link", ["probabilities", "log_probabilities"])
def test_best_constant_stays_in_the_range_of_the_outputs(link):
    logits, targets = torch.randn(64, 4), torch.arange(64) % 4
    if link == "probabilities":
        outputs, loss = logits.softmax(1), lambda p, y: functional.nll_loss(p.log(), y, reduction="none")
    else:
        outputs, loss = logits.log_softmax(1), lambda p, y: functional.nll_loss(p, y, reduction="none")
    assert constant_losses(loss, outputs, targets).best == pytest.approx(1.3863, rel=1e-3)


def test_best_constant_of_a_squared_error_is_the_variance():
    targets = torch.randn(200) * 3 + 50
    found = constant_losses(lambda outputs, targets: (outputs - targets) ** 2, torch.randn(200), targets)
    assert found.best == pytest.approx(float(targets.var(correction=0)), rel=1e-3)


def network_of(change):
    def make():
        model = ForwardOf("numbers", feed_forward(12, 32, 1))
        with torch.no_grad():
            change(model.layers)
        return model

    return make


def test_head_with_large_weights_fails_initial_loss():
    setup = replace(mlp(0), network=network_of(lambda layers: layers[4].weight.mul_(200)))
    trial = tried(setup, "start.initial_loss")
    assert trial.status == "fail"
    assert trial.severity == "error"
    assert trial.symptom
    assert trial.fix


class WithExposure(nn.Module):
    """The logarithm of a rate for each row, to which what stands in its last column is added."""

    def __init__(self):
        super().__init__()
        self.layers = feed_forward(11, 32, 1)

    def forward(self, inputs):
        numbers = inputs["numbers"]
        return self.layers(numbers[:, :11]).squeeze(-1) + numbers[:, 11]


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(
    ("exposure", "heavy", "code"),
    [("log", False, ""), ("log", True, ""), ("itself", False, FEW_ROWS), ("inf", False, FEW_ROWS)],
)
def test_few_rows_whose_exposure_is_no_logarithm_fail_initial_loss(exposure, heavy, code, full):
    made = mlp(1, rows=3000)
    size = torch.ones(len(made.training.targets))
    # One of a hundred is large, and none of those that are looked at first.
    size[5::100] = 60.0
    size[spread_rows(made.training, ROWS)] = 1.0
    numbers = made.training.inputs["numbers"].clone()
    numbers[:, 11] = {"log": size.log(), "itself": size - 1, "inf": torch.where(size > 1, 100.0, 0.0)}[exposure]
    counts = torch.poisson(size, generator=torch.Generator().manual_seed(0)) * (1 + 500 * (size > 1) * heavy)
    training = TrainData({"numbers": numbers}, counts)
    loss = nn.PoissonNLLLoss(log_input=True, full=full, reduction="none")
    found = tried(
        replace(made, training=training, network=WithExposure, loss_fn=loss, predict=None), "start.initial_loss"
    )
    # Without its constants the loss has no zero.
    assert (found.status == "fail") == bool(code), found.evidence
    assert not code or found.code == code


def test_label_among_the_inputs_of_a_sure_network_fails_initial_loss():
    setup = mlp(0)
    data = setup.training

    class Tells(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.tensor(8.0))

        def forward(self, inputs):
            return self.gain * (inputs["told"] - 0.5)

    leaked = TrainData({"told": data.targets}, data.targets)
    trial = tried(replace(setup, network=Tells, training=leaked), "start.initial_loss")
    assert trial.status == "fail"
    assert trial.code == LABEL_IN_INPUT


def test_forecast_that_starts_from_the_last_value_is_no_failure():
    """A network whose output passes an input on starts near its target, and no label has leaked."""
    last = torch.randn(300)

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.change = nn.Linear(1, 1)

        def forward(self, inputs):
            return inputs["last"] + 0.01 * self.change(inputs["last"][:, None]).squeeze(1)

    data = TrainData({"last": last}, last + 0.1 * torch.randn(300))
    loss = lambda outputs, targets: (outputs - targets) ** 2
    trial = tried(replace(mlp(0), network=Last, training=data, loss_fn=loss), "start.initial_loss")
    assert trial.status == "pass"
    assert "here last (correlation" in trial.evidence


def test_network_that_knows_measured_targets_before_any_update_is_insufficient():
    """Its weights were trained before: no input is passed on, and they know the targets all the same."""
    told = torch.randn(300, 4)

    class Trained(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, inputs):
            return self.scale * (inputs["told"] ** 2).sum(dim=1)

    data = TrainData({"told": told}, (told**2).sum(dim=1) + 0.1 * torch.randn(300))
    loss = lambda outputs, targets: (outputs - targets) ** 2
    trial = tried(replace(mlp(0), network=Trained, training=data, loss_fn=loss), "start.initial_loss")
    assert (trial.status, trial.required) == ("insufficient", False)


def test_targets_far_from_zero_are_a_warning():
    setup = HEALTHY["noisy_regression"](0)
    far = replace(setup, training=replace(setup.training, targets=setup.training.targets + 1000))
    trial = tried(far, "start.initial_loss")
    assert (trial.status, trial.severity) == ("fail", "warning")
    assert trial.code == NOT_NORMALISED


def test_trained_start_whose_weights_were_not_loaded_fails():
    setup = replace(cnn(0), claims=PreflightSpec(start="trained"))
    trial = tried(setup, "start.initial_loss")
    assert trial.status == "fail"
    assert trial.code == NOT_LOADED


def test_loss_of_the_wrong_sign_fails_initial_loss():
    setup = cnn(0)
    trial = tried(replace(setup, loss_fn=lambda o, y: -setup.loss_fn(o, y)), "start.initial_loss")
    assert trial.status == "fail"
    assert trial.code == NO_LOWER_BOUND


def deep(activation, depth: int, std: float):
    def make():
        layers = [nn.Linear(12, 32)]
        for _ in range(depth):
            layers += [activation(), nn.Linear(32, 32)]
        model = ForwardOf("numbers", nn.Sequential(*layers, activation(), nn.Linear(32, 1)))
        for module in model.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=std)
                nn.init.zeros_(module.bias)
        return model

    return make


@pytest.mark.parametrize(
    ("network", "where"),
    [
        (network_of(lambda layers: layers[0].bias.fill_(-50)), "layers.1"),
        (deep(nn.Tanh, 20, 0.01), "layers.42"),
        (deep(nn.ReLU, 12, 3.0), "layers.26"),
        (deep(nn.Sigmoid, 12, 0.2), "layers.26"),
        (deep(nn.Tanh, 2, 30.0), "layers.1"),
        (network_of(lambda layers: [p.fill_(0.1) for p in layers[0].parameters()]), "layers.2"),
    ],
    ids=["dead", "vanishing", "exploding", "equal_rows", "saturated", "equal_units"],
)
def test_broken_initial_weights_fail_activations_with_the_layer_named(network, where):
    trial = tried(replace(mlp(0), network=network), "start.activations")
    assert trial.status == "fail"
    assert where in trial.evidence


@pytest.mark.parametrize(("activation", "gain"), [(nn.ReLU, 2**0.5), (nn.Tanh, 5 / 3), (nn.SiLU, 1.6)])
def test_deep_networks_with_a_fitting_start_pass_activations(activation, gain):
    trial = tried(replace(mlp(0), network=deep(activation, 12, gain / 32**0.5)), "start.activations")
    assert trial.status == "pass", trial.evidence


def of_batch(outputs, targets):
    losses = functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    return losses, len(losses)


@pytest.mark.parametrize(
    ("loss", "cause"),
    [
        (lambda o, y: of_batch(o, y)[0] * of_batch(o, y)[1], "grow with the batch"),
        (lambda o, y: of_batch(o, y)[0] / of_batch(o, y)[1], "divided by the number of rows"),
        (lambda o, y: of_batch(o, y)[0] * y.mean(), "statistic of the whole batch"),
        (lambda o, y: of_batch(o, y)[0].mean().expand(len(y)), "statistic of the whole batch"),
    ],
    ids=["sum", "divided", "weighted", "mean"],
)
def test_loss_that_depends_on_other_rows_fails_reduction_and_a_claim_takes_it_out(loss, cause):
    setup = replace(mlp(0), loss_fn=loss)
    trial = tried(setup, "start.reduction")
    assert trial.status == "fail"
    assert cause in trial.cause
    claimed = tried(replace(setup, claims=PreflightSpec(rows="together")))
    assert claimed["start.reduction"].status == claimed["start.micro_batches"].status == "not_applicable"


@pytest.mark.parametrize("beside", [torch.zeros(()), 2.0, None, torch.zeros(3)])
def test_outputs_beside_those_of_rows_are_taken_as_they_are(beside):
    class Beside(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = feed_forward(12, 32, 1)

        def forward(self, inputs):
            return {"logits": self.layers(inputs["numbers"]).squeeze(-1), "beside": beside}

    setup = mlp(0)
    found = tried(replace(setup, network=Beside, loss_fn=lambda o, y: setup.loss_fn(o["logits"], y), predict=None))
    assert {trial.status for trial in found.values()} == {"pass"}


def test_outputs_with_several_lines_a_row_have_no_reduction():
    setup = gpt(0)

    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = setup.network()

        def forward(self, inputs):
            return self.body(inputs).flatten(0, 1)

    loss = lambda o, y: setup.loss_fn(o.unflatten(0, y.shape), y)
    assert tried(replace(setup, network=Flat, loss_fn=loss), "start.reduction").status == "not_applicable"


def test_loss_summed_over_a_rows_tokens_is_a_warning():
    setup = replace(gpt(0), loss_fn=lambda o, y: functional.cross_entropy(o.mT, y, reduction="none").sum(1))
    trial = tried(setup, "start.reduction")
    assert (trial.status, trial.severity, trial.observed) == ("fail", "warning", setup.training.targets.shape[1])


class Mixes(nn.Module):
    """Subtracts the mean of the batch, in evaluation too."""

    def __init__(self):
        super().__init__()
        self.layers = feed_forward(12, 32, 1)

    def forward(self, inputs):
        hidden = inputs["numbers"] - inputs["numbers"].mean(0)
        outputs = self.layers(hidden).squeeze(1)
        return outputs - outputs.mean()


class Forgets(nn.Module):
    """Takes its own gradients away before each pass."""

    def __init__(self):
        super().__init__()
        self.layers = feed_forward(12, 32, 1)

    def forward(self, inputs):
        self.zero_grad(set_to_none=True)
        return self.layers(inputs["numbers"]).squeeze(1)


@pytest.mark.parametrize("network", [Mixes, Forgets])
def test_parts_that_do_not_make_the_whole_fail_micro_batches(network):
    assert tried(replace(mlp(0), network=network), "start.micro_batches").status == "fail"


def test_one_row_of_data_is_told_and_raises_no_error():
    setup = mlp(0)
    one = TrainData({"numbers": setup.training.inputs["numbers"][:1]}, setup.training.targets[:1])
    statuses = {name: trial.status for name, trial in tried(replace(setup, training=one)).items()}
    assert "error" not in statuses.values()
    assert statuses["start.micro_batches"] == "insufficient"


class Slopes(nn.Module):
    """Logits and how fast they change with the inputs, by torch.func in forward."""

    def __init__(self, units: float = 1.0):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1))
        with torch.no_grad():
            self.body[0].weight.mul_(units)

    def forward(self, inputs):
        from torch.func import grad_and_value, vmap

        slope, value = vmap(grad_and_value(lambda row: self.body(row).squeeze(-1)))(inputs["numbers"])
        return torch.stack([value, slope.norm(dim=1)], 1)


def slope_loss(outputs, targets):
    label = functional.binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none")
    return label + 0.05 * outputs[:, 1].square()


@pytest.mark.parametrize(("units", "status"), [(1.0, "pass"), (1e4, "fail")])
def test_layers_under_torch_func_are_seen_by_activations(units, status):
    setup = replace(mlp(0), network=lambda: Slopes(units), loss_fn=slope_loss, predict=None)
    trial = tried(setup, "start.activations")
    assert trial.status == status, trial.evidence
    assert "body." in trial.evidence


def test_search_keeps_the_lowest_loss_where_it_is_not_finite_beyond():
    best, _ = lowest_loss({0: torch.tensor([3.0])}, lambda at: (at[0] + 1 / (at[0] > 1).float()).sum())
    assert 1 < best < 3.01


def test_search_of_a_loss_without_an_end_comes_to_one():
    best, _ = lowest_loss({0: torch.tensor([0.5])}, lambda at: -at[0].abs().sqrt().sum())
    assert best < -1e5


def test_mixture_whose_network_holds_the_spreads_raises_nothing():
    assert raised(tried(mixture_density(5))) == {}


class NoShares(Mixture):
    """Raw numbers in the place of the logarithms of shares: they need not sum to 1."""

    def forward(self, inputs):
        shares, means, spreads = self.layers(inputs["numbers"]).chunk(3, 1)
        return torch.cat([shares, means, spreads.clamp(-4, 3)], 1)


def sign_turned(outputs, targets):
    return -mixture_density(5).loss_fn(outputs, targets)


@pytest.mark.parametrize("changed", [{"network": NoShares}, {"loss_fn": sign_turned}])
def test_mixture_that_falls_without_end_fails_initial_loss(changed):
    trial = tried(replace(mixture_density(5), **changed), "start.initial_loss")
    assert (trial.status, trial.code) == ("fail", NO_LOWER_BOUND)


def test_wrong_sign_behind_a_clamp_fails_initial_loss():
    setup = cnn(5)
    clamped = lambda: nn.Sequential(setup.network(), nn.Hardtanh(-10, 10))
    trial = tried(replace(setup, network=clamped, loss_fn=lambda o, y: -setup.loss_fn(o, y)), "start.initial_loss")
    assert (trial.status, trial.code) == ("fail", NO_LOWER_BOUND)
