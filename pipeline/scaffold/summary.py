"""What a file holds that a person should know before a model learns from it: what is missing, doubled or misread."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from trainworthy.pipeline.scaffold.dates import format_of
from trainworthy.pipeline.scaffold.reading import Reading
from trainworthy.pipeline.scaffold.roles import NEARLY, numbers_among
from trainworthy.pipeline.scaffold.source import DECIMAL_COMMA, Kind

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 5
# Whole numbers that name something: by the column's name, or by having as many digits in every row.
_CODE_NAME = re.compile(
    r"(^|[_\W])(zip|zipcode|plz|postal|postcode|postal_code|code|phone|iban|icd|naics|sic)([_\W]|$)", re.I
)
_CODE_DIGITS = 5
# Rows that show how many digits a number has.
_LOOKED_AT = 500


def what_was_seen(
    raw: pd.DataFrame,
    rows: pd.DataFrame,
    kinds: Mapping[str, Kind],
    target: str,
    reading: Reading | None,
    formats: Mapping[str, str],
    ambiguous: Mapping[str, Sequence[str]],
) -> tuple[str, ...]:
    """A line for each thing. `raw` is the file, all text if it is CSV; `rows` what dataset.py makes of it."""
    unlabelled = int(rows[target].isna().sum())
    without = f"; {unlabelled:,} without one train nothing" if unlabelled else ""
    return (
        *([] if reading is None or reading == Reading() else [f"read as {reading.told}"]),
        f"{len(rows):,} rows, {len(rows) - unlabelled:,} with a label{without}",
        *_nulls(raw, target),
        *_duplicates(raw),
        *_names(raw),
        *(line for name, kind in kinds.items() for line in _column(raw[name], kind, name in ambiguous)),
        *(f"{name!r} is read as dates in the form {format_of(formats, name)}" for name in formats),
        *(f"{name!r} looks like dates, in one of the forms {', '.join(forms[:3])}: read as text"
          for name, forms in ambiguous.items()),
    )  # fmt: skip


def _nulls(raw: pd.DataFrame, target: str) -> Iterator[str]:
    shares = raw.drop(columns=[target]).isna().mean()
    some = shares[shares > 0].sort_values(ascending=False)
    if len(some):
        shown = ", ".join(f"{name!r} {share:.1%}" for name, share in some.head(_SHOWN).items())
        more = f" and {len(some) - _SHOWN} more" if len(some) > _SHOWN else ""
        yield f"empty values in {len(some)} of {raw.shape[1]} columns: {shown}{more}"
    else:
        yield "no empty values in any input"


def _duplicates(raw: pd.DataFrame) -> Iterator[str]:
    try:
        count = int(raw.duplicated().sum())
    except TypeError:
        # Values that can't be hashed, in a Parquet file.
        return
    if count:
        yield f"{count:,} rows repeat another one exactly: remove them, unless they really happened twice"
    else:
        yield "no row repeats another one exactly"


def _names(raw: pd.DataFrame) -> Iterator[str]:
    plain: dict[str, list[str]] = {}
    for name in map(str, raw.columns):
        plain.setdefault(re.sub(r"[\s_]+", "", name).casefold(), []).append(name)
    for names in plain.values():
        if len(names) > 1:
            yield f"the names {' and '.join(map(repr, names))} differ by a blank or by case alone: are they one column?"
    blank = [str(name) for name in raw.columns if str(name) != str(name).strip()]
    if blank:
        yield f"names with a blank at an end: {', '.join(map(repr, blank[:_SHOWN]))}"


def _column(values: pd.Series, kind: Kind, is_date: bool) -> Iterator[str]:
    """What a column may be other than it is read as."""
    known = values.dropna()
    if known.empty:
        return
    name = repr(values.name)
    if kind == "text" and not is_date:
        yield from _text(name, known.astype("str").str.strip())
    texts = known.head(_LOOKED_AT).astype("str").str.strip() if kind in ("integer", "number") else None
    if texts is not None and _looks_like_code(str(values.name), texts):
        fix = 'if it is a code, write "text" for it in dataset.py (TYPES)'
        yield f"{name} is read as a number, such as {texts.iloc[0]}: {fix}"


def _text(name: str, texts: pd.Series) -> Iterator[str]:
    if texts.str.match(r"-?0\d").any() and texts.str.fullmatch(r"\d+").all():
        yield f"{name} is kept as text: it has leading zeros, such as {texts[texts.str.startswith('0')].iloc[0]!r}"
        return
    numbers, others = numbers_among(texts)
    if len(others) and NEARLY * len(texts) <= numbers < len(texts):
        shown = ", ".join(f"{value!r} ({count:,})" for value, count in others.head(3).items())
        yield f"{name} is read as text: {numbers:,} of {len(texts):,} values are numbers, and others are not: {shown}"
    commas = texts.str.fullmatch(DECIMAL_COMMA)
    if commas.mean() >= NEARLY:
        shown = texts[commas].iloc[0]
        yield f"{name} is read as text: its numbers have a decimal comma, such as {shown!r}; write them with a point"


def _looks_like_code(name: str, texts: pd.Series) -> bool:
    if not texts.str.fullmatch(r"\d+").all():
        return False
    digits = texts.str.len()
    return bool(_CODE_NAME.search(name)) or (
        digits.nunique() == 1 and digits.iloc[0] >= _CODE_DIGITS and texts.nunique() > 1
    )
