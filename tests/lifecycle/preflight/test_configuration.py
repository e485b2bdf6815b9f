"""Configuration: the schedule walked, the parameters counted, sums, room, stores and spot machines."""

import copy
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_jobs
import yaml
from torch import nn

from trainworthy.lifecycle.data.rows import read_rows
from trainworthy.lifecycle.engine.preflight.battery import run_checks
from trainworthy.lifecycle.engine.preflight.configuration import disk_space
from trainworthy.lifecycle.engine.preflight.configuration.checks import CHECKS, KERNELS
from trainworthy.lifecycle.engine.preflight.configuration.disk_space import (
    checkpoints,
    checkpoints_have_room,
    state_bytes,
)
from trainworthy.lifecycle.engine.preflight.configuration.parameters import claim_of
from trainworthy.lifecycle.engine.preflight.configuration.schedule import judged, schedule_fits, walk
from trainworthy.lifecycle.engine.preflight.run import run_battery
from trainworthy.lifecycle.engine.preflight.sample import draw_sample
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.loop import DENSE
from trainworthy.lifecycle.engine.training.recipe import make_optimizers
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData
from trainworthy.lifecycle.gates.catalogue import CATALOGUE
from trainworthy.lifecycle.gates.check import CPU_ONLY, DECLARED, UNTRIED
from trainworthy.lifecycle.gates.declared import SHARED_VOLUME, Host, file_system, is_writable
from trainworthy.lifecycle.gates.host import (
    AFTER_CHECKS,
    HOST_CHECKS,
    before_worker,
    for_device,
    not_started,
    still_holds,
    stops,
    with_host,
)
from trainworthy.lifecycle.gates.seeds import updates_of_stages
from trainworthy.lifecycle.plan import Plan, learning_rate
from trainworthy.lifecycle.protocol.forecasts import StepTime
from trainworthy.lifecycle.protocol.records import Forecast
from trainworthy.lifecycle.protocol.results import PreflightResult
from trainworthy.lifecycle.protocol.trial import Trial
from trainworthy.lifecycle.spec.preflight import PreflightSpec
from trainworthy.lifecycle.spec.training import OptimizerSpec
from trainworthy.lifecycle.storage.durable.place import takes_copies

RATE = 0.01
CHECK = {check.id.partition(".")[2]: check for check in (KERNELS, *CHECKS, *HOST_CHECKS, *AFTER_CHECKS)}


class Network(nn.Sequential):
    def forward(self, inputs):
        return super().forward(inputs["x"].to(next(self.parameters()).dtype))


def network(change=lambda model: None):
    def build() -> nn.Module:
        torch.manual_seed(0)
        model = Network(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
        change(model)
        return model

    return build


def subject(build=None, optimizers=None, steps=200, rate=lambda step: RATE, claims=None, **recipe) -> Subject:
    def loss_fn(outputs, targets):
        return nn.functional.binary_cross_entropy_with_logits(outputs.squeeze(1), targets, reduction="none")

    spec = OptimizerSpec(name="adamw", learning_rate=RATE, weight_decay=0.01)
    plan = Plan(rows=256, batch_size=32, steps_per_epoch=8, horizon_steps=steps, first_step=0, last_step=steps, seed=0)
    x = torch.randn(64, 2)
    return Subject(
        build=build or network(),
        optimizers=optimizers or (lambda model: make_optimizers(object(), model, spec)),
        recipe=Recipe(loss_fn=loss_fn, learning_rate=rate, clip_norm=1.0, **recipe),
        training=TrainData({"x": x}, (x[:, 0] > 0).float()),
        held_out=TrainData({"x": x}, (x[:, 0] > 0).float()),
        plan=plan,
        claims=claims or PreflightSpec(),
    )


def tried(name: str, seen) -> Trial:
    (trial,) = run_checks((CHECK[name],), seen, device="cpu", not_applicable={})
    return trial


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


def one(*groups):
    return lambda model: tuple(torch.optim.SGD(list(group(model)), lr=RATE) for group in groups)


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

    def forward(self, inputs):
        if self.training:
            self.copy.weight.data.lerp_(self[0].weight.data, 0.01)
        return self[2](self[1](self[0](inputs["x"]))) + self.copy(inputs["x"]).mean().detach()


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


def test_checks_that_run_the_network_or_augment_on_the_device_are_not_the_host_s():
    names = {"inputs.finite", "inputs.augmentation_varies", "inputs.augmentation_pairs"}
    names.add("configuration.optimizer_parameters")
    assert {check.id for check in CATALOGUE if check.id in names and check.on_device} == names


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


def host(
    rows: int = 5000, stores=None, disk: str = "ext4", seconds: float | None = 30.0, write: float = 0.1, durable=None,
    others_busy: float = 0.0, **sections,
) -> Host:  # fmt: skip
    """`seconds` are all of the updates' and nothing else."""
    spec = toy_jobs.spec_with(**sections)
    updates = sum(updates_of_stages(rows, rows // 2, spec.training, spec.stages).values())
    step = StepTime(
        seconds=(seconds or 0.0) / updates, rows_seconds=0.0, augment_seconds=0.0, checkpoint_seconds=0.01,
        write_seconds=write, cores_busy=1.0, others_busy=others_busy, cores=2, flops=0.0, operations=1, joules=None,
        device="cpu",
    )  # fmt: skip
    forecast = None if seconds is None else Forecast(
        name="seconds", unit="seconds", value=seconds, low=seconds * 0.6, high=seconds * 2
    )  # fmt: skip
    return Host(spec, rows, rows // 2, stores or {"MLflow": lambda: None}, disk, forecast, durable, step)


@pytest.mark.parametrize(
    ("seen", "status", "told"),
    [
        (host(), "pass", "6 epochs of 39"),
        (host(200, training={"batch_size": 32}), "pass", "6 epochs"),
        (host(training={"batch_size": 32, "accumulate": 4}), "pass", "32 rows × 4 accumulated = 128 rows"),
        (host(training={"batch_size": 1}), "pass", "5,000"),
        (host(stages={"mode": "continue"}), "pass", "6 epochs"),
        (host(100), "fail", "the training split has 100"),
        (host(training={"accumulate": 64}), "fail", "128 rows × 64 accumulated = 8,192 rows"),
        (host(300, training={"epochs": 1}), "insufficient", "training.epochs is 1"),
    ],
)
def test_steps_add_up_or_are_told(seen, status, told):
    trial = tried("steps", seen)
    assert trial.status == status, trial.evidence
    assert told in trial.evidence
    assert trial.device == "host"


def test_store_that_cannot_be_opened_stops_and_every_one_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    def refused() -> None:
        raise ConnectionError("no answer")

    stores = {
        "MLflow": refused, "records": lambda: is_writable(tmp_path / "file" / "records"),
        "snapshots": lambda: is_writable(tmp_path / "snapshots"),
    }  # fmt: skip
    trial = tried("stores_reachable", host(stores=stores))
    assert trial.status == "fail"
    assert "MLflow: ConnectionError: no answer" in trial.evidence
    assert "records: NotADirectoryError" in trial.evidence
    assert "snapshots" not in trial.evidence
    assert tried("stores_reachable", host()).status == "pass"


def test_store_that_cannot_be_opened_is_told_without_its_password():
    def refused() -> None:
        raise ConnectionError(f"{'x' * 150} http://me:s3cret@mlflow.local:5000/api?token=t0ken refused")

    trial = tried("stores_reachable", host(stores={"MLflow": refused}))
    assert "http://mlflow.local:5000/api" in trial.evidence
    assert not [secret for secret in ("me:", "s3cret", "t0ken") if secret in trial.evidence]


SPOT: dict[str, Any] = {"compute": {"spot": True}}


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (host(), "not_applicable"),
        (host(disk="nfs4", **SPOT), "pass"),
        (host(disk=SHARED_VOLUME, compute={"spot": True}), "pass"),
        # Named as what outlives the machine, and not to be told from its own disk; not named at all.
        (host(disk="ext4", durable="/volume", **SPOT), "insufficient"),
        (host(disk="nfs4", durable="/volume", **SPOT), "pass"),
        (host(disk="s3", durable="s3://models/a", **SPOT), "pass"),
        (host(disk="ext4", **SPOT), "fail"),
        (host(disk="overlay", **SPOT), "fail"),
        # A store so slow that a copy is 20 minutes on its way, however often one begins; and one that may be.
        (host(disk="nfs4", write=1200.0, training={"checkpoint_every_steps": None}, **SPOT), "fail"),
        (
            host(disk="nfs4", write=1200.0, others_busy=1.9, training={"checkpoint_every_steps": None}, **SPOT),
            "insufficient",
        ),
        (host(disk="overlay", others_busy=1.9, **SPOT), "fail"),
        (host(disk="nfs4", write=300.0, training={"checkpoint_every_steps": None}, **SPOT), "insufficient"),
        (host(disk="nfs4", write=200.0, training={"checkpoint_every_steps": None}, **SPOT), "pass"),
        # Fourteen minutes of updates and two of writing.
        (host(disk="nfs4", seconds=11_558, write=120.0, **SPOT), "fail"),
        (host(disk="nfs4", seconds=None, **SPOT), "insufficient"),
        # 234 updates of full and 110 of the stages before it: ten hours, and a checkpoint every 25 steps.
        (host(disk="nfs4", seconds=36_000, **SPOT), "fail"),
        (host(disk="nfs4", seconds=36_000, training={"checkpoint_every_steps": 1}, **SPOT), "pass"),
        (host(disk="nfs4", seconds=9_000, **SPOT), "insufficient"),
        # Three trainings of full: 812 updates of 105 s, and a checkpoint every 14 minutes, not every 33.
        (
            host(disk="nfs4", seconds=84_977, training={"checkpoint_every_steps": 8, "full_seeds": 3}, **SPOT),
            "insufficient",
        ),
        # As often as pays: the bound is kept, unless a single update takes longer.
        (host(disk="nfs4", seconds=36_000, training={"checkpoint_every_steps": None}, **SPOT), "pass"),
        (host(disk="nfs4", seconds=400_000, training={"checkpoint_every_steps": None}, **SPOT), "fail"),
    ],
)
def test_spot_machine_needs_checkpoints_that_survive_it(seen, status):
    trial = tried("spot_checkpoints", seen)
    assert trial.status == status, trial.evidence


def test_file_system_of_a_folder_is_named(tmp_path):
    assert file_system(tmp_path / "not" / "there")
    assert file_system(tmp_path) != "unknown"


def test_room_counts_weights_moments_and_checkpoints(splits, tmp_path):
    made = subject()
    weights, moments = state_bytes(made)
    assert weights == 33 * 4
    # AdamW: two moments of each weight, and a step count for each of four tensors.
    assert moments == 2 * weights + 4 * 4
    job = toy_jobs.preflight_job(splits, tmp_path)
    # Every 25 steps: smoke's last, two of pilot and full, and one that is being written; else the last of each.
    assert checkpoints(job, 5000, 2500) == 6
    rare = job.model_copy(update={"training": job.training.model_copy(update={"checkpoint_every_steps": 1000})})
    assert checkpoints(rare, 5000, 2500) == 4
    # As often as pays: the two that are kept of each stage.
    often = job.model_copy(update={"training": job.training.model_copy(update={"checkpoint_every_steps": None})})
    assert checkpoints(often, 5000, 2500) == 7


def seen_with(splits, tmp_path, durable=None):
    job = toy_jobs.preflight_job(splits, tmp_path, durable=durable and str(durable))
    return job, draw_sample(job, read_rows(job.training_file, job.rows), "cpu")


def free(monkeypatch, sizes):
    """Free bytes by folder, all else of the disk in use; 0 is a folder that tells no size."""

    def usage(path):
        size = next(size for folder, size in sizes.items() if Path(path) == folder)
        return shutil._ntuple_diskusage(2 * size, size, size)  # pyright: ignore[reportAttributeAccessIssue]

    monkeypatch.setattr(disk_space.shutil, "disk_usage", usage)


def test_room_is_asked_twice_over_where_the_checkpoints_lie(splits, tmp_path, monkeypatch):
    seen = seen_with(splits, tmp_path)
    weights, beside = state_bytes(seen[1].subject)
    needed = 6 * (weights + beside) + 3 * weights
    for size, status in ((2 * needed, "pass"), (2 * needed - 1, "fail"), (0, "insufficient")):
        free(monkeypatch, {tmp_path: size})
        found = checkpoints_have_room(seen)
        assert found.status == status, found.evidence
        assert "6 checkpoints" in found.evidence


@pytest.mark.parametrize("same_disk", [True, False])
def test_room_is_asked_of_the_folder_for_copies_as_well(splits, tmp_path, monkeypatch, same_disk):
    durable = tmp_path / "durable"
    durable.mkdir()
    seen = seen_with(splits, tmp_path, durable)
    weights, beside = state_bytes(seen[1].subject)
    copies, own = 6 * (weights + beside), 6 * (weights + beside) + 3 * weights
    monkeypatch.setattr(disk_space, "same_disk", lambda *folders: same_disk)
    if same_disk:
        free(monkeypatch, {tmp_path: 2 * (own + copies) - 1})
        assert "name a larger disk in TRAINWORTHY_VAR" in checkpoints_have_room(seen).fix
        free(monkeypatch, {tmp_path: 2 * (own + copies)})
    else:
        free(monkeypatch, {tmp_path: 2 * own, durable: 2 * copies - 1})
        found = checkpoints_have_room(seen)
        assert (found.status, found.threshold) == ("fail", 2 * copies)
        assert "TRAINWORTHY_DURABLE" in found.fix
        free(monkeypatch, {tmp_path: 2 * own, durable: 2 * copies})
    assert checkpoints_have_room(seen).status == "pass"


def test_room_is_asked_of_no_bucket(splits, tmp_path, monkeypatch):
    seen = seen_with(splits, tmp_path, "s3://models/a")
    weights, beside = state_bytes(seen[1].subject)
    free(monkeypatch, {tmp_path: 10**12})
    assert checkpoints_have_room(seen).threshold == 2 * (6 * (weights + beside) + 3 * weights)


def test_rows_on_the_disk_are_a_part_of_the_room_that_is_asked(splits, tmp_path, monkeypatch):
    job, ahead = seen_with(splits, tmp_path)
    training = job.training.model_copy(update={"tensors": "per_batch"})
    loaded = job.model_copy(update={"training": training, "processes": 2})
    rows = read_rows(job.training_file, job.rows)
    mapped, needed = rows.memory_usage(index=False).sum(), []
    for one in (job, loaded):
        free(monkeypatch, {tmp_path: 10**12})
        needed.append(checkpoints_have_room((one, ahead)).threshold)
    assert needed[1] - needed[0] == pytest.approx(2 * 2 * mapped, rel=0.02)


def test_folder_for_copies_that_is_not_there_or_takes_no_files_is_a_store_that_fails(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "unmounted", tmp_path / "file"):
        seen = host(stores={"copies of checkpoints": lambda folder=folder: takes_copies(str(folder))})
        trial = tried("stores_reachable", seen)
        assert trial.status == "fail"
        assert "name another one in TRAINWORTHY_DURABLE" in trial.evidence
        assert stops(before_worker(seen))
    assert not (tmp_path / "unmounted").exists()
    healthy = host(stores={"copies of checkpoints": lambda: takes_copies(str(tmp_path))})
    assert tried("stores_reachable", healthy).status == "pass"


def test_host_that_stops_leaves_the_worker_s_checks_untried_and_all_are_told():
    seen = host(100, preflight={"not_applicable": {"overfit.ten_batches": "a generative model"}})
    first = before_worker(seen)
    assert stops(first)
    result = not_started(first, seen)
    told = {trial.check: trial for trial in result.trials}
    for check in ("one_batch.train", "one_batch.validate"):
        assert told[check].status == "insufficient"
        assert told[check].required
        assert told[check].code == UNTRIED
    assert told["overfit.ten_batches"].status == "not_applicable"
    assert told["overfit.ten_batches"].code == DECLARED
    assert "a generative model" in told["overfit.ten_batches"].evidence
    assert not stops(before_worker(host()))


def test_trial_on_a_cpu_does_not_clear_a_cuda_job():
    made = Trial(check="wiring.x", status="pass", device="cpu", evidence="well")
    for same in (for_device(made, uses_cuda=False), for_device(made.model_copy(update={"device": "cuda"}), True)):
        assert same.status == "pass"
    assert for_device(made.model_copy(update={"device": "host"}), True).status == "pass"
    capped = for_device(made, uses_cuda=True)
    assert (capped.status, capped.required) == ("insufficient", False)
    assert (capped.code, capped.evidence.rpartition(": ")[2]) == (CPU_ONLY, "well")
    failed = made.model_copy(update={"status": "fail"})
    assert for_device(failed, uses_cuda=True) == failed


def test_recorded_preflight_is_asked_again_when_device_or_stores_change():
    trial = Trial(check="wiring.x", status="pass", device="cpu", evidence="well")
    seen = host()
    worker = PreflightResult(memory=None, seconds=seen.seconds, trials=(trial,), device="cpu")
    recorded = with_host(worker, before_worker(seen), seen, uses_cuda=False).trials
    assert still_holds(recorded, seen, uses_cuda=False)
    assert not still_holds(recorded, seen, uses_cuda=True)
    capped = with_host(worker, before_worker(seen), seen, uses_cuda=True).trials
    # A GPU may be here now, which only the worker can tell.
    assert not still_holds(capped, seen, uses_cuda=True)
    assert not still_holds(recorded, replace(seen, spec=toy_jobs.spec_with(**SPOT)), uses_cuda=False)
    # The worker has tried no folder for copies.
    with_copies = seen.stores | {"copies of checkpoints in /volume": lambda: None}
    assert not still_holds(recorded, replace(seen, stores=with_copies), uses_cuda=False)
