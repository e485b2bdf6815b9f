"""Blind spots of pictures and texts by their metadata: parts that no column of the table names, with twice the loss.

The pictures are pieces of scikit-learn's two photographs, shown with another exposure, blur, colour and size; a model
has to say which of them were turned upside down. The texts are docstrings of Python's standard library; a model has to
say whether "is" was taken out. Models are histogram boosting and the baselines `linear` and `prior`, all scored on
groups (tiles of a photograph, modules) that they were not trained on.

In each draw a part of 3 to 10 % of the rows gets twice the loss. What a part is drawn by is seen in a picture or text,
told by Pillow's and Python's own functions; but for `underexposed` and `blurred`, which are how a picture was made: a
dark thing well exposed looks the same. A part is found if a confirmed rule has at least half of its rows in the part
and at least half of the part's rows. Where nothing is planted, losses are dealt anew within each group.

    make bench NAME=described          about 3 minutes on 2 cores
"""

from __future__ import annotations

import ast
import functools
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from PIL import Image, ImageFilter, ImageStat
from sklearn.datasets import load_sample_images
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression

from benchmarks.result import arguments, begin, finish
from trainworthy.lifecycle.evaluation.blind_spots import blind_spots
from trainworthy.lifecycle.evaluation.predicate import parse
from trainworthy.lifecycle.evaluation.slice_levels import training_cuts
from trainworthy.lifecycle.files.metadata import file_metadata, text_metadata
from trainworthy.lifecycle.tasks.file_numbers import Form, file_numbers

DRAWS, SHORT_DRAWS = 50, 2
PICTURES, SHORT_PICTURES, SIDE, TILES = 8_000, 400, 64, 40
# How a picture is made, and what `pictures` draws of each.
MADE = ("underexposed", "blurred", "grey", "small")
MODULES, SHORT_MODULES = 2_000, 60
SMALLEST, LARGEST = 0.03, 0.10
TEXTS_TIMED = 100_000


class Table(NamedTuple):
    """Metadata, groups, row losses by model, and what a part is drawn by: names with a number a row."""

    frame: pd.DataFrame
    groups: np.ndarray
    losses: dict[str, np.ndarray]
    causes: dict[str, np.ndarray]


def main() -> None:
    """Print what is found of planted parts, what is confirmed where there are none, and what metadata costs."""
    short = arguments(__doc__).parse_args().short
    begin(short)
    draws, figures = SHORT_DRAWS if short else DRAWS, {}
    with tempfile.TemporaryDirectory() as folder:
        for name, made in (("pictures", pictures(Path(folder), short)), ("texts", texts(short))):
            means = ", ".join(f"{model} {loss.mean():.3f}" for model, loss in made.losses.items())
            print(f"{name}: {len(made.groups):,} rows, {len(np.unique(made.groups))} groups; mean losses: {means}")
            figures |= {f"{name}_{key}": value for key, value in _asked(made, draws).items()}
        figures |= _costs(Path(folder), short)
    targets = {"pictures_missed": 0.2, "texts_missed": 0.2, "pictures_false": 0.05, "texts_false": 0.05}
    finish("described", figures, targets, short=short, zero_allowed=tuple(targets))


def _asked(table: Table, draws: int) -> dict[str, float]:
    """Shares of planted parts missed, and of draws with a confirmed rule where nothing is planted."""
    cuts, rows = training_cuts(table.frame), []
    for seed in range(draws):
        random = np.random.default_rng(seed)
        cause = [*table.causes][seed % len(table.causes)]
        part = _part(table.causes[cause], random.uniform(SMALLEST, LARGEST))
        rules = _confirmed(table, cuts, np.where(part, 2, 1) * table.losses["candidate"])
        rows.append({"cause": cause, "share": part.mean(), "found": any(_is(part, rule) for rule in rules),
                     "confirmed": len(rules), "right": sum(part[rule].mean() >= 0.5 for rule in rules)})  # fmt: skip
    told = pd.DataFrame(rows)
    by_cause = told.groupby("cause").agg(
        {"share": "mean", "found": ["sum", "size"], "confirmed": "sum", "right": "sum"}
    )
    print(by_cause.round(3).to_string(), flush=True)
    false = np.mean([bool(_confirmed(dealt := _dealt(table, seed), cuts, dealt.losses["candidate"]))
                     for seed in range(draws)])  # fmt: skip
    plain = len(_confirmed(table, cuts, table.losses["candidate"]))
    print(f"confirmed on the model as it is: {plain}; where nothing is planted, of {draws}: {false:.3f}", flush=True)
    return {"missed": 1 - told["found"].mean(), "false": float(false)}


def _confirmed(table: Table, cuts: dict[str, tuple[float, ...]], losses: np.ndarray) -> list[np.ndarray]:
    references = [table.losses[name] for name in ("linear", "prior")]
    found = blind_spots(table.frame, losses, table.groups, cuts, references=references)
    return [parse(spot.rule).mask(table.frame) for spot in found.spots if spot.confirmed]


def _part(values: np.ndarray, share: float) -> np.ndarray:
    """About this share of the rows, those with the greatest values; all with the greatest one where more have it."""
    limit = np.quantile(values, 1 - share)
    return values > limit if limit < values.max() else values == limit


def _is(part: np.ndarray, rule: np.ndarray) -> bool:
    return bool(np.count_nonzero(part & rule) >= 0.5 * max(np.count_nonzero(part), np.count_nonzero(rule)))


def _dealt(table: Table, seed: int) -> Table:
    """Losses of all models dealt anew to the rows of their group."""
    random = np.random.default_rng(seed)
    order = np.lexsort((random.random(len(table.groups)), table.groups))
    dealt = np.empty_like(order)
    dealt[np.argsort(table.groups, kind="stable")] = order
    return table._replace(losses={name: values[dealt] for name, values in table.losses.items()})


def _losses(inputs: np.ndarray, labels: np.ndarray, groups: np.ndarray) -> dict[str, np.ndarray]:
    """Log losses of each model on the half of the groups that it was not trained on."""
    found = {name: np.empty(len(labels)) for name in ("candidate", "linear", "prior")}
    # Tiles of the two photographs take turns, and either half has some of both.
    odd = groups // 2 % 2 == 1
    for seen in (odd, ~odd):
        models = {
            "candidate": HistGradientBoostingClassifier(
                max_iter=60, learning_rate=0.05, min_samples_leaf=50, random_state=0
            ),
            "linear": LogisticRegression(C=0.1, max_iter=300),
        }
        for name, model in models.items():
            answers = model.fit(inputs[seen], labels[seen]).predict_proba(inputs[~seen])
            found[name][~seen] = -np.log(answers[np.arange(len(answers)), labels[~seen]].clip(1e-6))
        shares = np.bincount(labels[seen], minlength=labels.max() + 1) / seen.sum()
        found["prior"][~seen] = -np.log(shares[labels[~seen]])
    return found


# ---- pictures --------------------------------------------------------------------------------------------------------


def pictures(folder: Path, short: bool) -> Table:
    """Pieces of two photographs, turned by a number of quarters, with an exposure, a blur, colours and a size."""
    random, photographs = np.random.default_rng(0), load_sample_images().images
    rows, paths = [], []
    for number in range(SHORT_PICTURES if short else PICTURES):
        tile = int(random.integers(2 * TILES))
        whole = photographs[tile % 2]
        width = whole.shape[1] // TILES
        left = min(tile // 2 * width + random.integers(width), whole.shape[1] - SIDE)
        top = random.integers(whole.shape[0] - SIDE)
        piece = Image.fromarray(whole[top : top + SIDE, left : left + SIDE])
        made = {
            "underexposed": -random.uniform(0.15, 1.6), "blurred": max(random.normal(0, 0.8), 0.0),
            "grey": float(random.random() < 0.06), "small": -random.integers(16, SIDE + 1),
        }  # fmt: skip
        turned = int(random.integers(2))
        shown = piece.rotate(180 * turned).point(lambda value, by=-made["underexposed"]: min(int(value * by), 255))
        shown = shown.filter(ImageFilter.GaussianBlur(made["blurred"])).resize(
            (int(-made["small"]), int(-made["small"]))
        )
        shown = shown.convert("L").convert("RGB") if made["grey"] else shown
        paths.append(folder / f"{number:05}.png")
        shown.save(paths[-1])
        rows.append({"turned": turned, "tile": tile, **made, "dark": -ImageStat.Stat(shown.convert("L")).mean[0]})
    table = pd.DataFrame(rows)
    groups = table["tile"].to_numpy()
    losses = _losses(file_numbers(paths, Form("colour", 192)), table["turned"].to_numpy(), groups)
    frame = pd.DataFrame([file_metadata(path, "picture") for path in paths]).add_prefix("picture.")
    return Table(frame, groups, losses, {name: table[name].to_numpy() for name in (*MADE, "dark")})


# ---- texts -----------------------------------------------------------------------------------------------------------


def texts(short: bool) -> Table:
    """Docstrings without their "is", and whether they had one."""
    rows = _docstrings(SHORT_MODULES if short else MODULES)
    labels = rows["text"].str.contains(r"\bis\b").to_numpy().astype(int)
    shown = rows["text"].str.replace(r"\bis\b\s*", "", regex=True)
    hashed: Any = HashingVectorizer(n_features=256, alternate_sign=False).transform(shown)
    groups = pd.factorize(rows["module"])[0]
    causes: dict[str, Callable[[str], float]] = {
        "long": len, "short": lambda text: -len(text), "shouted": lambda text: _share(str.isupper, text),
        "digits": lambda text: _share(str.isdigit, text),
    }  # fmt: skip
    losses = _losses(hashed.toarray(), labels, groups)
    return Table(
        text_metadata(shown).add_prefix("text.").reset_index(drop=True), groups, losses,
        {name: shown.map(cause).to_numpy(dtype=float) for name, cause in causes.items()},
    )  # fmt: skip


@functools.cache
def _docstrings(most: int) -> pd.DataFrame:
    """Those of the first modules of Python's standard library by name, each once, without its tests."""
    library, rows = Path(os.__file__).parent, []
    paths = [path for path in sorted(library.rglob("*.py")) if not {"site-packages", "test", "tests"} & {*path.parts}]
    for path in paths[:most]:
        try:
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        except (SyntaxError, ValueError):
            continue
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        found = [ast.get_docstring(node) for node in nodes if isinstance(node, kinds)]
        rows += [{"module": str(path), "text": text} for text in found if text]
    return pd.DataFrame(rows).drop_duplicates("text", ignore_index=True)


def _share(holds: Callable[[str], bool], text: str) -> float:
    letters = re.sub(r"\s", "", text)
    return sum(map(holds, letters)) / max(len(letters), 1)


# ---- cost ------------------------------------------------------------------------------------------------------------


def _costs(folder: Path, short: bool) -> dict[str, float]:
    """CPU seconds of 1,000 pictures of 48 × 48 and of 640 × 427 points, and of 100,000 texts, by scaling."""
    photograph = folder / "photograph.jpg"
    Image.fromarray(load_sample_images().images[0]).save(photograph, quality=90)
    small, sentences = sorted(folder.glob("*.png"))[:200], _docstrings(SHORT_MODULES if short else MODULES)["text"]
    many = pd.Series(np.resize(sentences.to_numpy(dtype=object), 1_000 if short else TEXTS_TIMED), dtype="str")
    return {
        "seconds_1000_small_png": 1e3 / len(small) * _seconds(lambda: [file_metadata(one, "picture") for one in small]),
        "seconds_1000_jpeg_640": 1e3 / 50 * _seconds(lambda: [file_metadata(photograph, "picture") for _ in range(50)]),
        "seconds_100000_texts": _seconds(lambda: text_metadata(many)) / len(many) * 1e5,
        "characters_a_text": float(many.str.len().mean()),
    }  # fmt: skip


def _seconds(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


if __name__ == "__main__":
    main()
