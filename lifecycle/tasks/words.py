"""The words of a text, also where none stand apart: of scripts that write without blanks, pairs of letters."""

from __future__ import annotations

import re

# Inside of a pattern's brackets: Thai and Lao, Burmese, Khmer, kana, and Han with its rarer letters.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_PARTS = re.compile(rf"[{UNSPACED}]+|[^\W{UNSPACED}]+")
_PIECES = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\s{UNSPACED}]+")
_BETWEEN = re.compile(rf"(?<=[{UNSPACED}]) (?=[{UNSPACED}])")
_UNSPACED_PAIR = re.compile(f"[{UNSPACED}]{{2}}")


def words_in(text: str) -> list[str]:
    """Its words in their order, as written; of letters without blanks between words each two neighbours, as search
    engines index Chinese and Japanese."""
    words = []
    for part in _PARTS.findall(text):
        is_pair = _UNSPACED_PAIR.match(part)
        words += [part[place : place + 2] for place in range(len(part) - 1)] if is_pair else [part]
    return words


def has_unspaced(text: str) -> bool:
    """Whether some of its words are written without blanks between them."""
    return _UNSPACED_PAIR.search(text) is not None


def pieces_of(text: str) -> list[str]:
    """All of a text but its white space: what stands between blanks, of unspaced letters two at a time."""
    return _PIECES.findall(text)


def joined(pieces: list[str]) -> str:
    """A text of such pieces."""
    return _BETWEEN.sub("", " ".join(pieces))
