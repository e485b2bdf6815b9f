"""Free text: a column of sentences, such as reviews, tickets or comments, of which the words are read.

It is told from identifiers, codes, names, addresses and categories by its values alone. Where words are written without
blanks, as in Chinese, each two letters count as a word, which most are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainworthy.lifecycle.sampling import evenly_spread
from trainworthy.lifecycle.tasks.words import UNSPACED

if TYPE_CHECKING:
    import pandas as pd

# Words of the typical (median) value; from MANY_WORDS on it may be all in capitals, or each word with a capital, as
# names and addresses are. Scripts without blanks have no capitals to tell a name by: it takes as many.
FEWEST_WORDS, MANY_WORDS = 3, 6
# Values that are looked at.
_LOOKED_AT = 1000
# A word by itself, with its apostrophes and hyphens: no address of the web, path, mail address or code.
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_TWO_UNSPACED = re.compile(f"[{UNSPACED}]{{2}}")
_AROUND = "\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb\u201e()[]{}<>.,;:!?\u00a1\u00bf\u2026*-\u2013\u2014~=+|#/"


def is_free_text(values: pd.Series) -> bool:
    """Whether most of the known values differ in their words, and the typical one has several words.

    Missing values count for nothing; values that are no texts make it False.
    """
    known = values.dropna()
    if not len(known) or not _may_hold_texts(known):
        return False
    looked_at = known.iloc[evenly_spread(len(known), _LOOKED_AT)].tolist()
    if not all(isinstance(value, str) for value in looked_at):
        return False
    words = [_words(text) for text in looked_at]
    if not _is_of_sentences(words):
        return False
    # "Order 17 was sent" and "Order 18 was sent" are a code each, however many there are.
    differ = len({tuple(some) for some in words}) > len(words) / 2
    return differ and known.astype("str").nunique() > len(known) / 2


def _may_hold_texts(values: pd.Series) -> bool:
    import pandas as pd

    categorical = isinstance(values.dtype, pd.CategoricalDtype)
    return categorical or values.dtype == object or pd.api.types.is_string_dtype(values.dtype)


def _words(text: str) -> list[str]:
    # A long text is one by its beginning.
    beginning = text[:2000]
    parts = (part.strip(_AROUND) for part in _TWO_UNSPACED.sub(" ", beginning).split())
    return [*(part for part in parts if _WORD.fullmatch(part)), *_TWO_UNSPACED.findall(beginning)]


def _is_of_sentences(words: list[list[str]]) -> bool:
    """Whether the typical value has several words, one of them at least without a capital, or many."""
    many = sorted(len(some) for some in words)[len(words) // 2]
    small = sum(any(not word[0].isupper() and not _TWO_UNSPACED.match(word) for word in some) for some in words)
    return many >= MANY_WORDS or (many >= FEWEST_WORDS and small > len(words) / 2)
