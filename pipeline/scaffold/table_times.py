"""In which form a column of text holds dates: ISO 8601, or one of the forms that people write."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import product

import pandas as pd

from trainworthy.lifecycle.errors import Problem

_DATES = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%y", "%m/%d/%y",
    "%d/%m/%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d-%b-%y", "%Y%m%d",
)  # fmt: skip
_TIMES = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", ", %H:%M", ", %H:%M:%S")
FORMS = tuple("".join(parts) for parts in product(_DATES, _TIMES))
# Digits alone are a date in the column of times and a number anywhere else.
_DIGITS = "%Y%m%d"
_TRIED, _LONGEST = 50, 40
# pandas takes 20120101, 2012/01/01 and 2012.01.01 for ISO 8601 too: they are forms of their own.
_NO_ISO = r"\d+$|\d{4}[/.]"


def time_formats(
    raw: pd.DataFrame, time: str | None, time_format: str | None
) -> tuple[dict[str, str], dict[str, list[str]], list[Problem]]:
    """The form of each column of dates that is not ISO 8601; of those that could be several, these; what is wrong.

    `time_format` is the form of the column `time`; of that column alone an ambiguous form is a problem.
    """
    formats, ambiguous, problems = {}, {}, []
    for name in raw.columns:
        texts = _texts(raw[name])
        if texts is None:
            continue
        if name == time and time_format is not None:
            problems += _misfits(texts, time_format)
            formats[name] = time_format
            continue
        if not texts.head(_TRIED).str.match(_NO_ISO).all() and parsed(texts, "ISO8601").notna().all():
            continue
        forms = [form for form in _candidates(texts) if name == time or form != _DIGITS]
        if len(forms) == 1:
            formats[name] = forms[0]
        elif forms:
            ambiguous[name] = forms
        if name == time:
            problems += _ambiguous(name, texts, forms) if len(forms) > 1 else _mixed(name, texts) if not forms else []
    return formats, ambiguous, problems


def _texts(values: pd.Series) -> pd.Series | None:
    """The known values of a column of text that may be dates; None of any other."""
    known = values.dropna()
    if known.empty or pd.api.types.infer_dtype(known.head(_TRIED), skipna=True) not in ("string", "categorical"):
        return None
    texts = known.astype("str").str.strip()
    few = texts.head(_TRIED)
    # What has no digit, or is long, is no date: most columns end here.
    if not few.str.contains(r"\d").all() or few.str.len().max() > _LONGEST:
        return None
    return texts


def parsed(texts: pd.Series, form: str) -> pd.Series:
    """The texts as times, NaT where they are none of this form. Raises ValueError if the form is none."""
    return pd.to_datetime(texts, format=form, utc=True, errors="coerce")


def _candidates(texts: pd.Series) -> list[str]:
    """The forms that read every text: a few texts sort out most of them."""
    few, different = texts.head(_TRIED), texts.drop_duplicates()
    forms = (_DIGITS,) if few.str.fullmatch(r"\d+").all() else FORMS
    near = [form for form in forms if parsed(few, form).notna().all()]
    return [form for form in near if parsed(different, form).notna().all()]


def _misfits(texts: pd.Series, form: str) -> list[Problem]:
    try:
        wrong = texts[parsed(texts, form).isna()]
    except ValueError as error:
        return [
            Problem("--time-format", f"is no form of dates: {error}", "write it as %d.%m.%Y or %m/%d/%Y %H:%M", form)
        ]
    if wrong.empty:
        return []
    fix = f"name the form that the column has, or correct these values; {texts.iloc[0]!r} is its first"
    return [Problem("--time-format", f"does not fit {len(wrong):,} values, such as {wrong.iloc[0]!r}", fix, form)]


def _ambiguous(name: str, texts: pd.Series, forms: list[str]) -> list[Problem]:
    readings = " or ".join(f"{parsed(texts.head(1), form).iloc[0]:%d %B %Y} ({form})" for form in forms[:3])
    fix = " or ".join(f"--time-format {shlex.quote(form)}" for form in forms[:3])
    problem = f"{name!r} can be read in several ways: {texts.iloc[0]!r} is {readings}"
    return [Problem("--time", problem, f"write {fix}", texts.iloc[0])]


def _mixed(name: str, texts: pd.Series) -> list[Problem]:
    """Several forms in one column; nothing if it holds no dates at all, which is told elsewhere."""
    left, examples = texts.drop_duplicates().head(5000), list[str]()
    for form in ("ISO8601", *FORMS):
        fits = parsed(left, form).notna()
        if fits.any():
            examples.append(f"{left[fits].iloc[0]!r}")
            left = left[~fits]
        if left.empty:
            break
    if not examples:
        return []
    not_dates = f"{len(left):,} values that are no dates, such as {left.iloc[0]!r}" if len(left) else ""
    several = f"dates in several forms, such as {' and '.join(examples[:4])}" if len(examples) > 1 else ""
    contents = "; ".join(part for part in (several, not_dates) if part)
    return [
        Problem(
            "--time",
            f"{name!r} holds {contents}",
            "write all of them in one form, best as 2024-01-31",
            str(texts.iloc[0]),
        )
    ]


def format_of(formats: Mapping[str, str], name: str) -> str:
    """The form of a column of times, for people."""
    return formats.get(name, "ISO 8601")
