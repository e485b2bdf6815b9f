"""Augmentation that draws as it should, and pairs that stay together; each fault of either is found."""

import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional

from benchmarks.healthy_odd import mixup, moved_images, soft_targets, three_class_masks
from benchmarks.healthy_unlabelled import masked_language_model
from benchmarks.networks import cnn, gpt, mlp, unet
from benchmarks.setup import ForwardOf, Setup
from trainworthy.lifecycle.engine.preflight.inputs.augmentation import varies
from trainworthy.lifecycle.engine.preflight.inputs.pairs import pairs_together
from trainworthy.lifecycle.engine.preflight.subject import Subject
from trainworthy.lifecycle.engine.training.rows.loading import LoadedRows
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData
from trainworthy.lifecycle.gates.check import Outcome
from trainworthy.lifecycle.plan import Plan
from trainworthy.lifecycle.spec.preflight import PreflightSpec


def on(look, setup: Setup) -> Outcome:
    torch.manual_seed(0)
    return look(setup.subject())


def images(change, host=unet) -> Setup:
    """The host with an augmentation that is given image, targets and generator."""

    def augment(inputs, targets, generator):
        image, targets = change(inputs["image"], targets, generator)
        return {"image": image}, targets

    return replace(host(0), augment=augment)


def tokens(change) -> Setup:
    def augment(inputs, targets, generator):
        found, targets = change(inputs["tokens"], targets, generator)
        return {"tokens": found}, targets

    return replace(gpt(0), augment=augment)


def coin(rows, generator):
    return torch.rand(rows, generator=generator) < 0.5


# ---- varies ----------------------------------------------------------------------------------------------------------

OWN = torch.Generator().manual_seed(3)
CALLS = np.random.default_rng(3)


def noise(image, generator):
    return image + 0.1 * torch.randn(image.shape, generator=generator)


def in_part(image, targets, generator):
    """A crop from the given generator, a mirror from Python's."""
    image = noise(image, generator)
    return (image.flip(-1) if random.random() < 0.5 else image), targets


def rarely(image, targets, generator):
    return (noise(image, generator) if torch.rand(1, generator=generator) < 0.3 else image), targets


class Noisy(ForwardOf):
    """Adds noise to its input in evaluation too."""

    def forward(self, inputs):
        return super().forward({"image": inputs["image"] + 0.3 * torch.randn_like(inputs["image"])})


@pytest.mark.parametrize(
    "setup",
    [
        moved_images(0),
        mixup(0),
        masked_language_model(0),
        images(rarely),
        images(lambda i, t, g: (noise(i, g), t), cnn),
    ],
    ids=["moved", "mixup", "hidden", "rarely", "noise"],
)
def test_augmentation_that_varies_by_its_generator_passes(setup):
    found = on(varies, setup)
    assert found.status == "pass", found.evidence


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda i, t, g: (i + torch.randn_like(i), t), "draws of torch, numpy or random"),
        (lambda i, t, g: (i * float(np.random.uniform(0.5, 2)), t), "draws of torch, numpy or random"),
        (in_part, "draws of torch, numpy or random"),
        (lambda i, t, g: (i + torch.randn(i.shape, generator=OWN), t), "a generator of its own"),
        (lambda i, t, g: (i * float(CALLS.uniform(0.5, 2)), t), "a generator of its own"),
        (lambda i, t, g: (i * float(np.random.default_rng().uniform(0.5, 2)), t), "a generator of its own"),
        (lambda i, t, g: (noise(i, torch.Generator().manual_seed(0)), t), "a seed that is fixed"),
        (lambda i, t, g: (i.flip(-1), t.flip(-1)), "a seed that is fixed"),
        (lambda i, t, g: (i, t), "a probability of zero"),
    ],
    ids=["torch", "numpy", "in_part", "own", "own_numpy", "no_seed", "fixed_seed", "no_draw", "nothing"],
)
def test_augmentation_that_does_not_vary_as_it_should_fails_with_its_cause(change, cause):
    found = on(varies, images(change))
    assert found.status == "fail", found.evidence
    assert cause in found.cause


def test_augmentation_within_the_network_in_evaluation_fails():
    base = images(lambda i, t, g: (noise(i, g), t), cnn)
    layers = cnn(0).network().layers
    noisy = replace(base, network=lambda: Noisy("image", layers, squeeze=False))
    assert on(varies, noisy).status == "fail"
    assert on(varies, replace(noisy, claims=PreflightSpec(evaluation="stochastic"))).status == "pass"


def in_loaders(augment, loaders=1):
    """A table whose batches real loader processes make."""
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))

    def to_tensors(rows):
        return {"x": torch.tensor(rows.to_numpy(), dtype=torch.float32)}

    def build():
        torch.manual_seed(0)
        return ForwardOf("x", nn.Linear(4, 1))

    recipe = Recipe(
        lambda o, t: functional.binary_cross_entropy_with_logits(o, t, reduction="none"),
        learning_rate=lambda step: 0.01, clip_norm=1.0, augment=augment,
    )  # fmt: skip
    data = TrainData({"x": x}, (x[:, 0] > 0).float())
    rows = LoadedRows(to_tensors, Path("."), pd.DataFrame(x.numpy()), data.targets, "cpu", loaders=loaders, seed=0)
    plan = Plan(rows=64, batch_size=16, steps_per_epoch=4, horizon_steps=40, first_step=0, last_step=40, seed=0)
    optimizers = lambda model: (torch.optim.SGD(model.parameters(), lr=0.01),)
    return Subject(build, optimizers, recipe, data, data, plan, loaded=rows.in_loaders(recipe)[0])


def by_generator(inputs, targets, generator):
    return {"x": noise(inputs["x"], generator)}, targets


def by_torch(inputs, targets, generator):
    return {"x": inputs["x"] + torch.randn(inputs["x"].shape) + random.random() + float(np.random.rand())}, targets


def by_a_generator_of_ones_own(inputs, targets, generator):
    return {"x": inputs["x"] + torch.randn(inputs["x"].shape, generator=OWN)}, targets


def by_process(inputs, targets, generator):
    return {"x": inputs["x"] + os.getpid() % 1000}, targets


def by_a_fixed_seed(inputs, targets, generator):
    return {"x": noise(inputs["x"], torch.Generator().manual_seed(7))}, targets


@pytest.mark.parametrize("loaders", [1, 2])
@pytest.mark.parametrize("augment", [by_generator, by_torch])
def test_augmentation_in_loaders_that_differs_by_step_alone_passes(augment, loaders):
    found = varies(in_loaders(augment, loaders))
    assert found.status == "pass", found.evidence
    assert f"by {loaders} and {3 - loaders} loaders" in found.evidence


@pytest.mark.parametrize(
    ("augment", "told"),
    [
        (by_a_generator_of_ones_own, "by 2 loaders than by 1"),
        (by_process, "by 2 loaders than by 1"),
        (by_a_fixed_seed, "augmented alike"),
        (lambda inputs, targets, generator: (inputs, targets), "changes nothing"),
    ],
)
def test_augmentation_in_loaders_that_differs_by_process_or_not_at_all_fails(augment, told):
    found = varies(in_loaders(augment))
    assert found.status == "fail", found.evidence
    assert told in found.evidence


@pytest.mark.parametrize("host", [mlp, cnn, unet, gpt])
def test_no_augmentation_is_not_applicable(host):
    assert on(varies, host(0)).status == on(pairs_together, host(0)).status == "not_applicable"


# ---- pairs -----------------------------------------------------------------------------------------------------------


def mirrored(image, masks, generator):
    where = coin(len(image), generator)
    return torch.where(where[:, None, None, None], image.flip(-1), image), torch.where(
        where[:, None, None], masks.flip(-1), masks
    )


def turned(image, masks, generator):
    times = int(torch.randint(0, 4, (1,), generator=generator))
    return torch.rot90(image, times, (2, 3)), torch.rot90(masks, times, (1, 2))


def coloured(image, masks, generator):
    bright, contrast = torch.rand(2, len(image), 1, 1, 1, generator=generator)
    return noise(image * (0.6 + 0.8 * contrast) + 0.6 * (bright - 0.5), generator), masks


def erased(image, masks, generator):
    image, (top, left) = image.clone(), torch.randint(0, 12, (2,), generator=generator).tolist()
    image[:, :, top : top + 4, left : left + 4] = 0
    return image, masks


def affine(image, masks, generator, only_image=False, mode="nearest"):
    """Turned by up to 30° about the centre."""
    angle = (torch.rand(len(image), generator=generator) - 0.5) * 1.05
    theta = torch.stack([angle.cos(), -angle.sin(), 0 * angle, angle.sin(), angle.cos(), 0 * angle], 1).view(-1, 2, 3)
    grid = functional.affine_grid(theta, list(image.shape), align_corners=False)
    turned_image = functional.grid_sample(image, grid, align_corners=False)
    if only_image:
        return turned_image, masks
    moved = functional.grid_sample(masks[:, None].float(), grid, mode=mode, align_corners=False)[:, 0]
    return turned_image, moved.to(masks.dtype)


def resized(image, masks, generator, mode="nearest"):
    """The middle twelve of sixteen pixels, at the full size again."""
    top, left = torch.randint(0, 5, (2,), generator=generator).tolist()
    image, masks = (one[..., top : top + 12, left : left + 12] for one in (image, masks))
    image = functional.interpolate(image, size=(16, 16), mode="bilinear", align_corners=False)
    extra = {} if mode == "nearest" else {"align_corners": False}
    return image, functional.interpolate(masks[:, None].float(), size=(16, 16), mode=mode, **extra)[:, 0].to(
        masks.dtype
    )


def cut_and_mixed(image, masks, generator):
    other = torch.randperm(len(image), generator=generator)
    image, masks = image.clone(), masks.clone()
    image[..., :8], masks[..., :8] = image[other][..., :8], masks[other][..., :8]
    return image, masks


def shifted(image, masks, generator, only_image=True):
    down, across = torch.randint(2, 7, (2,), generator=generator).tolist()
    return image.roll((down, across), (2, 3)), masks if only_image else masks.roll((across, down), (1, 2))


@pytest.mark.parametrize(
    "setup",
    [
        moved_images(0), images(mirrored), images(turned), images(coloured), images(erased), images(affine),
        images(resized), images(cut_and_mixed), images(mirrored, three_class_masks), images(affine, three_class_masks),
        images(lambda i, t, g: coloured(*mirrored(i, t, g), g)),
    ],
    ids=[
        "moved", "mirrored", "turned", "coloured", "erased", "affine", "resized", "cut_and_mixed", "three_classes",
        "three_classes_affine", "both",
    ],
)  # fmt: skip
def test_pairs_that_are_changed_together_pass(setup):
    found = on(pairs_together, setup)
    assert found.status == "pass", found.evidence


@pytest.mark.parametrize(
    "setup",
    [
        images(lambda i, t, g: (mirrored(i, t, g)[0], t)),
        images(lambda i, t, g: (i, mirrored(i, t, g)[1])),
        images(lambda i, t, g: (mirrored(i, t, g)[0], mirrored(i, t, g)[1])),
        images(shifted),
        images(lambda i, t, g: shifted(i, t, g, only_image=False)),
        images(lambda i, t, g: affine(i, t, g, only_image=True)),
        images(lambda i, t, g: (resized(i, t, g)[0], resized(i, t, g)[1])),
        images(lambda i, t, g: resized(i, t, g, mode="bilinear")),
        images(lambda i, t, g: affine(i, t, g, mode="bilinear")),
        images(lambda i, t, g: resized(i, t, g, mode="bilinear"), three_class_masks),
        images(lambda i, t, g: (coloured(*mirrored(i, t, g), g)[0], t)),
        images(lambda i, t, g: (i[torch.randperm(len(i), generator=g)], t)),
    ],
    ids=[
        "mirrored_image", "mirrored_mask", "two_draws", "shifted", "axes", "affine_image", "two_crops",
        "interpolated", "interpolated_affine", "interpolated_classes", "mirrored_and_coloured", "rows_mixed_up",
    ],
)  # fmt: skip
def test_pairs_that_are_changed_apart_fail(setup):
    found = on(pairs_together, setup)
    assert found.status == "fail", found.evidence


def mixed_images(inputs, targets, generator):
    other = torch.randperm(len(targets), generator=generator)
    share = 0.5 * float(torch.rand(1, generator=generator)) + 0.4
    return {"image": (1 - share) * inputs["image"] + share * inputs["image"][other]}, targets


def overlaid(inputs, targets, generator):
    """A tenth of another row, as noise."""
    other = torch.randperm(len(targets), generator=generator)
    return {"image": 0.9 * inputs["image"] + 0.1 * inputs["image"][other]}, targets


def test_mixed_rows_need_mixed_targets():
    assert on(pairs_together, mixup(0)).status == "not_applicable"
    assert on(pairs_together, replace(soft_targets(0), augment=overlaid)).status == "not_applicable"
    assert on(pairs_together, replace(cnn(0), augment=mixed_images)).status == "fail"


def rolled(x, generator, low=1):
    return x.roll(int(torch.randint(low, 9, (1,), generator=generator)), 1)


def replaced(x, generator):
    """A seventh of the tokens is another."""
    other = torch.randint(0, 47, x.shape, generator=generator)
    return x.where(torch.rand(x.shape, generator=generator) > 0.15, other)


def test_sequences_that_stay_shifted_pass():
    together = tokens(
        lambda x, t, g: (lambda n: (x.roll(n, 1), t.roll(n, 1)))(int(torch.randint(1, 9, (1,), generator=g)))
    )
    for setup in (together, tokens(lambda x, t, g: (replaced(x, g), t))):
        found = on(pairs_together, setup)
        assert found.status == "pass", found.evidence


@pytest.mark.parametrize(
    "change",
    [
        lambda x, t, g: (rolled(x, g), t),
        lambda x, t, g: (x.flip(1), t),
        lambda x, t, g: (x, rolled(t, g)),
    ],
    ids=["inputs", "reversed", "targets"],
)
def test_sequences_whose_shift_changes_fail(change):
    found = on(pairs_together, tokens(change))
    assert found.status == "fail", found.evidence
