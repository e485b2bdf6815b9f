"""Which columns are free text, of which the words are read, and which are names, codes or categories."""

import random

import numpy as np
import pandas as pd
import pytest

from trainworthy.lifecycle.tasks.baselines import fit_baselines
from trainworthy.lifecycle.tasks.binary import BINARY
from trainworthy.lifecycle.tasks.encoding import fit_encoding
from trainworthy.lifecycle.tasks.file_numbers import BUCKETS
from trainworthy.lifecycle.tasks.free_text import is_free_text
from trainworthy.lifecycle.tasks.metric import value

ROWS = 600
ENGLISH = (
    "the film was a slow and quiet story about people who leave town with their dog it had much rain too little "
    "music one scene on ships i saw twice never again maybe"
)
GERMAN = "der Film war eine ruhige Geschichte über Menschen die mit ihrem Hund im Regen gehen nie wieder"
ARABIC = "كان الفيلم قصة هادئة عن الناس الذين يتركون المدينة مع كلب في المطر"
NAMES = "Anna Bela Cora Dora Emil Franz Greta Hugo Ida Jonas Karla Lena Meyer Novak Olsen Petersen Rossi Smith"
STREETS = "Main Oak Elm Church Station Mill Park Hill Garden River Bridge School"
WORDS, GERMAN_WORDS, ARABIC_WORDS = ENGLISH.split(), GERMAN.split(), ARABIC.split()
FAMILY, STREET = NAMES.split(), STREETS.split()


def some(make, rows: int = ROWS) -> pd.Series:
    """`make` of a generator, for each row."""
    draw = random.Random(7)
    return pd.Series([make(draw) for _ in range(rows)])


def sentence(draw: random.Random, words=WORDS, least: int = 3, most: int = 20) -> str:
    return " ".join(draw.choices(words, k=draw.randint(least, most))).capitalize() + draw.choice(".!?")


def chinese(draw: random.Random, letters: int) -> str:
    return "".join(draw.choices("天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏", k=letters)) + "。"


TEXTS = {
    "sentences": sentence,
    "short comments": lambda draw: " ".join(draw.choices(WORDS, k=draw.randint(2, 5))),
    "german": lambda draw: sentence(draw, GERMAN_WORDS),
    "a script without capitals": lambda draw: sentence(draw, ARABIC_WORDS),
    "all in capitals": lambda draw: sentence(draw, least=6).upper(),
    "headlines": lambda draw: sentence(draw, least=6).title(),
    "with numbers and addresses": lambda draw: f"{sentence(draw)} 12 https://a.example/{draw.random()} #42",
    "paragraphs": lambda draw: "\n\n".join(sentence(draw, most=60) for _ in range(5)),
    "tags": lambda draw: ", ".join(draw.sample(WORDS, 4)),
    "chinese": lambda draw: chinese(draw, 30),
    "chinese with latin words": lambda draw: f"{chinese(draw, 16)} iPhone {draw.randrange(9)} {chinese(draw, 9)}",
    "thai": lambda draw: "".join(draw.choices("กขคงจชซดตทนบปผพมยรลวสหอ", k=40)),
    "a third missing": lambda draw: None if draw.random() < 0.3 else sentence(draw),
}
NO_TEXTS = {
    "numbers": lambda draw: f"{draw.random():.6f}",
    "identifiers": lambda draw: f"AB-{draw.randrange(10**9)}",
    "hashes": lambda draw: f"{draw.randrange(2**128):032x}",
    "codes with blanks": lambda draw: f"{draw.randrange(10**4)} {draw.randrange(10**4)} AB {draw.randrange(10**4)}",
    "first and last names": lambda draw: f"{draw.choice(FAMILY)} {draw.choice(FAMILY)}{draw.randrange(10**6)}",
    "names with titles": lambda draw: f"{draw.choice(FAMILY)}, Mr. {' '.join(draw.sample(FAMILY, 2))}",
    "streets": lambda draw: f"{draw.randrange(1, 999)} {draw.choice(STREET)} {draw.choice(STREET)} Street",
    "addresses of the web": lambda draw: f"https://shop.example/{'/'.join(draw.choices(WORDS, k=4))}",
    "mail": lambda draw: f"{draw.choice(WORDS)}.{draw.randrange(10**6)}@mail.example",
    "paths with blanks": lambda draw: f"C:\\Program Files\\{draw.choice(WORDS)}\\my {draw.random()}\\a b.txt",
    "names of files": lambda draw: f"{'_'.join(draw.choices(WORDS, k=4))}.csv",
    "durations": lambda draw: f"{draw.randrange(99)} days {draw.randrange(24)} hours {draw.randrange(60)} minutes",
    "one form": lambda draw: f"the order {draw.randrange(10**6)} was sent",
    "few texts": lambda draw: draw.choice(["it is very good", "it is rather bad", "no answer was given"]),
    "chinese names": lambda draw: chinese(draw, 3),
    "chinese names of places": lambda draw: f"{chinese(draw, 8)}{draw.randrange(99)}号",
    "chinese of one form": lambda draw: f"您的订单{draw.randrange(10**6)}已经发货请注意查收",
    "all missing": lambda draw: None,
    "empty": lambda draw: "",
    "lists": lambda draw: draw.choices(WORDS, k=4),
    "times": lambda draw: pd.Timestamp("2024-01-01") + pd.Timedelta(minutes=draw.randrange(10**6)),
    "mixed": lambda draw: sentence(draw) if draw.random() < 0.9 else draw.random(),
}


@pytest.mark.parametrize("dtype", ["object", "str", "category"])
@pytest.mark.parametrize("kind", TEXTS)
def test_sentences_are_free_text_in_every_type_of_column(kind, dtype):
    assert is_free_text(some(TEXTS[kind]).astype(dtype))


@pytest.mark.parametrize("kind", NO_TEXTS)
def test_names_codes_and_categories_are_no_free_text(kind):
    assert not is_free_text(some(NO_TEXTS[kind]))


def test_sentences_that_come_twice_on_average_are_categories():
    values = some(sentence)
    assert is_free_text(pd.concat([values, values.head(500)], ignore_index=True))
    assert not is_free_text(pd.concat([values, values], ignore_index=True))


def reviews(rows: int = ROWS) -> pd.DataFrame:
    """A label that one word decides, nine times in ten, among many others."""
    draw = random.Random(3)
    labels = np.array([draw.random() < 0.4 for _ in range(rows)]).astype(int)
    told = [int(draw.random() < 0.9) if label else int(draw.random() < 0.1) for label in labels]
    texts = [f"{sentence(draw)} {'Splendid' if one else 'Tedious'}, {sentence(draw)}" for one in told]
    return pd.DataFrame({"text": texts, "x": [draw.random() for _ in labels], "label": labels})


def test_free_text_is_numbers_of_its_words_and_a_missing_one_has_none():
    rows = reviews().assign(place="here")
    rows.loc[::7, "text"] = None
    encoding = fit_encoding(rows, ["text", "x", "place"])
    assert list(encoding.categories) == ["place"]
    numbers, _ = encoding.encode(rows)
    missing = rows["text"].isna().to_numpy()
    of_words = [place for place, name in enumerate(encoding.numeric) if name != "x"]
    assert 30 < len(of_words) <= BUCKETS
    assert np.isnan(numbers[missing][:, of_words]).all()
    counts = np.expm1(numbers[~missing][:, of_words])
    assert np.allclose(counts.sum(axis=1), rows["text"].dropna().str.count(r"\w+"))
    # What training has not seen, as a number in the place of a text or unknown words, is no error.
    other = encoding.encode(pd.DataFrame({"text": [None, 7, "größe"], "x": 0.0, "place": "here"}))[0]
    assert np.isnan(other[:2][:, of_words]).all()


@pytest.mark.parametrize("name", ["linear", "gradient_boosting"])
def test_baselines_see_the_words(name):
    rows = reviews(1200)
    training, later = rows.head(800), rows.tail(400)
    answers = fit_baselines(training, ["text"], "label", [name, "prior"], 0, BINARY)
    labels = BINARY.checked_labels(later["label"])
    losses = {one: value(BINARY.metrics["log_loss"], labels, answer(later)) for one, answer in answers.items()}
    assert losses[name] < 0.75 * losses["prior"], losses
