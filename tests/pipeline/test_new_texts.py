"""`trainworthy new` of texts: a language model of a table's column or of text files, or what is wrong with them."""

import random
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from shop_rows import found, table, told
from test_new import built_rows, new, set_up
from test_new_folder import found as found_folder
from test_new_folder import is_tidy
from test_new_folder import told as told_folder

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.pipeline.cli import main
from trainworthy.pipeline.scaffold import pieces, shares
from trainworthy.pipeline.scaffold.profile import load_dataset

WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "sea",
    "ship",
    "whale",
    "captain",
    "water",
    "great",
    "white",
    "old",
    "man",
    "day",
    "night",
    "over",
    "under",
    "größe",
    "wave",
]
CHINESE = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳"


def tale(seed: int, words: int = 30, line: int = 9) -> str:
    """Words in lines, other ones for each seed."""
    draw = random.Random(seed)
    chosen = draw.choices(WORDS, k=words)
    return "\n".join(" ".join(chosen[at : at + line]) for at in range(0, words, line))


def tales(rows: int = 1200, words: int = 30) -> pd.DataFrame:
    return table().head(rows).assign(told=[tale(seed, words) for seed in range(rows)])


def of_texts(rows: pd.DataFrame, tmp_path: Path, **asked):
    result, problems = found(rows, tmp_path, **({"target": "told", "time": None} | asked))
    assert problems == []
    assert result is not None
    return result


def group_of(result) -> str | None:
    """The column whose values lie in one split each; None of another split."""
    return getattr(result.windows.split, "group", None)


def write(folder: Path, texts: Mapping[str, str | bytes]) -> Path:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def of_folder(data: Path, tmp_path: Path, **asked):
    result, problems = found_folder(data, tmp_path / "work", **asked)
    assert problems == []
    assert result is not None
    return result


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_long_texts_of_a_table_are_to_be_gone_on_with_and_why_is_told(tmp_path, suffix):
    result = of_texts(tales(), tmp_path, suffix=suffix)
    assert result.target.task.model_dump(exclude_defaults=True) == {"kind": "language_model", "length": 128}
    why = "'told' holds 1,200 different texts, half of them of 1"
    assert result.target.why.startswith(why)
    assert "kind language_model, each byte by those before it (--kind multiclass" in result.target.why
    # Times beside texts split nothing unless that is asked for.
    assert (result.windows.split.by, group_of(result), result.time) == ("group", "document", None)
    roles = {column.name: column.role for column in result.columns}
    assert roles == {"piece": "key", "document": "entity", "told": "feature"} | dict.fromkeys(
        ("visit_id", "at", "x", "place", "bought"), "other"
    )


def test_pieces_are_short_enough_and_lose_nothing_between_them(tmp_path):
    texts = [*tales(1200).told, "x" * 500, " ".join([CHINESE] * 9), "\n" * 300, " ", "a", ""]
    rows = pd.DataFrame({"told": [*texts, None]})
    result = of_texts(rows, tmp_path)
    made = result.rows
    assert max(len(piece.encode()) for piece in made["told"]) <= 128
    assert made["piece"].tolist() == list(range(len(made)))
    assert all(piece in texts[place] for place, piece in zip(made["document"], made["told"], strict=True))
    # What is behind the last whole piece may be too short to count; a text that repeats itself has pieces once.
    for place in range(1200):
        whole = "".join(made.loc[made["document"] == place, "told"])
        assert texts[place].startswith(whole)
        assert len(texts[place].encode()) - len(whole.encode()) < 32
    # Of a text of one letter all pieces are alike: the first one is kept, and the rest of another length.
    assert made[made["document"] == 1200]["told"].str.len().tolist() == [128, 116]
    assert set(range(1200)) < set(made["document"]) == set(range(1202))
    assert "5 of them give no piece: empty, white space alone or a single letter" in result.observations
    first = made[made["document"] == 0]["told"].tolist()
    assert all(piece.endswith("\n") for piece in first[:-1])


def test_texts_without_blanks_are_texts_where_they_are_no_ascii_and_names_of_files_are_none(tmp_path):
    draw = random.Random(0)
    rows = pd.DataFrame({"told": ["".join(draw.choices(CHINESE, k=60)) for _ in range(1100)]})
    assert of_texts(rows, tmp_path).target.task.kind == "language_model"
    (tmp_path / "b").mkdir()
    rows = pd.DataFrame({"told": [f"{draw.randbytes(48).hex()}" for _ in range(1100)], "x": np.arange(1100.0)})
    problems = told(rows, tmp_path / "b", target="told", time=None)
    assert "they look like names" in problems
    assert "--kind language_model if the next byte of each text is to be predicted" in problems
    assert len(problems) < 700
    (tmp_path / "c").mkdir()
    assert of_texts(rows, tmp_path / "c", kind="language_model").target.why.endswith("each byte by those before it")


@pytest.mark.parametrize(
    ("values", "asked", "texts"),
    [
        (np.arange(1200) / 7, {}, ("a language_model needs texts, and 'told' holds numbers: ", "a column of texts")),
        (["ab"[place % 2] for place in range(1200)], {}, ("no text of 'told' is longer than one byte",)),
        (None, {}, ("'told' is empty in all 1,200 rows",)),
        (["once " * 30] * 1200, {}, ("the texts are too short or too few", "'1 different pieces'", "1,000 pieces")),
        ([tale(seed) for seed in range(1200)], {"positive": "x"}, ("--positive", "kind language_model")),
        ([tale(seed) for seed in range(1200)], {"quantiles": "0.5"}, ("--quantiles", "belong to numbers")),
        ([tale(seed) for seed in range(1200)], {"keys": ("visit_id",)}, ("--key", "each piece is one")),
    ],
)
def test_texts_that_do_not_go_on_are_told_with_a_fix(tmp_path, values, asked, texts):
    rows = table().assign(told=values)
    problems = told(rows, tmp_path, **({"target": "told", "time": None, "kind": "language_model"} | asked))
    assert all(text in problems for text in texts), problems


def test_label_s_name_that_is_a_column_s_is_told(tmp_path):
    problems = told(tales().assign(told_bytes=1), tmp_path, target="told", time=None)
    assert "would have the name of another column, 'told_bytes'" in problems


@pytest.mark.parametrize(
    ("asked", "by", "group"),
    [
        ({"time": "at"}, "time", None),
        ({"group": "block"}, "group", "block"),
        ({"split": "hash"}, "hash", None),
        ({}, "group", "customer_id"),
    ],
)
def test_texts_are_split_as_asked_or_by_whom_they_are_of(tmp_path, asked, by, group):
    rows = tales(words=60).assign(block=np.arange(1200) % 150)
    rows = rows if asked else rows.assign(customer_id=np.arange(1200) % 300)
    result = of_texts(rows, tmp_path, **asked)
    assert (result.windows.split.by, group_of(result)) == (by, group)
    spread = any("pieces of one text lie in several splits" in line for line in result.observations)
    assert spread == (by == "hash")


def test_names_that_the_file_has_are_not_taken(tmp_path):
    rows = tales().rename(columns={"x": "piece", "place": "document"})
    result = of_texts(rows, tmp_path)
    assert (result.key, group_of(result)) == (("text_piece",), "text_document")


@pytest.mark.parametrize("count", [1, 2, 6])
def test_few_long_texts_are_split_by_passages_and_that_is_told(tmp_path, count):
    rows = pd.DataFrame({"told": [tale(seed, 54_000 // count) for seed in range(count)]})
    result = of_texts(rows, tmp_path)
    assert group_of(result) == "passage"
    sizes = result.rows.groupby("passage").size()
    assert (sizes <= pieces.PIECES_A_PASSAGE).all()
    assert sizes.max() == pieces.PIECES_A_PASSAGE
    assert any("a model is judged on texts of which it knows other parts" in line for line in result.observations)


def test_of_very_many_pieces_some_are_kept_and_how_many_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "MOST_PIECES", 500)
    monkeypatch.setattr(shares, "LEAST_ROWS", 300)
    result = of_texts(tales(), tmp_path)
    assert 300 < len(result.rows) <= 550
    assert "EVERY = " in result.dataset_text
    assert any("takes minutes (EVERY in dataset.py" in line for line in result.observations)


def test_drafted_language_model_of_a_table_passes_check_and_takes_a_next_part(tmp_path, monkeypatch, capsys):
    project = set_up(tmp_path, monkeypatch)
    assert new(project, tales(words=40), "--target", "told", suffix=".parquet") == 0
    out = capsys.readouterr().out
    assert "a model of them can recite what it has read" in out
    assert "contract review" not in out
    folder = project / "use_cases" / "shop"
    spec, contract = load_use_case(folder).spec, load_contract(folder / "contract.yaml")
    assert (spec.benchmark.primary.metric, spec.benchmark.primary.margin) == ("bits_per_byte", 0.02)
    assert (spec.benchmark.baselines, spec.task.length) == (("prior", "linear"), 128)
    assert (contract.label.name, contract.label.type, contract.feature_columns) == ("told_bytes", "text", ("told",))
    assert main(["check", "shop"]) == 0, capsys.readouterr().out
    assert "✓ predict" in capsys.readouterr().out
    is_tidy(folder)
    source = tmp_path / "source"
    source.mkdir()
    first = tales(words=40)
    first.to_parquet(source / "part-0001.parquet", index=False)
    pd.concat([first.head(1), first.head(1).assign(told="a next one")]).to_parquet(source / "part-0002.parquet")
    dataset = load_dataset((folder / "dataset.py").read_text(), tmp_path)
    dataset.build(source, tmp_path / "second", 2)
    made = built_rows(project)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "second" / "part-0001.parquet"), made)
    later = pd.read_parquet(tmp_path / "second" / "part-0002.parquet")
    # The first text came before; the second is another row of the file.
    assert later[["piece", "document", "told"]].values.tolist() == [[len(made), 1201, "a next one"]]


def test_text_files_without_classes_become_a_language_model_of_pieces_in_a_table(tmp_path, monkeypatch, capsys):
    project = set_up(tmp_path, monkeypatch)
    names = {f"{one:03}.txt": tale(one, 180).replace("\n", "\r\n") for one in range(150)}
    data = write(
        tmp_path / "data", names | {"150.txt": b"\xef\xbb\xbf" + tale(150, 90).encode(), "151.txt": "", "a.md": ""}
    )
    assert main(["new", "shop", "--data", str(data)]) == 0
    out = capsys.readouterr().out
    assert "152 texts without classes: kind language_model, each byte by those before it" in out
    assert "1 of them give no piece: empty, white space alone or a single letter" in out
    assert "left out: other files (1 .md)" in out
    folder = project / "use_cases" / "shop"
    spec, contract = load_use_case(folder).spec, load_contract(folder / "contract.yaml")
    assert (spec.task.length, spec.split.by, getattr(spec.split, "group", None)) == (128, "group", "name")
    assert [(column.name, column.role) for column in contract.columns] == [
        ("piece", "key"), ("name", "entity"), ("folder", "other"), ("text", "feature"),
    ]  # fmt: skip
    assert contract.file_columns == ()
    assert main(["check", "shop"]) == 0, capsys.readouterr().out
    is_tidy(folder)
    rows = built_rows(project)
    assert rows["name"].iloc[0] == "part-0001/000.txt"
    assert not rows["text"].str.contains("\r|\ufeff").any()
    assert (project / "data" / "shop_source" / "part-0001" / "000.txt").read_bytes() == names["000.txt"].encode()


def test_folders_of_texts_are_classes_unless_a_language_model_is_asked_for(tmp_path):
    made = {f"{'ab'[one % 2]}/{one:03}.txt": tale(one, 180) for one in range(120)}
    data = write(tmp_path / "data", made | {"c/d/deep.txt": tale(200)})
    assert "lie deeper than in the folder of their class" in told_folder(data, tmp_path / "one")
    result = of_folder(data, tmp_path, kind="language_model")
    assert result.target.why.endswith("each byte by those before it, as asked")
    assert set(result.rows["folder"]) == {"a", "b", "c/d"}
    shutil.rmtree(data / "c")
    assert "write --positive a or --positive b" in told_folder(data, tmp_path / "two")


@pytest.mark.parametrize(
    ("names", "asked", "group"),
    [
        ("{book:03}_{one}.txt", {}, "prefix"),
        ("{book:03}/{one}.txt", {"kind": "language_model"}, "folder"),
        ("{book:03}_{one}.txt", {"split": "hash"}, None),
        ("{one}.txt", {}, "name"),
    ],
)
def test_texts_of_one_author_are_found_by_names(tmp_path, names, asked, group):
    texts = {names.format(book=one // 2, one=one): tale(one, 160) for one in range(160)}
    assert group_of(of_folder(write(tmp_path / "data", texts), tmp_path, **asked)) == group


def test_one_huge_text_is_split_by_passages_and_a_file_is_to_lie_in_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pieces, "MOST_PIECES", 1500)
    data = write(tmp_path / "data", {"book.txt": tale(0, 60_000)})
    result = of_folder(data, tmp_path)
    assert 1000 < len(result.rows) < 1600
    assert group_of(result) == "passage"
    set_up(tmp_path, monkeypatch)
    assert main(["new", "shop", "--data", str(data / "book.txt")]) == 1
    problems = capsys.readouterr().err
    assert "rename a table to .csv; put a text into a folder of its own" in problems
    assert "--target" not in problems


@pytest.mark.parametrize(
    ("texts", "asked", "problem"),
    [
        ({"a.txt": tale(0), "b.txt": "caf\xe9 am See".encode("latin-1")}, {}, "'b.txt': UnicodeDecodeError"),
        ({"b.txt": "café".encode("utf-16")}, {}, "iconv -f cp1252 -t utf-8"),
        ({"a.txt": "", "b.txt": "x"}, {}, "no text is longer than one byte"),
        ({f"{one}.txt": tale(one) for one in range(9)}, {}, "the texts are too short or too few"),
        ({f"{one}.txt": tale(one) for one in range(9)}, {"positive": "a"}, "--positive: names a class"),
        ({f"{one}.txt": tale(one) for one in range(9)}, {"group": "folder"}, "the files lie in no inner folders"),
        ({f"{one}.txt": tale(one) for one in range(9)}, {"kind": "multiclass"}, "9 texts and no folder for each class"),
    ],
)
def test_texts_that_make_no_language_model_are_one_error(tmp_path, texts, asked, problem):
    problems = told_folder(write(tmp_path / "data", texts), tmp_path / "work", **asked)
    assert problem in problems
    assert problems.count("fix: ") == 1
