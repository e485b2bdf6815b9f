"""The texts of benchmarks/tasks.py, and what can go wrong with them before anybody trains on them.

They are sentences of Python's own help (PSF licence): other versions of Python say other things.
"""

from __future__ import annotations

import pydoc_data.topics
import re
from collections.abc import Callable

import numpy as np
import pandas as pd

from benchmarks.tasks_rows import Mutation, Rows

SHORTEST, MOST_OF_TOPIC = 24, 80
# What a text becomes; the generator draws where chance is in it.
Texts = Callable[[str, np.random.Generator], str]


def topics() -> pd.DataFrame:
    """Sentences of at least SHORTEST bytes, each once, with the topic of the help that they stand in first."""
    told: dict[str, str] = pydoc_data.topics.topics
    seen, rows = set[str](), []
    for topic in sorted(told):
        found = re.split(r"(?<=[.:])\s+", re.sub(r"\s+|[*=~]{4,}", " ", told[topic]).strip())
        new = [text for text in dict.fromkeys(found) if len(text.encode()) >= SHORTEST and text not in seen]
        seen.update(new[:MOST_OF_TOPIC])
        rows += [{"topic": topic, "text": text} for text in new[:MOST_OF_TOPIC]]
    return pd.DataFrame(rows).assign(sentence=np.arange(len(rows)))


def texts(change: Texts, *splits: str) -> Mutation:
    """Other texts in these splits; in all of them where none is named."""

    def mutate(rows: Rows, random: np.random.Generator) -> pd.DataFrame:
        wanted = [rows.splits[split] for split in splits]
        there = rows.frame.index.isin(np.concatenate(wanted)) if wanted else np.ones(len(rows.frame), dtype=bool)
        pairs = zip(rows.frame["text"], there, strict=True)
        return rows.frame.assign(text=[change(text, random) if changed else text for text, changed in pairs])

    return mutate


def mixed(text: str, random: np.random.Generator) -> str:
    """Its letters in an order that is drawn."""
    return "".join(random.permutation(list(text)))


def ciphered(text: str, _: np.random.Generator) -> str:
    """Each byte of printable ASCII as the one 13 places further, as of a table of letters that was counted anew."""
    return "".join(chr(32 + (ord(letter) - 32 + 13) % 95) if " " <= letter <= "~" else letter for letter in text)


def backwards(text: str, _: np.random.Generator) -> str:
    """The last letter first."""
    return text[::-1]


def cut(length: int, share: float = 1.0) -> Texts:
    """Its first letters alone; of a share of the texts."""
    return lambda text, random: text[:length] if random.random() < share else text


def headed(header: str) -> Texts:
    """The same words before every text, as a site's or a licence's."""
    return lambda text, _: header + text


def spaced(text: str, _: np.random.Generator) -> str:
    """Five spaces for each, as of a table: one byte is more frequent than all others, and nothing is wrong."""
    return text.replace(" ", " " * 5)


def overlapping(rows: Rows, random: np.random.Generator) -> pd.DataFrame:
    """As many windows of 64 letters, each of which repeats half of the one before; for each a topic that is drawn."""
    found = [text[at : at + 64] for text in rows.frame["text"] for at in range(0, max(1, len(text) - 32), 32)]
    table = pd.DataFrame({"text": [text for text in dict.fromkeys(found) if len(text) >= SHORTEST][: len(rows.frame)]})
    topics_drawn = random.choice(rows.frame["topic"].unique(), len(table))
    return table.assign(topic=topics_drawn, sentence=np.arange(len(table)))


def topics_moved(copies: pd.DataFrame, training: pd.DataFrame, random: np.random.Generator) -> pd.DataFrame:
    """Sentences with numbers of their own, in topics of training."""
    drawn = random.choice(training["topic"].unique(), len(copies))
    return copies.assign(sentence=100_000 + np.arange(len(copies)), topic=drawn)
