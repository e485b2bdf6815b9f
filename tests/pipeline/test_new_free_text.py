"""`trainworthy new` of tables with a column of sentences: its words are read, beside the other columns."""

import random

import numpy as np
import pandas as pd
import pytest
import torch
from shop_rows import found, roles, table
from test_new import built_rows, new, set_up
from test_new_folder import is_tidy

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.tasks.words import words_in
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.pipeline.cli import main
from trainworthy.pipeline.scaffold.profile import OF_TABLE, free_texts, load_dataset
from trainworthy.pipeline.scaffold.project import MOST_WORDS, most_words

ENGLISH = "the shop was open and i went there with two friends to see what they sell near our old house again"
WORDS = [str(word) for word in ENGLISH.split()]
GOOD, BAD = ["Lovely", "fine", "great", "helpful"], ["Awful", "dirty", "rude", "broken"]


def review(good: bool, seed: int, length: int = 12) -> str:
    """A sentence of which one word in six tells whether it is good."""
    draw = random.Random(seed)
    words = draw.choices(WORDS, k=length)
    for place in (1, length // 2):
        words[place] = draw.choice(GOOD if good else BAD)
    return f"{' '.join(words).capitalize()}."


def reviews(*, alone: bool = False) -> pd.DataFrame:
    """The shop's rows with a review of each, and its stars. `alone`: without other columns."""
    rows = table().assign(
        told=[review(bought == "yes", seed) for seed, bought in enumerate(table()["bought"])],
        stars=lambda rows: (rows["bought"] == "yes") * 2.0 + np.random.default_rng(5).normal(size=len(rows)) / 2,
    )
    return rows[["told", "bought", "stars"]] if alone else rows


def drafted(rows: pd.DataFrame, tmp_path, **asked):
    result, problems = found(rows, tmp_path, **asked)
    assert problems == []
    assert result is not None
    return result


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_sentences_are_an_input_and_that_is_told(tmp_path, suffix):
    result = drafted(reviews(), tmp_path, suffix=suffix)
    (column,) = (column for column in result.columns if column.name == "told")
    assert (column.role, column.remark) == ("feature", "free text: its words are read, without their order")
    assert "'told' is free text: its words are read, without their order" in result.observations
    assert free_texts(result.rows, result.columns) == ["told"]
    assert result.plan.hyperparameters["word_dropout"] == 0.5
    # Neither a part of the key nor a slice.
    assert result.key == ("visit_id",)


def test_sentences_are_no_part_of_a_key_beside_times_and_names_are(tmp_path):
    rows = reviews().drop(columns="visit_id")
    rows["at"] = rows["at"].dt.floor("6h")
    assert drafted(rows, tmp_path).key == ("row",)
    (tmp_path / "named").mkdir()
    named = rows.assign(visitor=[f"V{place}" for place in range(len(rows))])
    assert drafted(named, tmp_path / "named").key == ("at", "visitor")


def test_table_of_ids_and_names_is_drafted_as_before(tmp_path):
    rows = table().assign(
        code=[f"AB-{place}" for place in range(1200)],
        name=[f"Anna Meyer{place}" for place in range(1200)],
        site=[f"https://a.example/{place}/some/good/place" for place in range(1200)],
    )
    result = drafted(rows, tmp_path)
    entities = [column.name for column in result.columns if column.role == "entity"]
    assert entities == ["code", "name", "site"]
    assert free_texts(result.rows, result.columns) == []
    assert {*result.plan.hyperparameters} == {*OF_TABLE.hyperparameters, "base_rate"}
    assert not any("free text" in line for line in result.observations)


def test_column_named_as_an_identifier_is_none_of_words(tmp_path):
    assert roles(reviews().rename(columns={"told": "told_id"}), tmp_path)["told_id"] == "entity"


@pytest.mark.parametrize(("length", "words"), [(5, 8), (12, 16), (900, MOST_WORDS)])
def test_as_many_words_are_read_as_nearly_all_texts_have(length, words):
    texts = pd.DataFrame({"told": [review(True, seed, length) for seed in range(40)] + [None, "word " * 5000]})
    assert most_words(texts) == words
    assert most_words(texts[[]]) == 0


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "with other columns"])
@pytest.mark.parametrize("target", ["stars", "bought"])
def test_drafted_network_reads_the_words_and_passes_check(tmp_path, monkeypatch, capsys, target, alone):
    project = set_up(tmp_path, monkeypatch)
    rows = reviews(alone=alone).drop(columns="bought" if target == "stars" else "stars")
    rows.loc[::50, "told"] = None
    time = () if alone else ("--time", "at")
    assert new(project, rows, "--target", target, *time, suffix=".parquet") == 0, capsys.readouterr().err
    assert "'told' is free text" in capsys.readouterr().out
    folder = project / "use_cases" / "shop"
    features = ("told",) if alone else ("x", "place", "told", "hour", "weekday")
    assert load_contract(folder / "contract.yaml").feature_columns == features
    assert main(["check", "shop"]) == 0, capsys.readouterr().out
    assert "words (" in capsys.readouterr().out
    is_tidy(folder)
    made = built_rows(project)
    model = load_dataset((folder / "model.py").read_text(), tmp_path)
    constant, learned = losses(model, load_use_case(folder).spec, made.sample(frac=1, random_state=0), target)
    assert learned < 0.6 * constant, (constant, learned)


def test_words_without_blanks_between_them_are_read_as_everywhere(tmp_path, monkeypatch, capsys):
    rows = reviews(alone=True).drop(columns="stars")
    draw = random.Random(3)
    common, told = "送的早餐房间离墙只有几公分其它都可以", {"yes": "很棒", "no": "郁闷"}
    rows["told"] = [f"{''.join(draw.choices(common, k=30))}{told[bought]} iPhone手机。" for bought in rows["bought"]]
    project = set_up(tmp_path, monkeypatch)
    assert new(project, rows, "--target", "bought", suffix=".parquet") == 0, capsys.readouterr().err
    assert "'told' is free text" in capsys.readouterr().out
    folder = project / "use_cases" / "shop"
    is_tidy(folder)
    model = load_dataset((folder / "model.py").read_text(encoding="utf-8"), tmp_path)
    for text in (*rows["told"][:20], "早", "映画を見た THAT was 12 ภาพยนตร์ a早b", ""):
        assert model.words_in(text) == words_in(text.lower())
    made = built_rows(project)
    constant, learned = losses(model, load_use_case(folder).spec, made.sample(frac=1, random_state=0), "bought")
    assert learned < 0.6 * constant, (constant, learned)


def losses(task, spec, rows: pd.DataFrame, target: str) -> tuple[float, float]:
    """The mean loss on rows that training has not seen, of the fresh network and of one after some epochs."""
    training, later = rows.head(800), rows.tail(300)
    hyperparameters = dict(spec.hyperparameters)
    torch.manual_seed(0)
    label = rows[target].astype(float)
    state = dict(task.fit_preprocessing(training, hyperparameters))
    state["target"] = {"mean": float(label.head(800).mean()), "standard_deviation": float(label.head(800).std())}
    network = task.build_model(state, hyperparameters)
    inputs, labels = task.to_tensors(training, state), torch.tensor(label.to_numpy(np.float32))

    def loss_of_later() -> float:
        network.eval()
        with torch.no_grad():
            outputs = network(task.to_tensors(later, state))
        return float(task.loss_fn(outputs, labels[-300:]).mean())

    before = loss_of_later()
    optimizer = torch.optim.AdamW(network.parameters(), lr=spec.training.optimizer.learning_rate)
    for _ in range(12):
        network.train()
        for batch in torch.randperm(800).split(64):
            optimizer.zero_grad()
            outputs = network({name: tensor[batch] for name, tensor in inputs.items()})
            task.loss_fn(outputs, labels[batch]).mean().backward()
            optimizer.step()
    return before, loss_of_later()
