"""Parts of trainings of masks and of texts, exchanged: the plain network of places stands in for their own."""

from pathlib import Path

import mask_jobs
import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn import functional

from trainworthy.lifecycle.engine.substitution.answer_loss import answer_loss, answers_of, output_loss
from trainworthy.lifecycle.engine.substitution.diagnose import run_diagnosis
from trainworthy.lifecycle.engine.substitution.plain_places import (
    PlaceInputs,
    PlainPlaces,
    described_places,
    tells_target,
)
from trainworthy.lifecycle.engine.training.judging.places import channels_of
from trainworthy.lifecycle.gates.diagnosis import ORDER
from trainworthy.lifecycle.protocol.jobs import DiagnoseJob, Rows, TrainJob
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.spec.training import StagesSpec, TrainingSpec
from trainworthy.lifecycle.tasks import kind_of

MASKS = Target(kind="segmentation", classes=("ground", "square"))
TEXTS = Target(kind="language_model", length=48)
TEXT_MODEL = """
import numpy as np
import torch
from torch import nn


def fit_preprocessing(training, hyperparameters):
    return {}


def to_tensors(rows, preprocessing):
    # As Trainworthy adds it to the state.
    before = np.full((len(rows), preprocessing["target"]["length"]), 256, dtype=np.int64)
    for row, text in enumerate(rows["text"]):
        data = np.frombuffer(text.encode(), dtype=np.uint8)[:48]
        before[row, 1 : len(data) + 1] = data[:47]
    return {"before": torch.from_numpy(before)}


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = nn.Embedding(257, 16)
        self.layers = nn.Sequential(nn.Conv1d(16, 64, 4), nn.ReLU(), nn.Conv1d(64, 256, 1))

    def forward(self, inputs):
        codes = nn.functional.pad(self.codes(inputs["before"]).transpose(1, 2), (3, 0))
        return self.layers(codes).transpose(1, 2)


def build_model(preprocessing, hyperparameters):
    return Network()


def loss_fn(outputs, targets):
    losses = nn.functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none")
    return losses.sum(dim=1) / (targets >= 0).sum(dim=1)


def predict(outputs):
    return outputs.softmax(dim=-1)
"""
WORDS = ("river", "stone", "under", "light", "seven", "apple")


def diagnosed(job: TrainJob, parts=ORDER):
    asked = DiagnoseJob(
        use_case_folder=job.use_case_folder, out=job.out, device="cpu", training=job, parts=parts, most=9,
        trainings=99.0,
    )  # fmt: skip
    return run_diagnosis(asked).diagnosis


def by_part(found):
    return {one.part: one for one in found.exchanges}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    return mask_jobs.write_files(tmp_path_factory.mktemp("masks"))


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """Six words in random order, and rows of three splits."""
    folder, random = tmp_path_factory.mktemp("texts"), np.random.default_rng(0)
    lines = [" ".join(random.choice(WORDS, int(random.integers(4, 8)))) for _ in range(480)]
    table = pd.DataFrame({"text": lines, "next_bytes": lines, "page": np.arange(480) // 12})
    for split, pages in (("training", (0, 1)), ("validation", (2,)), ("calibration", (3,))):
        table[(table["page"] % 4).isin(pages)].to_parquet(folder / f"{split}.parquet", index=False)
    return folder


def text_job(texts: Path, folder: Path, *changed: tuple[str, str], training: str = "training.parquet") -> TrainJob:
    folder.mkdir()
    source = TEXT_MODEL
    for old, new in changed:
        assert old in source, old
        source = source.replace(old, new)
    (folder / "model.py").write_text(source)
    return TrainJob(
        use_case_folder=str(folder), out=str(folder / "out"), device="cpu", identity="texts", stage="pilot",
        rows=Rows(features=("text",), label="next_bytes", group="page", target=TEXTS),
        stages=StagesSpec.model_validate({"smoke": 0.1, "pilot": 1.0, "full": 1.0}),
        training=TrainingSpec.model_validate(
            {"optimizer": {"name": "adamw", "learning_rate": 0.01, "weight_decay": 0.0}, "batch_size": 16, "epochs": 8,
             "schedule": {"warmup": 0.1, "decay": "cosine"}, "precision": "fp32", "clip_norm": 1.0, "seed": 0}
        ),
        hyperparameters={}, training_file=str(texts / training),
        validation_file=str(texts / "validation.parquet"), calibration_file=str(texts / "calibration.parquet"),
    )  # fmt: skip


def test_network_that_does_not_see_the_picture_is_named(files, tmp_path):
    found = diagnosed(mask_jobs.job(files, tmp_path / "blind", seen=0, epochs=5), ("recipe", "network"))
    assert found.at_fault == "network"
    assert by_part(found)["network"].told == "two hidden layers of convolutions"


def test_pictures_that_to_tensors_loses_are_found_in_the_columns(files, tmp_path):
    lost = ("(pictures - 0.5)", "(0 * pictures)")
    found = diagnosed(mask_jobs.job(files, tmp_path / "lost", lost, epochs=4), ("network", "inputs"))
    assert found.at_fault == "inputs"


def test_augmentation_that_moves_pictures_alone_is_named_and_not_the_inputs_that_come_without_it(files, tmp_path):
    alone = (
        "def predict(",
        "def augment(inputs, targets, generator):\n    picture = inputs['picture']\n"
        "    return {'picture': picture.flip(3)}, targets\n\n\ndef predict(",
    )
    found = diagnosed(mask_jobs.job(files, tmp_path / "alone", alone), ("network", "regularization", "inputs"))
    assert found.at_fault == "regularization"
    assert "regularization" in by_part(found)["inputs"].contains


def test_masks_of_other_pictures_are_named_as_training_rows(files, tmp_path):
    job = mask_jobs.job(files, tmp_path / "shuffled", training=mask_jobs.shuffled(files))
    assert diagnosed(job, ("network", "rows")).at_fault == "rows"


def test_sound_network_of_masks_is_at_fault_in_nothing(files, tmp_path):
    # With the eight channels of its own, a plain network learns measurably more.
    wide = (
        "nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3, padding=1)",
        "nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(), nn.Conv2d(32, 2, 1)",
    )
    found = diagnosed(mask_jobs.job(files, tmp_path / "sound", wide), ("network", "inputs", "rows"))
    assert found.at_fault is None, by_part(found)


def test_network_that_sees_no_byte_before_is_named(texts, tmp_path):
    blind = ('self.codes(inputs["before"])', '0 * self.codes(inputs["before"])')
    found = diagnosed(text_job(texts, tmp_path / "blind", blind), ("recipe", "network"))
    assert found.at_fault == "network"
    assert by_part(found)["network"].told == "two hidden layers on the bytes before"


def test_bytes_that_to_tensors_loses_are_found_in_the_columns(texts, tmp_path):
    lost = ("data[:47]", "data[:47] // 64")
    found = diagnosed(text_job(texts, tmp_path / "lost", lost), ("network", "inputs"))
    assert found.at_fault == "inputs"


def test_columns_of_a_text_tell_nothing_of_what_comes(texts):
    kind, rows = kind_of(TEXTS), pd.read_parquet(texts / "training.parquet")
    read, before = kind.fit_place_inputs(rows, ["text"], kind.checked_labels(rows["next_bytes"].to_numpy()))
    changed = rows.assign(text=[text[:20] + "z" * (len(text) - 20) for text in rows["text"]])
    assert read == ("text",)
    assert np.array_equal(before(rows)["before"][:, :21], before(changed)["before"][:, :21])
    assert not np.array_equal(before(rows)["before"][:, 21:], before(changed)["before"][:, 21:])


def test_sound_network_of_texts_is_at_fault_in_nothing(texts, tmp_path):
    found = diagnosed(text_job(texts, tmp_path / "sound"))
    assert found.at_fault is None, by_part(found)


def test_network_that_shifts_its_text_itself_is_held_against_one_that_does_so_too(texts, tmp_path):
    # to_tensors gives each byte at its own place, and the network sees those before it alone.
    own = (
        ("before[row, 1 : len(data) + 1] = data[:47]", "before[row, : len(data)] = data"),
        ("(3, 0))", "(4, -1))"),
    )  # fmt: skip
    found = diagnosed(text_job(texts, tmp_path / "own", *own), ("network",))
    network = by_part(found)["network"]
    assert found.at_fault is None
    assert network.loss is not None
    # One that saw the byte it answers would have no loss.
    assert network.loss > 0.5 * found.loss


def test_no_plain_network_takes_inputs_without_the_places_of_the_answers(files, tmp_path):
    flat = (
        ("[:, None]}", ".flatten(1)}"),
        ('self.layers(inputs["picture"])', 'self.layers(inputs["picture"].reshape(-1, 1, 16, 16))'),
    )
    found = by_part(diagnosed(mask_jobs.job(files, tmp_path / "flat", *flat, epochs=1), ("network", "inputs")))
    assert (found["network"].status, found["network"].code) == ("not_tried", "not_exchangeable")
    assert "16 x 16 places" in (found["network"].told or "")
    assert found["inputs"].loss is not None


@pytest.mark.parametrize(("target", "places"), [(MASKS, (20, 30)), (TEXTS, (48,))])
def test_loss_of_a_plain_networks_outputs_is_that_of_its_answers(target, places):
    kind, generator = kind_of(target), torch.Generator().manual_seed(0)
    targets = torch.from_numpy(kind.targets(kind.sample_truth(40, places)))
    shape = (40, kind.answer_shape[-1], *places) if kind.class_axis == 1 else (40, *places, kind.answer_shape[-1])
    outputs = torch.randn(shape, generator=generator)
    answers = answers_of(kind, outputs)
    torch.testing.assert_close(
        output_loss(kind, (), 1.0)(outputs, targets), answer_loss(kind, (), 1.0)(answers, targets),
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_answers_of_half_a_masks_size_have_the_loss_of_the_nearest_points():
    targets = torch.randint(0, 2, (5, 8, 12), generator=torch.Generator().manual_seed(0))
    answers = torch.rand(5, 2, 4, 6).softmax(dim=1)
    whole = answers.repeat_interleave(2, 2).repeat_interleave(2, 3)
    loss = answer_loss(kind_of(MASKS), (), 1.0)
    assert torch.equal(loss(answers, targets), loss(whole, targets))


def test_plain_network_takes_inputs_with_and_without_places_in_any_layout():
    kind, places = kind_of(MASKS), (16, 24)
    inputs = {
        "first": torch.randn(6, 3, 32, 48), "last": torch.randn(6, 16, 24, 3), "grey": torch.randn(6, 16, 24),
        "codes": torch.randint(0, 5, (6, 16, 24)), "row": torch.randn(6, 4), "none": torch.zeros(6, 0),
        "places of picture": torch.randn(6, 3, 32, 32),
    }  # fmt: skip
    # Columns have a grid of their own, whatever the proportions of the masks.
    spec = described_places(inputs, places, (), {"places of picture": "first"}, standardized=True)
    assert {name: one.channels for name, one in spec.places.items()} == {
        "first": "first", "last": "last", "grey": "none", "codes": "none",
        "places of picture": "first",
    }  # fmt: skip
    assert list(spec.rows) == ["row"]
    model = PlainPlaces(PlaceInputs.of_state(spec.state()), kind, places)
    outputs = model(inputs)
    assert outputs.shape == (6, 2, 16, 24)
    other = model(inputs | {"row": inputs["row"] + 1, "codes": torch.full((6, 16, 24), 99)})
    assert not torch.equal(outputs, other)
    assert other.isfinite().all()


def test_plain_network_of_texts_sees_nothing_of_a_place_and_what_follows_where_that_is_the_answer():
    kind, places = kind_of(TEXTS), (48,)
    inputs = {"bytes": torch.randint(0, 256, (4, 48))}
    changed = {"bytes": inputs["bytes"].clone()}
    changed["bytes"][:, 20:] = 7
    for late, known in ((("bytes",), 21), ((), 20)):
        torch.manual_seed(0)
        model = PlainPlaces(described_places(inputs, places, late, {}, standardized=False), kind, places)
        outputs, other = model(inputs), model(changed)
        assert outputs.shape == (4, 48, 256)
        assert torch.equal(outputs[:, :known], other[:, :known])
        assert not torch.equal(outputs[:, known], other[:, known])


def test_code_tells_its_target_only_where_it_is_the_target_in_another_writing():
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 20, (30, 40), generator=generator)
    assert tells_target((targets * 7) % 101, targets)
    ended = targets.clone()
    ended[:, 30:] = -100
    assert tells_target(functional.pad(targets[:, :30], (0, 10), value=999), ended)
    assert not tells_target(targets.roll(1, 1), targets)
    assert not tells_target(torch.zeros_like(targets), torch.zeros_like(targets))


def test_channels_are_told_by_the_places_beside_them():
    assert channels_of(torch.zeros(2, 3, 8, 12), (16, 24)) == "first"
    assert channels_of(torch.zeros(2, 8, 12, 3), (16, 24)) == "last"
    assert channels_of(torch.zeros(2, 8, 12), (16, 24)) == "none"
    assert channels_of(torch.zeros(2, 12, 8), (16, 24)) is None
    assert channels_of(torch.zeros(2, 96), (16, 24)) is None
    assert channels_of(torch.zeros(2, 47), (48,)) is None
