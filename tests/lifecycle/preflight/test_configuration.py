"""Configuration: the schedule walked, the parameters counted, sums, room, stores and spot machines."""

import copy
import math
from dataclasses import replace

import pytest
import torch
import toy_jobs
import yaml
from configured import RATE, Network, network, one, subject, tried
from torch import nn

from trainworthy.lifecycle.engine.preflight.configuration.parameters import claim_of
from trainworthy.lifecycle.engine.preflight.configuration.schedule import judged, schedule_fits, walk
from trainworthy.lifecycle.engine.preflight.run import run_battery
from trainworthy.lifecycle.engine.training.loop import DENSE
from trainworthy.lifecycle.gates.check import UNTRIED
from trainworthy.lifecycle.plan import learning_rate
from trainworthy.lifecycle.spec.preflight import PreflightSpec


def declared(steps: int, **schedule):
    training = toy_jobs.spec_with(training={"schedule": {"warmup": 0.1, "decay": "cosine"} | schedule}).training
    return lambda step: learning_rate(step, steps, training)


def warm_restarts(step: int, cycle: int = 50) -> float:
    return RATE * 0.5 * (1 + math.cos(math.pi * (step % cycle) / cycle))


HEALTHY_RATES = {
    "declared_cosine": declared(200),
    "declared_constant": declared(200, decay="constant", warmup=0.0),
    "restarts": warm_restarts,
    "restarts_through_zero": lambda step: RATE * abs(math.cos(math.pi * step / 50)) if step % 50 != 25 else 0.0,
    "cut_restart": lambda step: warm_restarts(step, 70),
    "one_cycle": lambda step: RATE * (0.04 + 0.96 * (step / 90 if step < 90 else (199 - step) / 109)),
    "triangles": lambda step: RATE * (0.1 + 0.9 * abs((step % 40) - 20) / 20),
    "linear_to_zero_at_the_last": lambda step: RATE * (199 - step) / 199,
    "warm_up_from_zero": lambda step: RATE * min(1.0, step / 10),
    "inverse_root": lambda step: RATE * min((step + 1) / 20, (20 / (step + 1)) ** 0.5),
    "exponential": lambda step: RATE * 0.999**step,
    "one_step_down": lambda step: RATE * (0.6 if step > 150 else 1.0),
    "steps": lambda step: RATE * 0.5 ** (step // 70),
    "warm_stable_decay": lambda step: RATE * min(1.0, (step + 1) / 10, (200 - step) / 40),
}


@pytest.mark.parametrize("rate", HEALTHY_RATES.values(), ids=HEALTHY_RATES)
def test_schedule_healthy_passes(rate):
    found = schedule_fits(subject(rate=rate))
    assert found.status == "pass", found.evidence


UNFIT_RATES = {
    "ends_early": (lambda step: RATE * max(0.0, 1 - step / 120), "fail", "from step 120"),
    "cosine_of_a_shorter_run": (lambda step: declared(100)(min(step, 100)), "fail", "train nothing"),
    "never_warm": (lambda step: RATE * (step + 1) / 1000, "fail", "rises until"),
    "cosine_of_a_longer_run": (lambda step: declared(2000, warmup=0.0)(step), "fail", "still falling"),
    "cosine_cut_before_its_half": (lambda step: declared(500, warmup=0.0)(step), "insufficient", "still falling"),
    "negative": (lambda step: RATE * (1 - step / 150), "fail", "step 151 is -"),
    "not_finite": (lambda step: RATE / (100 - step) if step != 100 else math.inf, "fail", "step 100 is inf"),
    "zero": (lambda step: 0.0, "fail", "zero at all"),
    "idle_start": (lambda step: 0.0 if step < 40 else RATE, "fail", "to step 39"),
    "a_little_early": (lambda step: RATE * max(0.0, 1 - step / 194), "insufficient", "from step 194"),
    "factors": (lambda step: 1.0, "insufficient", "declares 0.01"),
}


@pytest.mark.parametrize(("rate", "status", "told"), UNFIT_RATES.values(), ids=UNFIT_RATES)
def test_schedule_of_another_run_is_found(rate, status, told):
    trial = tried("learning_rate_schedule", subject(rate=rate))
    assert trial.status == status, trial.evidence
    assert told in trial.evidence
    assert trial.symptom
    assert trial.fix


def test_schedule_of_many_steps_is_asked_for_a_bounded_number_of_them():
    steps = 700_000
    asked = []
    rates = walk(lambda step: asked.append(step) or RATE * max(0.0, 1 - step / 300_000), steps)
    assert len(asked) < 21_000
    assert asked == sorted(set(asked))
    assert (asked[0], asked[-1]) == (0, steps - 1)
    assert judged(rates, steps, RATE).status == "fail"
    assert judged(walk(declared(steps), steps), steps, RATE).status == "pass"


def frozen_first(model) -> None:
    model[0].requires_grad_(False)


def tied(model) -> None:
    model.append(nn.Linear(1, 8))
    model.append(nn.Linear(8, 1))
    model[4].weight = model[2].weight


FROZEN = PreflightSpec(frozen=("0.*",))


HEALTHY_PARAMETERS = {
    "all_in_one": subject(),
    "two_optimizers": subject(optimizers=one(lambda m: m[0].parameters(), lambda m: m[2].parameters())),
    "frozen_as_claimed": subject(network(frozen_first), claims=FROZEN),
    "frozen_by_being_left_out": subject(optimizers=one(lambda m: m[2].parameters()), claims=FROZEN),
    "frozen_but_in_the_optimizer": subject(
        network(frozen_first), one(lambda m: m.parameters()), claims=FROZEN
    ),
    "tied": subject(network(tied)),
}  # fmt: skip


@pytest.mark.parametrize("healthy", HEALTHY_PARAMETERS.values(), ids=HEALTHY_PARAMETERS)
def test_optimizers_that_hold_each_parameter_once_pass(healthy):
    trial = tried("optimizer_parameters", healthy)
    assert trial.status == "pass", trial.evidence


class Slow(Network):
    """Keeps a slow copy of its first layer, which forward moves in training."""

    def __init__(self):
        super().__init__(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
        self.copy = copy.deepcopy(self[0]).requires_grad_(False)

    def forward(self, input):
        if self.training:
            self.copy.weight.data.lerp_(self[0].weight.data, 0.01)
        return self[2](self[1](self[0](input["x"]))) + self.copy(input["x"]).mean().detach()


def test_slow_copy_that_no_optimizer_holds_passes_unclaimed():
    trial = tried("optimizer_parameters", subject(Slow))
    assert trial.status == "pass", trial.evidence
    assert "2 of them kept by the network itself" in trial.evidence


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 8, sparse=True), nn.Linear(8, 1)

    def forward(self, inputs):
        return self.head(self.embed((inputs["x"][:, 0].abs() * 2).long().clamp(max=9)))


def test_sparse_gradients_are_one_failure_with_the_fix():
    def optimizers(model):
        return torch.optim.SparseAdam(model.embed.parameters()), torch.optim.AdamW(model.head.parameters())

    trial = tried("optimizer_parameters", subject(Words, optimizers))
    assert trial.status == "fail"
    assert "embed.weight: the loop clips by the global norm, which sparse gradients do not have" in trial.evidence
    assert trial.fix == DENSE


OTHER = network()()


UNFIT_PARAMETERS = {
    "left_out": (subject(optimizers=one(lambda m: m[2].parameters())), "fail", "0.weight, 0.bias: in no optimizer"),
    "twice": (subject(optimizers=one(lambda m: m.parameters(), lambda m: m[2].parameters())), "fail", "more than one"),
    "of_another_model": (subject(optimizers=one(lambda m: OTHER.parameters())), "fail", "not this model's"),
    "more_than_the_model": (
        subject(optimizers=one(lambda m: [*m.parameters(), *OTHER.parameters()])), "insufficient", "no checkpoint",
    ),
    "frozen_unclaimed": (subject(network(frozen_first)), "fail", "0.weight, 0.bias: frozen, which nobody claims"),
    "frozen_unclaimed_in_a_trained_one": (
        subject(network(frozen_first), claims=PreflightSpec(start="trained")), "insufficient", "nobody claims",
    ),
    "claimed_but_trained": (subject(claims=FROZEN), "fail", "claimed frozen and trained"),
    "claim_of_nothing": (
        subject(network(frozen_first), claims=PreflightSpec(frozen=("0.*", "backbone.*"))), "fail", "'backbone.*'",
    ),
    "nothing_trains": (subject(network(lambda model: model.requires_grad_(False)), one(lambda m: m.parameters()),
                               claims=PreflightSpec(frozen=("*",))), "fail", "no parameter of the model trains"),
}  # fmt: skip


@pytest.mark.parametrize(("unfit", "status", "told"), UNFIT_PARAMETERS.values(), ids=UNFIT_PARAMETERS)
def test_optimizers_that_miss_a_parameter_are_found(unfit, status, told):
    trial = tried("optimizer_parameters", unfit)
    assert trial.status == status, trial.evidence
    assert told in trial.evidence
    assert trial.fix


class InAList(nn.Module):
    """Two of three layers are in a plain list; the copy is not used."""

    def __init__(self, used: bool):
        super().__init__()
        self.used, self.first = used, nn.Linear(2, 8)
        self.others = [nn.Linear(8, 8), nn.ReLU()]
        self.last = nn.Linear(8, 1)

    def forward(self, inputs):
        x = self.first(inputs["x"])
        for layer in self.others if self.used else ():
            x = layer(x)
        return self.last(x)


def test_layers_in_a_plain_list_are_found_where_the_loss_reaches_them():
    trial = tried("optimizer_parameters", subject(lambda: InAList(used=True)))
    assert trial.status == "fail"
    assert "2 tensors of modules in a list" in trial.evidence
    assert "nn.ModuleList" in trial.fix
    assert tried("optimizer_parameters", subject(lambda: InAList(used=False))).status == "pass"


def test_constant_of_a_module_of_ones_own_is_no_fault_for_sure():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = nn.Parameter(torch.ones(1), requires_grad=False)
            self.layer = nn.Linear(2, 1)

        def forward(self, inputs):
            return self.layer(inputs["x"] + self.shift)

    trial = tried("optimizer_parameters", subject(Shifted))
    assert trial.status == "insufficient"
    assert "preflight: {frozen: [shift]}" in trial.fix


class Deep(nn.Module):
    """Eight frozen tensors of a body, one of which is like the head's, that trains."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*[nn.Linear(2, 2) for _ in range(4)]).requires_grad_(False)
        self.neck = nn.ModuleDict({"frozen": nn.Linear(2, 2).requires_grad_(False), "free": nn.Linear(2, 2)})
        self.head = nn.Linear(2, 1)

    def forward(self, inputs):
        return self.head(self.neck["free"](self.neck["frozen"](self.body(inputs["x"]))))


def test_claim_that_a_user_copies_names_all_that_is_frozen_and_nothing_that_trains():
    trial = tried("optimizer_parameters", subject(Deep))
    assert trial.status == "fail"
    assert "body.0.weight, body.0.bias, body.1.weight and 7 more" in trial.evidence
    assert "preflight: {frozen: [body.*, neck.frozen.*]}" in trial.fix
    claimed = PreflightSpec(frozen=("body.*", "neck.frozen.*"))
    assert tried("optimizer_parameters", subject(Deep, claims=claimed)).status == "pass"


def test_claim_that_a_user_copies_keeps_what_is_claimed_and_is_yaml():
    told = claim_of(["0.weight", "0.bias", "a.x", "a.y"], ["1.weight", "a.z"], ["b.*"])
    copied = yaml.safe_load(told.removeprefix("claim it: "))
    assert copied == {"preflight": {"frozen": ["b.*", "0.*", "a.x", "a.y"]}}
    assert yaml.safe_load(claim_of(["0"], [], []).removeprefix("claim it: ")) == {"preflight": {"frozen": ["0"]}}


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_precision_of_the_cpu_passes(precision):
    trial = tried("precision", subject(precision=precision))
    assert trial.status == "pass", trial.evidence
    assert trial.device == "cpu"


def test_weights_that_train_in_half_precision_are_a_warning():
    trial = tried("precision", subject(network(lambda model: model.bfloat16())))
    assert (trial.status, trial.severity) == ("fail", "warning")
    assert "0.weight" in trial.evidence
    assert tried("precision", subject(network(lambda m: m.bfloat16().requires_grad_(False)))).status == "pass"


class Scaled(nn.Module):
    """A layer of an operation that torch has on a CPU in 32 and 64 bits alone."""

    def forward(self, x):
        return torch.special.erfcx(x)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_layer_without_a_kernel_in_the_declared_precision_is_named_with_its_fix(precision):
    trial = tried("kernels", subject(network(lambda model: model.insert(1, Scaled())), precision=precision))
    assert (trial.status, trial.severity, trial.observed) == ("fail", "error", "1")
    assert trial.evidence == f"layer 1 (Scaled) fails in {precision} on cpu (NotImplementedError) and runs in fp32"
    assert "training.precision: fp32" in trial.fix
    assert 'torch.autocast("cpu", enabled=False): self.1(x.float())' in trial.fix


def test_loss_without_a_kernel_in_the_declared_precision_is_told_as_no_layer():
    of = subject(precision="bf16")
    of = replace(of, recipe=replace(of.recipe, loss_fn=lambda outputs, targets: torch.special.erfcx(outputs).mean(1)))
    trial = tried("kernels", of)
    assert trial.status == "fail"
    assert "outside its layers, or the loss" in trial.evidence


def test_layer_that_has_no_kernel_in_evaluation_alone_is_named():
    class Evaluated(Scaled):
        def forward(self, x):
            return x if self.training else super().forward(x)

    trial = tried("kernels", subject(network(lambda model: model.insert(1, Evaluated())), precision="bf16"))
    assert (trial.status, trial.observed) == ("fail", "1")


def test_layers_that_run_in_the_declared_precision_pass():
    assert tried("kernels", subject()).status == "not_applicable"
    for precision in ("bf16", "fp16"):
        assert tried("kernels", subject(precision=precision)).status == "pass"


def test_network_that_fails_in_any_precision_is_not_the_precisions_fault():
    broken = subject(network(lambda model: model.append(nn.Linear(3, 3))), precision="bf16")
    assert tried("kernels", broken).status == "insufficient"


def test_battery_does_not_go_on_with_layers_that_have_no_kernel():
    weights, first, *rest = run_battery(subject(network(lambda model: model.insert(1, Scaled())), precision="bf16"))
    assert (weights.check, weights.status) == ("start.finite_weights", "pass")
    assert (first.check, first.status) == ("configuration.kernels", "fail")
    assert {trial.status for trial in rest} == {"insufficient"}
    assert {trial.code for trial in rest} == {UNTRIED}
    assert all(first.evidence in trial.evidence for trial in rest)
