"""What enters the network: finite, constant, scaled, labels. Healthy odd rows pass, planted faults fail."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from benchmarks.healthy_odd import with_inputs, with_targets
from benchmarks.networks import cnn, gpt, mlp, scores, unet
from benchmarks.setup import ForwardOf, Setup
from trainworthy.lifecycle.engine.preflight.inputs.checks import CHECKS, constant, finite
from trainworthy.lifecycle.engine.preflight.inputs.first_layer import scaled
from trainworthy.lifecycle.engine.preflight.inputs.label_scale import labels_scaled
from trainworthy.lifecycle.engine.preflight.inputs.labels import labels_in_range
from trainworthy.lifecycle.gates.check import Outcome
from trainworthy.lifecycle.spec.preflight import PreflightSpec


def on(look, setup: Setup) -> Outcome:
    torch.manual_seed(0)
    return look(setup.subject())


def planted(setup: Setup, name: str, change) -> Setup:
    """The set-up with one input changed in training and held-out rows; `change` gets a copy of the tensor."""
    return with_inputs(setup, lambda found: found | {name: change(found[name].clone())})


def put(value: float, row: int = 7):
    def change(tensor):
        tensor[row].flatten()[0] = value
        tensor[row].view(-1)[0] = value
        return tensor

    return change


class Filling(nn.Module):
    """Takes NaN for missing, as some networks do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(24, 1)

    def forward(self, inputs):
        x = inputs["numbers"]
        return self.layer(torch.cat([x.nan_to_num(0.0), x.isnan().float()], dim=1)).squeeze(1)


def regression(seed: int, size: float = 1.0, at: float = 0.0, **changes) -> Setup:
    _, score, _ = scores(seed, 1500)
    loss = nn.MSELoss(reduction="none")
    base = replace(mlp(seed), loss_fn=loss, predict=None, **changes)
    rows = {"training": score[:1200] * size + at, "held_out": score[1200:] * size + at}
    return replace(base, **{name: replace(getattr(base, name), targets=found) for name, found in rows.items()})


# ---- finite ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", [mlp, cnn, unet, gpt])
def test_finite_healthy_hosts_pass(host):
    assert on(finite, host(0)).status == "pass"


@pytest.mark.parametrize(
    "setup",
    [
        planted(mlp(0), "numbers", put(float("nan"))),
        planted(cnn(0), "image", put(float("inf"))),
        with_targets(regression(0), lambda found: found.where(found < 2.5, float("nan"))),
        replace(mlp(0), augment=lambda inputs, targets, generator: ({"numbers": inputs["numbers"].log()}, targets)),
    ],
    ids=["nan", "infinity", "target", "augmented"],
)
def test_finite_values_that_are_not_fail_with_input_and_count_named(setup):
    found = on(finite, setup)
    assert found.status == "fail"
    assert any(name in found.evidence for name in ("input numbers", "input image", "targets"))


def test_finite_missing_values_that_the_network_fills_pass():
    missing = planted(replace(mlp(0), network=Filling), "numbers", lambda x: x.where(x < 1.5, float("nan")))
    assert on(finite, missing).status == "pass"


def test_finite_missing_targets_that_the_loss_leaves_out_pass():
    def loss(outputs, targets):
        known = ~targets.isnan()
        return torch.where(known, (outputs - targets.nan_to_num(0.0)).square(), 0.0)

    holes = with_targets(regression(0), lambda found: found.where(found < 1.0, float("nan")))
    assert on(finite, replace(holes, loss_fn=loss)).status == "pass"


def test_finite_missing_targets_hidden_from_the_loss_but_not_from_the_gradient_fail():
    def loss(outputs, targets):
        return torch.where(targets.isnan(), 0.0, (outputs.exp().sqrt() - targets).square().sqrt())

    class Flat(nn.Module):
        """Its square root has an infinite slope at the zeros it gives."""

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(12, 1)

        def forward(self, inputs):
            return (self.layer(inputs["numbers"]) * 0).squeeze(1)

    holes = with_targets(regression(0), lambda found: found.where(found < 1.0, float("nan")))
    found = on(finite, replace(holes, loss_fn=loss, network=Flat))
    assert found.status == "fail"
    assert "gradient" in found.evidence


# ---- constant --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", [mlp, cnn, unet, gpt])
def test_constant_healthy_hosts_pass(host):
    assert on(constant, host(0)).status == "pass"


@pytest.mark.parametrize(
    "setup",
    [
        planted(cnn(0), "image", lambda x: x[:1].expand_as(x).clone()),
        planted(mlp(0), "numbers", lambda x: x * 0),
        planted(gpt(0), "tokens", lambda x: x[:1].expand_as(x).clone()),
        planted(cnn(0), "image", lambda x: 1 + 1e-9 * x),
        with_inputs(mlp(0), lambda f: {"numbers": f["numbers"] * 0, "missing": (f["numbers"] > 1).float()}),
    ],
    ids=["one_image", "zeroed", "one_text", "rounding", "values_of_a_mask"],
)
def test_constant_input_fails(setup):
    assert on(constant, setup).status == "fail"


@pytest.mark.parametrize(
    "added",
    [
        lambda found: {"mask": torch.ones_like(found["tokens"], dtype=torch.bool)},
        lambda found: {"position": torch.arange(24).expand(len(found["tokens"]), -1)},
        lambda found: {
            "missing": torch.zeros(len(found["tokens"]), 3),
            "numbers": torch.randn(len(found["tokens"]), 3),
        },
        lambda found: {"weight": torch.ones(len(found["tokens"]), 24)},
    ],
    ids=["mask", "positions", "nothing_missing", "ones"],
)
def test_constant_mask_or_position_beside_other_inputs_passes(added):
    assert on(constant, with_inputs(gpt(0), lambda found: found | added(found))).status == "pass"


def test_constant_single_columns_are_named_and_pass():
    def still(x):
        x[:, 3] = 2.0
        return x

    found = on(constant, planted(mlp(0), "numbers", still))
    assert found.status == "pass"
    assert "numbers: 1 of 12" in found.evidence


# ---- scaled ----------------------------------------------------------------------------------------------------------


class Raw(nn.Module):
    """Numbers of any size behind a norm, or encoded, or as they are."""

    def __init__(self, first: nn.Module, width: int = 12):
        super().__init__()
        self.first, self.layers = first, nn.Sequential(nn.Linear(width, 16), nn.ReLU(inplace=True), nn.Linear(16, 1))

    def forward(self, inputs):
        return self.layers(self.first(inputs["numbers"])).squeeze(1)


class WithEmbedding(nn.Module):
    """Numbers beside an embedding in one layer."""

    def __init__(self):
        super().__init__()
        self.embed, self.layer = nn.Embedding(10, 4), nn.Linear(16, 1)

    def forward(self, inputs):
        shop = (inputs["numbers"][:, 0].abs() * 3).long().clamp(max=9)
        return self.layer(torch.cat([inputs["numbers"], self.embed(shop)], dim=1)).squeeze(1)


class ByHand(nn.Module):
    """A layer written with a matrix product, and one vector a column as in FT-Transformers."""

    def __init__(self, columnwise: bool):
        super().__init__()
        shape = (12, 8) if columnwise else (12, 1)
        self.columnwise, self.weight = columnwise, nn.Parameter(torch.randn(shape) / 3)
        self.head = nn.Linear(8, 1)

    def forward(self, inputs):
        x = inputs["numbers"]
        if self.columnwise:
            return self.head((x.unsqueeze(-1) * self.weight).mean(dim=1)).squeeze(1)
        return (x @ self.weight).squeeze(1)


class ByTime(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.head = nn.GRU(3, 8, batch_first=True), nn.Linear(8, 1)

    def forward(self, inputs):
        return self.head(self.cells(inputs["numbers"].reshape(-1, 4, 3))[1][0]).squeeze(1)


def dollars(x):
    """One column in dollars beside others of size 1."""
    x[:, 2] = 40_000 + 15_000 * x[:, 2]
    return x


def pixels(x):
    return (x - x.min()) / (x.max() - x.min()) * 255


def conv_without_norm():
    return ForwardOf(
        "image",
        nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)),
        squeeze=False,
    )


@pytest.mark.parametrize("host", [mlp, cnn, unet, gpt])
def test_scaled_healthy_hosts_pass(host):
    assert on(scaled, host(0)).status == "pass"


@pytest.mark.parametrize(
    "setup",
    [
        planted(mlp(0), "numbers", dollars),
        planted(mlp(0), "numbers", lambda x: 1_600_000_000 + 1e6 * x),
        planted(replace(cnn(0), network=conv_without_norm), "image", pixels),
        planted(replace(cnn(0), network=conv_without_norm), "image", lambda x: pixels(x) / 255 / 255),
        planted(replace(mlp(0), network=WithEmbedding), "numbers", dollars),
        planted(replace(mlp(0), network=lambda: Raw(nn.LayerNorm(12))), "numbers", dollars),
        planted(replace(mlp(0), network=lambda: ByHand(False)), "numbers", dollars),
        planted(replace(mlp(0), network=lambda: ByHand(True)), "numbers", dollars),
        planted(replace(mlp(0), network=ByTime), "numbers", lambda x: x * 300),
    ],
    ids=[
        "dollars", "timestamps", "pixels", "divided_twice", "beside_embedding", "norm_over_columns", "matrix_product",
        "columnwise", "recurrent",
    ],
)  # fmt: skip
def test_scaled_raw_inputs_fail(setup):
    assert on(scaled, setup).status == "fail"


@pytest.mark.parametrize(
    "setup",
    [
        planted(replace(mlp(0), network=lambda: Raw(nn.BatchNorm1d(12))), "numbers", dollars),
        planted(cnn(0), "image", pixels),
        planted(replace(mlp(0), network=lambda: Raw(nn.BatchNorm1d(12, affine=False))), "numbers", lambda x: 2013 + x),
        planted(mlp(0), "numbers", lambda x: (x > 2).float()),
        planted(replace(mlp(0), claims=PreflightSpec(start="trained")), "numbers", lambda x: 120 * x),
    ],
    ids=["batch_norm_first", "convolution_and_norm", "years", "rare_categories", "trained"],
)
def test_scaled_raw_inputs_that_the_network_normalises_pass(setup):
    found = on(scaled, setup)
    assert found.status == "pass", found.evidence


# ---- labels ----------------------------------------------------------------------------------------------------------

cross_entropy = nn.CrossEntropyLoss(reduction="none")


def gathered(outputs, targets):
    """Cross-entropy by indexing, which takes -1 for the last class."""
    return -outputs.log_softmax(1)[torch.arange(len(outputs)), targets.long()]


def ordinal(outputs, targets):
    """Ranks from 0 to as many as there are outputs: each output asks for one rank more."""
    above = (targets[:, None] > torch.arange(outputs.shape[1])).float()
    return functional.binary_cross_entropy_with_logits(outputs, above, reduction="none").mean(1)


def leaving_out(label: int):
    def loss(outputs, targets):
        found = functional.cross_entropy(outputs.movedim(-1, 1), targets, ignore_index=label, reduction="none")
        return found.reshape(len(found), -1).mean(1)

    return loss


def mean_of_kept(outputs, targets):
    found = functional.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none")
    return found.sum(1) / (targets != -100).sum(1)


def padded(setup: Setup) -> Setup:
    """Sequences of other lengths, with 0 behind their ends."""

    def change(found):
        kept = torch.arange(found.shape[1]) < torch.linspace(2, found.shape[1], len(found)).round()[:, None]
        return found.clamp(min=1) * kept

    return with_targets(setup, change)


def masks_of_two(targets):
    return (targets > 0).float()


@pytest.mark.parametrize("host", [mlp, cnn, unet, gpt])
def test_labels_of_healthy_hosts_pass(host):
    assert on(labels_in_range, host(0)).status == "pass"


@pytest.mark.parametrize(
    ("setup", "told"),
    [
        (with_targets(cnn(0), lambda found: found + 1), "start at 1"),
        (with_targets(cnn(0), lambda found: found.where(found != 3, 14)), "0 … 9"),
        (replace(with_targets(cnn(0), lambda found: found - 1), loss_fn=gathered), "0 … 9"),
        (with_targets(gpt(0), lambda found: found.where(found != 3, 60)), "0 … 47"),
        (with_targets(unet(0), lambda found: found * 255), "0 and 1"),
        (with_targets(unet(0), lambda found: found / 255), "0 and 1"),
        (with_targets(mlp(0), lambda found: found + 1), "0 and 1"),
        (with_targets(mlp(0), lambda found: 2 * found - 1), "0 and 1"),
        (with_targets(mlp(0), lambda found: found * 0), ""),
        (with_targets(cnn(0), lambda found: found * 0 + 4), ""),
        (with_targets(regression(0), lambda found: found * 0 + 3.5), ""),
    ],
    ids=[
        "off_by_one", "beyond_head", "wrapped", "token_beyond", "mask_255", "mask_divided", "one_and_two", "minus_one",
        "only_zero", "only_four", "one_value",
    ],
)  # fmt: skip
def test_labels_that_do_not_fit_fail_with_the_fix(setup, told):
    found = on(labels_in_range, setup)
    assert found.status == "fail", found.evidence
    assert told in found.fix


@pytest.mark.parametrize(
    "setup",
    [
        with_targets(cnn(0), lambda found: found.where(found != 3, -100)),
        replace(
            with_targets(cnn(0), lambda found: found.where(found != 3, 255)),
            loss_fn=nn.CrossEntropyLoss(reduction="none", ignore_index=255),
        ),
        with_targets(cnn(0), lambda found: found.clamp(max=6)),
        with_targets(mlp(0), lambda found: found * 0.9 + 0.05),
        replace(
            with_targets(mlp(0), lambda found: 2 * found - 1), loss_fn=lambda o, t: functional.softplus(-o * t)
        ),
        replace(with_targets(mlp(0), lambda found: found + 1), loss_fn=lambda o, t: (o - t).square()),
        with_targets(regression(0), lambda found: found * 1e-3),
        replace(with_targets(mlp(0), lambda found: found * 0), loss_fn=lambda o, t: o.square()),
        replace(with_targets(cnn(0), lambda found: found.where(found < 9, 10)), loss_fn=ordinal),
        replace(padded(gpt(0)), loss_fn=leaving_out(0)),
        replace(with_targets(gpt(0), lambda found: found.where(found > 9, -100)), loss_fn=mean_of_kept),
        replace(mlp(0), loss_fn=lambda o, t: o * (1 - 2 * t)),
    ],
    ids=[
        "ignored", "ignored_255", "head_wider", "smoothed", "plus_minus_one", "squared", "tiny", "labels_unread",
        "ordinal", "padding", "mean_of_kept", "critic",
    ],
)  # fmt: skip
def test_labels_that_look_odd_and_fit_pass(setup):
    found = on(labels_in_range, setup)
    assert found.status == "pass", found.evidence


@pytest.mark.parametrize(
    ("setup", "severity"),
    [
        (replace(cnn(0), loss_fn=leaving_out(0)), "error"),
        (replace(with_targets(gpt(0), lambda found: found % 3), loss_fn=leaving_out(0)), "warning"),
    ],
    ids=["one_a_row", "many_a_row"],
)
def test_labels_of_a_real_class_that_the_loss_ignores_fail(setup, severity):
    found = on(labels_in_range, setup)
    assert (found.status, found.severity) == ("fail", severity), found.evidence
    assert "labels [0]" in found.evidence


@pytest.mark.parametrize(
    ("look", "setup"),
    [
        (labels_in_range, with_targets(regression(0), lambda found: found * 0 + torch.arange(len(found)) + 0.4321)),
        (
            labels_in_range,
            replace(with_targets(mlp(0), lambda found: found + 0.4321), loss_fn=lambda o, t: (t - 9).log()),
        ),
        (labels_scaled, with_targets(regression(0), lambda found: found * 0 + 4321.0)),
        (constant, planted(mlp(0), "numbers", lambda x: x * 0 + 4321.0)),
    ],
    ids=["measured", "not_finite", "scale", "constant"],
)
def test_values_of_single_rows_are_not_told(look, setup):
    setup = replace(setup, training=setup.training.take(torch.arange(19))) if look is labels_in_range else setup
    found = on(look, setup)
    assert "432" not in f"{found.evidence} {found.observed} {found.threshold}".replace(".", "")


def test_labels_that_many_rows_share_are_told():
    assert "from 0 to 9" in on(labels_in_range, cnn(0)).evidence


def test_labels_of_few_rows_that_are_equal_are_insufficient():
    base = with_targets(mlp(0), lambda found: found * 0)
    few = replace(base.training, inputs={"numbers": base.training.inputs["numbers"][:8]}, targets=torch.zeros(8))
    assert on(labels_in_range, replace(base, training=few)).status == "insufficient"


def test_labels_declared_unused_are_not_looked_at():
    unused = replace(with_targets(mlp(0), lambda found: found * 0), claims=PreflightSpec(labels="unused"))
    assert on(labels_in_range, unused).status == "not_applicable"


def product(outputs, targets):
    return 1 - (outputs * targets).sum(1)


class Direction(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Linear(12, 2)

    def forward(self, inputs):
        return functional.normalize(self.layers(inputs["numbers"]), dim=1)


@pytest.mark.parametrize(
    ("network", "status"),
    [
        (Direction, "pass"),
        (lambda: ForwardOf("numbers", nn.Sequential(nn.Linear(12, 2), nn.Tanh())), "pass"),
        (lambda: ForwardOf("numbers", nn.Linear(12, 2)), "fail"),
    ],
    ids=["directions", "tanh", "free"],
)
def test_similarity_is_asked_for_outputs_that_the_network_can_give(network, status):
    angle = 2 * scores(0, 1500)[1]
    ways = torch.stack([angle.cos(), angle.sin()], 1)
    setup = replace(regression(0), network=network, loss_fn=product)
    parts = {"training": ways[:1200], "held_out": ways[1200:]}
    setup = replace(setup, **{name: replace(getattr(setup, name), targets=found) for name, found in parts.items()})
    found = on(labels_in_range, setup)
    assert found.status == status, found.evidence


@pytest.mark.parametrize(
    "setup",
    [regression(0, size=1e6), regression(0, at=1e5), regression(0, size=1e6, optimizer="sgd")],
    ids=["large", "far", "sgd"],
)
def test_labels_out_of_reach_fail_as_a_warning(setup):
    assert on(labels_scaled, setup).status == "fail"
    assert next(check for check in CHECKS if check.id == "inputs.labels_scaled").severity == "warning"


@pytest.mark.parametrize(
    "setup",
    [
        regression(0),
        regression(0, size=20.0),
        replace(regression(0, size=1e6), loss_fn=lambda o, t: (o - t / 1e6).square()),
    ],
    ids=["standard", "twenty", "scaled_in_the_loss"],
)
def test_labels_in_reach_pass(setup):
    found = on(labels_scaled, setup)
    assert found.status == "pass", found.evidence


def test_labels_of_classes_have_no_scale():
    assert on(labels_scaled, mlp(0)).status == "not_applicable"
