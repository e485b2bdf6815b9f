"""The hosts of benchmarks/tasks.py, the mistakes planted in each and its healthy odd variants.

A host is a use case's folder and a table. To add one: an entry in HOSTS, a part in PLANTED with mistakes of different
mechanism, and one in HEALTHY.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.tasks_pictures import (
    DISC,
    each,
    exchanged,
    fewer_with,
    ground_alike,
    held_out_arrays,
    in_second_half_of_training,
    mask_in_blue,
    masks_of,
    opened,
    shapes,
    shapes_moved,
)
from benchmarks.tasks_rows import (
    Mutation,
    changed,
    copied,
    digits_moved,
    fewer_names,
    flats,
    flats_moved,
    flight_rows,
    flights_moved,
    heavy_tailed,
    held_out,
    in_second_half,
    of_next_row,
    rarer,
    renamed,
    shuffled,
    sky,
    sky_moved,
    twice,
    without,
)
from benchmarks.tasks_texts import (
    backwards,
    ciphered,
    cut,
    headed,
    mixed,
    overlapping,
    spaced,
    texts,
    topics,
    topics_moved,
)

# In which file of the use case, what, by what.
Change = tuple[str, str, str]


class Host(NamedTuple):
    """A use case of this repository on rows of one of its published datasets; one that `trainworthy new` drafts; or one
    whose `files` lie in a folder beside this bench.

    `rows` makes the host's table of the dataset's files; `made` makes a table, which `new` is given with `options`
    where there are no `files`. `changes` are made before any case's: a split for fewer rows, for example.
    """

    kind: str
    dataset: tuple[str, str] = ("", "")
    rows: Callable[[Path], pd.DataFrame] = pd.read_parquet
    changes: tuple[Change, ...] = ()
    made: Callable[[], pd.DataFrame] | None = None
    options: tuple[str, ...] = ()
    files: Path | None = None


class Case(NamedTuple):
    """Changes of a use case's files, and of its rows; `cause` are words of the true cause, empty for a healthy case."""

    host: str
    name: str
    changes: tuple[Change, ...] = ()
    cause: str = ""
    rows: Mutation | None = None


MODEL, YAML, CONTRACT = "model.py", "use_case.yaml", "contract.yaml"
ROLLED = "def augment(inputs, targets, generator):\n    return inputs, targets.roll(1)\n\n\ndef loss_fn("
ROLL = (MODEL, "def loss_fn(", ROLLED)
DRAWN = "targets[torch.randperm(len(targets), generator=generator)]"
SHUFFLE = (MODEL, "def loss_fn(", ROLLED.replace("targets.roll(1)", DRAWN))
PER_BATCH = (YAML, "training:\n", "training:\n  tensors: per_batch\n")
# Four months, a sixth of their departures: training January to February, benchmark the last weeks of April.
FEWER_FLIGHTS = (
    (YAML, "benchmark: {window: 30d,", "benchmark: {window: 20d,"),
    (YAML, "batch_size: 1024", "batch_size: 256"),
    (YAML, "stages: {smoke: 0.01, pilot: 0.10,", "stages: {smoke: 0.05, pilot: 0.30,"),
)
SMALL_NETWORK = ((YAML, "width: 16,", "width: 8,"), (YAML, "epochs: ", "epochs: 20  # "))
HOSTS = {
    "flight_delays": Host("binary", ("flights", "v4"), flight_rows, FEWER_FLIGHTS),
    "digits": Host("multiclass", ("digits", "v1")),
    "flat_rents": Host("regression", made=flats, options=("--target", "rent", "--time", "signed", "--key", "flat")),
    "arrival_delay": Host("quantiles", ("flights", "v4"), flight_rows, FEWER_FLIGHTS),
    "sky": Host("multilabel", made=sky, options=("--target", "sky", "--key", "moment", "--group", "date")),
    "shapes": Host("segmentation", rows=opened, changes=SMALL_NETWORK, made=shapes, options=("--group", "prefix")),
    "topics": Host("language_model", made=topics, files=Path(__file__).parent / "topics"),
}


def _rate(old: str, new: str) -> tuple[Change, ...]:
    return ((YAML, f"learning_rate: {old}", f"learning_rate: {new}"),)


def _late(frame: pd.DataFrame) -> pd.Series:
    return frame["arr_delay"] > 15


def _gusts_where_late(frame: pd.DataFrame) -> pd.Series:
    return (1.3 * frame["wind_speed"]).where(_late(frame))


def _noisy(frame: pd.DataFrame, column: str, spread: float) -> pd.Series:
    return frame[column] + np.random.default_rng(0).normal(0, spread, len(frame))


def _digit(frame: pd.DataFrame) -> pd.Series:
    return frame["digit"]


# What the first check to stop says of labels that nothing in the inputs tells.
NO_SIGNAL = "label|shuffl"

LATE_LOSS = "binary_cross_entropy_with_logits(outputs, targets,"
LATE_PREDICT = "return torch.sigmoid(outputs)"
LATE_OUT = "return (self.linear(encoded) + self.head(hidden)).squeeze(1)"
LATE_NUMERIC = "np.where(missing, np.float32(0), numeric)"
LATE_MISSING = (
    'numeric = np.column_stack([rows[name].to_numpy(np.float32, na_value=np.nan) for name in preprocessing["edges"]])'
)
BINARY = (
    Case("flight_delays", "sigmoid before a loss of logits", ((MODEL, LATE_LOSS,
          LATE_LOSS.replace("(outputs,", "(torch.sigmoid(outputs),")),), "sigmoid|squash|probabilit|logit"),
    Case("flight_delays", "probability of the other class", ((MODEL, LATE_PREDICT,
          "return 1 - torch.sigmoid(outputs)"),),
         "predict|other class|turned|order"),
    Case("flight_delays", "logits as probabilities", ((MODEL, LATE_PREDICT, "return outputs"),), "predict|probabilit"),
    Case("flight_delays", "labels of other rows", (ROLL,), "label|pair|belong"),
    Case("flight_delays", "a rate near zero", _rate("0.003", "1.0e-9"), "rate"),
    Case("flight_delays", "outputs without gradient", ((MODEL, LATE_OUT, LATE_OUT + ".detach().requires_grad_()"),),
         "gradient|detach"),
    Case("flight_delays", "dropout in evaluation too", ((MODEL, "self.dropout(nn.functional.silu(layer(hidden)))",
          "nn.functional.dropout(nn.functional.silu(layer(hidden)), 0.3, training=True)"),),
         "dropout|random|evaluation"),
    Case("flight_delays", "scaled by the batch's own rows", ((MODEL, LATE_MISSING, LATE_MISSING
          + "\n    numeric = (numeric - np.nanmean(numeric, axis=0)) / (np.nanstd(numeric, axis=0) + 1)"),),
         "other rows|beside|on its own|rows at hand"),
    Case("flight_delays", "labels shuffled", (), NO_SIGNAL, shuffled("arr_delay")),
    Case("flight_delays", "the outcome in a feature", (), "decide|single_feature|leak",
         changed("tail_slack_minutes", lambda frame: _noisy(frame, "arr_delay", 3.0))),
    Case("flight_delays", "labels of the next row", (), NO_SIGNAL, of_next_row("arr_delay")),
    Case("flight_delays", "late and on time exchanged after training", (), "drift|label|class",
         held_out("arr_delay", lambda delay: (30 - delay).clip(-170))),
    Case("flight_delays", "a column that a join lost", (), "null|constant|empty|tail_slack",
         changed("tail_slack_minutes", lambda frame: np.nan)),
    Case("flight_delays", "gusts filled in where late", (), "null_mask|filled|empty|decide",
         changed("wind_gust", _gusts_where_late)),
    Case("flight_delays", "benchmark rows in training", (), "duplicate|copied|equal",
         copied("benchmark", flights_moved)),
    Case("flight_delays", "delays in hours in the second half", (), "drift|label|unit|share|class",
         in_second_half("arr_delay", lambda delay: delay / 60)),
)  # fmt: skip

DIGITS_LOSS = 'return nn.functional.cross_entropy(outputs, targets, reduction="none")'
DIGITS_PREDICT = "return outputs.softmax(dim=1)"
DIGITS_AUGMENT = 'return {"picture": moved.unsqueeze(1)}, targets'
MULTICLASS = (
    Case("digits", "softmax twice", ((MODEL, DIGITS_LOSS,
          DIGITS_LOSS.replace("(outputs,", "(outputs.softmax(dim=1),")),), "softmax|squash|probabilit"),
    Case("digits", "labels of other rows", ((MODEL, DIGITS_AUGMENT,
          DIGITS_AUGMENT.replace("targets", "targets.roll(1)")),), "label|pair|belong"),
    Case("digits", "classes in another order in predict", ((MODEL, DIGITS_PREDICT, DIGITS_PREDICT + ".flip(1)"),),
         "predict"),
    Case("digits", "a rate near zero", _rate("0.004", "1.0e-9"), "rate"),
    Case("digits", "one loss for the batch", ((MODEL, 'reduction="none"', 'reduction="mean"'),),
         "loss_fn|one loss a row"),
    Case("digits", "outputs without gradient", ((MODEL, 'self.layers(inputs["picture"])',
          'self.layers(inputs["picture"]).detach()'),), "gradient|detach"),
    Case("digits", "inputs of nothing", ((MODEL, "scaled.astype(np.float32)", "(0 * scaled).astype(np.float32)"),),
         "constant|vary|zero"),
    Case("digits", "logits as probabilities", ((MODEL, DIGITS_PREDICT, "return outputs"),), "predict|probabilit"),
    Case("digits", "a loss that ignores the label", ((MODEL, DIGITS_LOSS,
          "return -outputs.log_softmax(dim=1).mean(dim=1)"),), "label|target"),
    Case("digits", "labels shuffled", (), NO_SIGNAL, shuffled("digit")),
    Case("digits", "the digit in a point", (), "decide|single_feature|leak", changed("p00", _digit)),
    Case("digits", "labels of the next row", (), NO_SIGNAL, of_next_row("digit")),
    Case("digits", "classes one further after training", (), "drift|label|class",
         held_out("digit", lambda digit: (digit + 1) % 10)),
    Case("digits", "a point that is inked for one class", (), "p00|one class|decide|null_mask",
         changed("p00", lambda frame: np.where(frame["digit"] == 8, 16, 0))),
    Case("digits", "benchmark rows in training", (), "duplicate|copied|equal",
         copied("benchmark", digits_moved)),
    Case("digits", "each picture twice, on two sheets", (), "duplicate|copied|equal", twice(digits_moved)),
)  # fmt: skip

FLATS_OUT = "return self.mean + self.spread * added"
FLATS_LOSS = "return ((outputs - targets) / UNIT).square()"
FLATS_PREDICT = '"""The number that is predicted, (N,), in the label\'s unit."""\n    return outputs'
FLATS_SCALED = "scaled = np.clip((numbers - mean) / deviation, -10, 10)"
REGRESSION = (
    Case("flat_rents", "another unit in predict", ((MODEL, FLATS_PREDICT, FLATS_PREDICT + " * 12"),), "predict|unit"),
    Case("flat_rents", "every row against every label", ((MODEL, FLATS_LOSS,
          "return ((outputs.unsqueeze(1) - targets) / UNIT).square().mean(dim=1)"),), "broadcast|other rows"),
    Case("flat_rents", "one loss for the batch", ((MODEL, FLATS_LOSS, FLATS_LOSS + ".mean()"),),
         "loss_fn|one loss a row"),
    Case("flat_rents", "an output that cannot fall below the mean", ((MODEL, FLATS_OUT,
          "return self.mean + self.spread * added.relu()"),), "squash|relu|range"),
    Case("flat_rents", "logarithms in the loss alone", ((MODEL, FLATS_LOSS,
          "return (outputs / UNIT - targets.log()).square()"),), "predict|unit"),
    Case("flat_rents", "labels of other rows", (SHUFFLE,), "label|target|pair|belong"),
    Case("flat_rents", "a rate near zero", _rate("0.003", "1.0e-9"), "rate"),
    Case("flat_rents", "a rate far too high", _rate("0.003", "30.0"), "rate"),
    Case("flat_rents", "scaled by the batch's own rows", ((MODEL, FLATS_SCALED, FLATS_SCALED.replace(
          "(numbers - mean) / deviation",
          "(numbers - np.nanmean(numbers, axis=0)) / (np.nanstd(numbers, axis=0) + 1)")),),
         "other rows|beside|on its own|rows at hand"),
    Case("flat_rents", "labels shuffled", (), NO_SIGNAL, shuffled("rent")),
    Case("flat_rents", "the rent in a feature", (), "decide|single_feature|leak",
         changed("km", lambda frame: _noisy(frame, "rent", 5.0).clip(1) / 100)),
    Case("flat_rents", "labels of the next row", (), NO_SIGNAL, of_next_row("rent")),
    Case("flat_rents", "weekly rents in the second half", (), "drift|label|unit|rent",
         in_second_half("rent", lambda rent: rent / 4.35)),
    Case("flat_rents", "a size in another unit in the second half", (), "drift|area",
         in_second_half("area", lambda area: area / 3.306)),
    Case("flat_rents", "a size that a join lost", (), "constant|area|null", changed("area", lambda frame: 70.0)),
    Case("flat_rents", "renovated filled in where dear", (), "null_mask|filled|empty|decide",
         changed("renovated", lambda frame: np.where(frame["rent"] > frame["rent"].median(), 2015.0, np.nan))),
    Case("flat_rents", "benchmark rows in training", (), "duplicate|copied|equal",
         copied("benchmark", flats_moved)),
)  # fmt: skip

DELAY_LOSS = "return torch.maximum(levels * off, (levels - 1) * off).mean(dim=1)"
DELAY_PREDICT = '    """The quantiles as they are, `(N, 2)`."""\n    return outputs'
QUANTILES = (
    Case("arrival_delay", "levels exchanged", ((MODEL, "torch.maximum(levels * off, (levels - 1) * off)",
          "torch.maximum((1 - levels) * off, -levels * off)"),), "predict|quantile|level"),
    Case("arrival_delay", "another unit in predict", ((MODEL, DELAY_PREDICT, DELAY_PREDICT + " / 60"),),
         "predict|unit"),
    Case("arrival_delay", "labels of other rows", (ROLL,), "label|pair|belong"),
    Case("arrival_delay", "quantiles that cross", ((MODEL, DELAY_PREDICT, DELAY_PREDICT + ".flip(1)"),),
         "cross|predict|rising"),
    Case("arrival_delay", "a rate near zero", _rate("0.003", "1.0e-9"), "rate"),
    Case("arrival_delay", "a rate far too high", _rate("0.003", "30.0"), "rate"),
    Case("arrival_delay", "a loss that ignores the label", ((MODEL, "off = targets.unsqueeze(1) - outputs",
          "off = targets.unsqueeze(1) * 0 - outputs"),), "label|target"),
    Case("arrival_delay", "squared error for quantiles", ((MODEL, DELAY_LOSS, "return (off**2).mean(dim=1)"),),
         "predict|quantile|loss"),
    Case("arrival_delay", "inputs of nothing", ((MODEL, "torch.from_numpy(scaled.astype(np.float32))",
          "torch.from_numpy(0 * scaled.astype(np.float32))"),), "constant|vary|zero"),
    Case("arrival_delay", "labels shuffled", (), NO_SIGNAL, shuffled("arr_delay")),
    Case("arrival_delay", "the outcome in a feature", (), "decide|single_feature|leak",
         changed("tail_slack_minutes", lambda frame: _noisy(frame, "arr_delay", 3.0))),
    Case("arrival_delay", "labels of the next row", (), NO_SIGNAL, of_next_row("arr_delay")),
    Case("arrival_delay", "delays in hours in the second half", (), "drift|label|unit",
         in_second_half("arr_delay", lambda delay: delay / 60)),
    Case("arrival_delay", "a column that a join lost", (), "null|constant|empty|tail_slack",
         changed("tail_slack_minutes", lambda frame: np.nan)),
    Case("arrival_delay", "empty where late", (), "null_mask|filled|empty|decide",
         changed("dest_arr_delay_6h", lambda frame: frame["dest_arr_delay_6h"].fillna(0).where(~_late(frame)))),
    Case("arrival_delay", "benchmark rows in training", (), "duplicate|copied|equal",
         copied("benchmark", flights_moved)),
)  # fmt: skip

SKY_LOSS = 'binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(dim=1)'
SKY_PREDICT = "return torch.sigmoid(outputs)"
SKY_OUT = 'return self.layers(torch.cat([inputs["numbers"], inputs["nulls"], *embedded], dim=1))'
MULTILABEL = (
    Case("sky", "softmax over labels in predict", ((MODEL, SKY_PREDICT, "return torch.softmax(outputs, dim=1)"),),
         "predict"),
    Case("sky", "softmax before a loss of logits", ((MODEL, SKY_LOSS,
          SKY_LOSS.replace("(outputs,", "(outputs.softmax(dim=1),")),), "softmax|squash|probabilit|logit"),
    Case("sky", "labels in another order in predict", ((MODEL, SKY_PREDICT, SKY_PREDICT + ".flip(1)"),), "predict"),
    Case("sky", "logits as probabilities", ((MODEL, SKY_PREDICT, "return outputs"),), "predict|probabilit"),
    Case("sky", "probabilities rounded", ((MODEL, SKY_PREDICT, SKY_PREDICT + ".round()"),), "predict|round"),
    Case("sky", "one loss for the batch", ((MODEL, SKY_LOSS, SKY_LOSS.replace("mean(dim=1)", "mean()")),),
         "loss_fn|one loss a row"),
    Case("sky", "a loss that leaves one label out", ((MODEL, SKY_LOSS,
          SKY_LOSS.replace("outputs, targets", "outputs[:, :-1], targets[:, :-1]")),), "leaves these|label wind"),
    Case("sky", "a rate near zero", _rate("0.003", "1.0e-9"), "rate"),
    Case("sky", "labels of other rows", (SHUFFLE,), "label|target|pair|belong"),
    Case("sky", "outputs without gradient", ((MODEL, SKY_OUT, SKY_OUT + ".detach().requires_grad_()"),),
         "gradient|detach"),
    Case("sky", "labels shuffled", (), NO_SIGNAL, shuffled("sky")),
    Case("sky", "a label in a feature", (), "decide|single_feature|leak",
         changed("visib", lambda frame: np.where(frame["sky"].str.contains("haze"), 4.0, 10.0))),
    Case("sky", "labels of the next row", (), NO_SIGNAL, of_next_row("sky")),
    Case("sky", "names exchanged after training", (), "drift|label|class",
         held_out("sky", renamed({"rain": "wind", "wind": "warmer", "warmer": "rain"}))),
    Case("sky", "no rain noted after training", (), "drift|label|rain", held_out("sky", without("rain"))),
    Case("sky", "temperatures in another unit in the second half", (), "drift|temp",
         in_second_half("temp", lambda temp: (temp - 32).clip(0) / 1.8)),
    Case("sky", "gusts filled in where wind is to come", (), "null_mask|filled|empty|decide",
         changed("wind_gust", lambda frame: (2 * frame["wind_speed"]).where(frame["sky"].str.contains("wind")))),
    Case("sky", "benchmark rows in training", (), "duplicate|copied|equal", copied("benchmark", sky_moved)),
    Case("sky", "each hour twice, on two days", (), "duplicate|copied|equal", twice(sky_moved)),
)  # fmt: skip

SHAPES_LOSS = 'cross_entropy(outputs, targets, reduction="none").mean(dim=(1, 2))'
SHAPES_PREDICT = "return torch.softmax(outputs, dim=1)"
SHAPES_FLIP = "torch.where(turned[:, None, None], targets.flip(2), targets)"
SHAPES_IN = '        picture = inputs["picture"]\n        height'
SEGMENTATION = (
    Case("shapes", "pictures flipped without their masks", ((MODEL, SHAPES_FLIP, "targets"),),
         "augment|not where their input"),
    Case("shapes", "softmax twice", ((MODEL, SHAPES_LOSS,
          SHAPES_LOSS.replace("(outputs,", "(outputs.softmax(dim=1),")),), "softmax|squash|probabilit"),
    Case("shapes", "classes in another order in predict", ((MODEL, SHAPES_PREDICT, SHAPES_PREDICT + ".flip(1)"),),
         "predict"),
    Case("shapes", "logits as probabilities", ((MODEL, SHAPES_PREDICT, "return outputs"),), "predict|probabilit"),
    Case("shapes", "one loss for the batch", ((MODEL, SHAPES_LOSS, SHAPES_LOSS.replace("dim=(1, 2)", "")),),
         "loss_fn|one loss a row"),
    Case("shapes", "a rate near zero", _rate("0.003", "1.0e-9"), "rate"),
    Case("shapes", "inputs of nothing", ((MODEL, "torch.from_numpy((pictures_of(rows) - mean) / spread)",
          "torch.from_numpy(0 * pictures_of(rows))"),), "constant|vary|zero"),
    Case("shapes", "a network that sees places alone", ((MODEL, SHAPES_IN, SHAPES_IN.replace('inputs["picture"]',
          '0 * inputs["picture"] + torch.linspace(-1, 1, SIZE[1])')),),
         "not use|unused|ignore|no input|does not depend|exchang|places? alone"),
    Case("shapes", "axes of pictures exchanged", ((MODEL, "transpose(2, 0, 1)", "transpose(2, 1, 0)"),),
         "transpos|axes|belong|other rows|shuffl"),
    Case("shapes", "a loss that leaves one class out", ((MODEL, 'targets, reduction="none"',
          'targets, reduction="none", weight=torch.tensor([1.0, 1.0, 0.0])'),), "leaves|class_2"),
    Case("shapes", "masks of other pictures", (), NO_SIGNAL,
         masks_of(lambda rows, random: random.permutation(len(rows.frame)))),
    Case("shapes", "masks of the next picture", (), NO_SIGNAL,
         masks_of(lambda rows, _: np.roll(np.arange(len(rows.frame)), -1))),
    Case("shapes", "masks transposed", (), "transpos|axes|belong|other rows|shuffl", each("mask", np.transpose)),
    Case("shapes", "classes exchanged in half of training", (), "label|class|shuffl",
         in_second_half_of_training("mask", exchanged)),
    Case("shapes", "classes exchanged after training", (), "drift|label|class", held_out_arrays("mask", exchanged)),
    Case("shapes", "the mask in the blue of its picture", (), "decide|single_feature|leak", mask_in_blue),
    Case("shapes", "benchmark pictures in training", (), "duplicate|copied|equal|byte for byte",
         copied("benchmark", shapes_moved)),
    Case("shapes", "each picture twice, on two sheets", (), "duplicate|copied|equal|byte for byte",
         twice(shapes_moved)),
)  # fmt: skip

TOPICS_BEFORE = "before[row, 1 : len(data) + 1] = data"
TOPICS_CUT = "np.frombuffer(text.encode(), dtype=np.uint8)[: length - 1]"
TOPICS_LOSS = 'nn.functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none")'
TOPICS_MEAN = "return losses.sum(dim=1) / (targets >= 0).sum(dim=1)"
TOPICS_PREDICT = "return outputs.softmax(dim=-1)"
TOPICS_ADDED = "self.bytes(before) + places"
TOPICS_HEADS = "(part.transpose(1, 2) for part in parts)"
TOPICS_GATHERED = "gathered.transpose(1, 2).reshape("
TOPICS_BLOCKS = f"self.blocks({TOPICS_ADDED})"
HEADER = "Python 3 documentation, Python Software Foundation. "
LANGUAGE_MODEL = (
    Case("topics", "the byte itself as input", ((MODEL, TOPICS_BEFORE, "before[row, : len(data)] = data"),),
         "ahead|earlier ones change|copy|shift"),
    Case("topics", "shifted in the inputs and in the loss", ((MODEL, TOPICS_LOSS, TOPICS_LOSS.replace(
          "outputs.transpose(1, 2), targets", "outputs[:, :-1].transpose(1, 2), targets[:, 1:]")),),
         "shift|predict|place|position|ahead"),
    Case("topics", "attention that sees what follows", ((MODEL, "is_causal=True", "is_causal=False"),),
         "ahead|earlier ones change|mask|later"),
    Case("topics", "attention among heads", ((MODEL, TOPICS_HEADS, "parts"),
          (MODEL, TOPICS_GATHERED, "gathered.reshape(")), "reach|no other place|positions|earlier|heads|does not use"),
    Case("topics", "attention over the rows of the batch", ((MODEL, TOPICS_BLOCKS,
          f"self.blocks(({TOPICS_ADDED}).transpose(0, 1)).transpose(0, 1)"),),
         "other rows|beside|on its own|rows at hand"),
    Case("topics", "places behind the end count", ((MODEL, TOPICS_LOSS, TOPICS_LOSS.replace(
          "targets,", "targets.clamp_min(0),")),), r"pad|behind|beyond|the end|-100"),
    Case("topics", "softmax twice", ((MODEL, TOPICS_LOSS,
          TOPICS_LOSS.replace("outputs.", "outputs.softmax(dim=-1).")),), "softmax|squash|probabilit"),
    Case("topics", "logits as probabilities", ((MODEL, TOPICS_PREDICT, "return outputs"),), "predict|probabilit"),
    Case("topics", "softmax over places", ((MODEL, TOPICS_PREDICT, "return outputs.softmax(dim=1)"),),
         "predict|probabilit"),
    Case("topics", "dropout in evaluation too", ((MODEL, TOPICS_BLOCKS, TOPICS_BLOCKS.replace(
          TOPICS_ADDED, f"nn.functional.dropout({TOPICS_ADDED}, 0.2)")),), "dropout|random|evaluation"),
    Case("topics", "a rate near zero", _rate("0.003", "1.0e-9"), "rate"),
    Case("topics", "a rate far too high", _rate("0.003", "30.0"), "rate"),
    Case("topics", "places without gradient", ((MODEL, TOPICS_ADDED, "self.bytes(before) + places.detach()"),),
         "gradient|detach"),
    Case("topics", "targets of other rows", (ROLL,), "label|target|pair|belong"),
    Case("topics", "the last bytes of long texts as inputs", ((MODEL, TOPICS_CUT,
          TOPICS_CUT.replace("[: length - 1]", "[1 - length :]")),), "ahead|earlier ones change|belong|shift|pair"),
    Case("topics", "inputs in UTF-16", ((MODEL, TOPICS_CUT, TOPICS_CUT.replace("encode()", 'encode("utf-16-le")')),),
         "encod|belong|label|learn|input"),
    Case("topics", "letters of every text shuffled", (), NO_SIGNAL, texts(mixed)),
    Case("topics", "letters shuffled in training", (), "drift|label|shuffl|text", texts(mixed, "training")),
    Case("topics", "another table of letters in training", (), "drift|label|text", texts(ciphered, "training")),
    Case("topics", "texts backwards after training", (), "drift|label|text",
         texts(backwards, "validation", "calibration", "benchmark")),
    Case("topics", "texts of training cut short", (), "drift|short|length|place", texts(cut(16), "training")),
    Case("topics", "the same words before every text", (), "constant|repeat|same|alike|equal",
         texts(headed(HEADER))),
    Case("topics", "overlapping windows, topics drawn", (), "duplicate|overlap|copied|equal", overlapping),
    Case("topics", "benchmark texts in training", (), "duplicate|copied|equal", copied("benchmark", topics_moved)),
    Case("topics", "each text twice, in two topics", (), "duplicate|copied|equal", twice(topics_moved)),
)  # fmt: skip
PLANTED = (*BINARY, *MULTICLASS, *REGRESSION, *QUANTILES, *MULTILABEL, *SEGMENTATION, *LANGUAGE_MODEL)

WEIGHT = """      - name: weight
        logicalType: number
        customProperties: [{property: role, value: weight}]
      # the number that is predicted
"""
SKY_WEIGHT = WEIGHT.partition("      # the number")[0] + "      # any of 5 labels"
TOPICS_LOGITS = "self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, symbols)"
WITHOUT_PLACES = (
    (MODEL, "self.bytes, self.places = _embedding(symbols + 1, width), _embedding(length, width)",
     "self.bytes = _embedding(symbols + 1, width)"),
    (MODEL, "        places = self.places(torch.arange(before.shape[1], device=before.device))\n", ""),
    (MODEL, TOPICS_ADDED, "self.bytes(before)"),
)  # fmt: skip
RECURRENT = (
    "class Recurrent(nn.GRU):\n    def forward(self, values):\n        return super().forward(values)[0]\n\n\n"
    "class Block(nn.Module):"
)
HEALTHY = (
    Case("flight_delays", "as it is"),
    Case("flight_delays", "a rare class: two hours late", ((CONTRACT, "greaterThan: 15", "greaterThan: 120"),)),
    Case("flight_delays", "tiny", ((YAML, "embedding_dim: 8, width: 128, depth: 2, dropout: 0.3",
          "embedding_dim: 2, width: 8, depth: 1, dropout: 0.0"),)),
    Case("flight_delays", "huge batch", ((YAML, "batch_size: 256", "batch_size: 4096"),
          (YAML, "epochs: 4", "epochs: 20"))),
    Case("flight_delays", "tensors per batch", (PER_BATCH,)),
    Case("flight_delays", "much dropout", ((YAML, "dropout: 0.3", "dropout: 0.6"),)),
    Case("digits", "label smoothing", ((MODEL, 'reduction="none"', 'reduction="none", label_smoothing=0.1'),)),
    Case("digits", "class weights", ((YAML, "epochs: 30", "epochs: 30\n  class_weights: balanced"),)),
    Case("digits", "SGD", ((YAML, "{name: adamw, learning_rate: 0.004, weight_decay: 0.01}",
          "{name: sgd, learning_rate: 0.1, weight_decay: 0.0001}"),)),
    Case("digits", "batch norm", ((MODEL, "nn.Conv2d(1, channels, 3, padding=1), nn.SiLU(),",
          "nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.SiLU(),"),)),
    Case("digits", "no augmentation, one layer", ((MODEL, "def augment(", "def moved("),
          (MODEL, "nn.Linear(2 * channels * (SIDE // 2) ** 2, width), nn.SiLU(),",
           "nn.Linear(2 * channels * (SIDE // 2) ** 2, width),"))),
    Case("digits", "a rare class", rows=rarer("digit", 8, 0.2)),
    Case("digits", "tensors per batch", (PER_BATCH,)),
    Case("flat_rents", "as it is"),
    Case("flat_rents", "rents with an offset of 1e6", ((CONTRACT, "name: rent\n        logicalType: number\n",
          "name: rent\n        logicalType: number\n        # "),),
         rows=changed("rent", lambda frame: frame["rent"] + 1e6)),
    Case("flat_rents", "heavy-tailed rents", ((CONTRACT, "name: rent\n        logicalType: number\n",
          "name: rent\n        logicalType: number\n        # "),),
         rows=heavy_tailed("rent")),
    Case("flat_rents", "a column of weights", ((CONTRACT, "      # the number that is predicted\n", WEIGHT),),
         rows=changed("weight", lambda frame: 1 + frame["rooms"] / 4)),
    Case("flat_rents", "huge batch", ((YAML, "batch_size: 64", "batch_size: 2048"),
          (YAML, "epochs: 12", "epochs: 150"))),
    Case("flat_rents", "Huber's loss", ((MODEL, FLATS_LOSS,
          'return nn.functional.smooth_l1_loss(outputs / UNIT, targets / UNIT, reduction="none")'),)),
    Case("flat_rents", "tiny, without dropout", ((YAML,
          "width: 64, embedding_dim: 4, min_category_rows: 20, dropout: 0.1",
          "width: 6, embedding_dim: 1, min_category_rows: 20, dropout: 0.0"),)),
    Case("arrival_delay", "as it is"),
    Case("arrival_delay", "wide and small batches", ((YAML, "width: 96", "width: 256"),
          (YAML, "batch_size: 256", "batch_size: 64"))),
    Case("arrival_delay", "rounded pinball", ((MODEL, DELAY_LOSS,
          "return (levels * off + 3 * nn.functional.softplus(-off / 3)).mean(dim=1)"),)),
    Case("arrival_delay", "starting at zero minutes", ((MODEL, 'float(target["quantiles"]["0.5"])', "0.0"),)),
    Case("arrival_delay", "no embeddings to speak of", ((YAML, "embedding_dim: 8", "embedding_dim: 1"),)),
    Case("arrival_delay", "tensors per batch", (PER_BATCH,)),
    Case("sky", "as it is"),
    Case("sky", "a rare label", rows=changed("sky", fewer_names("rain", 0.3))),
    Case("sky", "tiny", ((YAML, "width: 64", "width: 4"), (YAML, "dropout: 0.1", "dropout: 0.0"))),
    Case("sky", "huge batch", ((YAML, "batch_size: 32", "batch_size: 1024"), (YAML, "epochs: 12", "epochs: 150"))),
    Case("sky", "a weight of each label", ((MODEL, 'targets, reduction="none"',
          'targets, reduction="none", pos_weight=torch.tensor([2.0, 3.0, 6.0, 3.0, 2.0])'),)),
    Case("sky", "a column of weights", ((CONTRACT, "      # any of 5 labels", SKY_WEIGHT),),
         rows=changed("weight", lambda frame: 1 + frame["hour"] / 24)),
    Case("sky", "smoothed labels", ((MODEL, "outputs, targets, reduction",
          "outputs, 0.9 * targets + 0.05, reduction"),)),
    Case("shapes", "as it is"),
    Case("shapes", "a rare class", rows=fewer_with(DISC, 0.4)),
    Case("shapes", "tiny, without dropout", ((YAML, "width: 8, dropout: 0.1", "width: 4, dropout: 0.0"),)),
    Case("shapes", "huge batch", ((YAML, "batch_size: 16", "batch_size: 128"), (YAML, "epochs: 20", "epochs: 80"))),
    Case("shapes", "no augmentation, tensors per batch", (PER_BATCH, (MODEL, "def augment(", "def flipped("))),
    Case("shapes", "answers of half the size", ((MODEL, "[:, :, :height, :width]",
          "[:, :, :height, :width][:, :, ::2, ::2]"),)),
    Case("shapes", "weights of classes in the loss", ((MODEL, 'targets, reduction="none"',
          'targets, reduction="none", weight=torch.tensor([0.5, 1.5, 1.5])'),)),
    Case("shapes", "a ground of one colour", rows=ground_alike),
    Case("topics", "as it is"),
    Case("topics", "tied embeddings", ((MODEL, TOPICS_LOGITS, "self.norm = nn.LayerNorm(width)"),
          (MODEL, "self.logits(self.norm(self.blocks(self.bytes(before) + places)))",
           "nn.functional.linear(self.norm(self.blocks(self.bytes(before) + places)), self.bytes.weight[:-1])"))),
    Case("topics", "without places", WITHOUT_PLACES),
    Case("topics", "recurrent, without places", (*WITHOUT_PLACES, (MODEL, "class Block(nn.Module):", RECURRENT),
          (MODEL, "Attention(width, heads), nn.D", "Recurrent(width, width, batch_first=True), nn.D"))),
    Case("topics", "label smoothing", ((MODEL, TOPICS_LOSS, TOPICS_LOSS.replace(
          'reduction="none"', 'reduction="none", label_smoothing=0.1')),)),
    Case("topics", "every byte weighs the same", ((MODEL, TOPICS_MEAN, "return losses.sum(dim=1) / losses.shape[1]"),)),
    Case("topics", "batches of four", ((YAML, "batch_size: 32", "batch_size: 4"), (YAML, "epochs: 12", "epochs: 3"))),
    Case("topics", "RMS norm, much weight decay, no dropout", ((MODEL, "nn.LayerNorm", "nn.RMSNorm"),
          (YAML, "weight_decay: 0.01", "weight_decay: 0.3"), (YAML, "dropout: 0.1", "dropout: 0.0"))),
    Case("topics", "short texts among long ones", rows=texts(cut(16, 0.3))),
    Case("topics", "one byte above all", rows=texts(spaced)),
)  # fmt: skip
