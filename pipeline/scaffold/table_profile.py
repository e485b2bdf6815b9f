"""What a table holds, as far as a use case needs it: types, label, key, roles and windows; or all that is wrong.

What a file holds that a person should know before a model learns from it: what is missing, doubled or misread.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from trainworthy.lifecycle.errors import Problem, did_you_mean
from trainworthy.pipeline.scaffold.clock import clock_columns
from trainworthy.pipeline.scaffold.folder import AS_ARRAYS
from trainworthy.pipeline.scaffold.folder_profile import MOST_TENSOR_BYTES, plan_of_files
from trainworthy.pipeline.scaffold.profile import (
    Plan,
    UseCaseDraft,
    built,
    free_texts,
    load_dataset,
    plan_of_table,
    with_base_rate,
)
from trainworthy.pipeline.scaffold.reading import Reading, find_reading
from trainworthy.pipeline.scaffold.render import rendered
from trainworthy.pipeline.scaffold.request import Request
from trainworthy.pipeline.scaffold.roles import MOST_SHOWN, NEARLY, column_roles, find_key, null_option, numbers_among
from trainworthy.pipeline.scaffold.shares import find_group, first_shares
from trainworthy.pipeline.scaffold.source import DECIMAL_COMMA, Kind, column_kinds, free_name, read_source
from trainworthy.pipeline.scaffold.table_files import (
    PART,
    TableFiles,
    file_observations,
    find_file_columns,
)
from trainworthy.pipeline.scaffold.table_times import format_of, parsed, time_formats
from trainworthy.pipeline.scaffold.target import find_target
from trainworthy.pipeline.scaffold.text_profile import find_texts_of_table
from trainworthy.pipeline.scaffold.together import Together, find_together
from trainworthy.pipeline.scaffold.whom import Whom, find_whom
from trainworthy.pipeline.scaffold.windows import choose_windows, recurring


def find_out(request: Request, source: Path, work: Path) -> tuple[UseCaseDraft | None, list[Problem]]:
    """What the file `source` holds; None and every problem that could be found. `work` is an empty folder.

    The rows are built by a dataset.py that is made here. Without a valid name there is none, and only the file's own
    columns are looked at.
    """
    reading, problems = _reading(request, source)
    if problems:
        return None, problems
    raw, problems = read_source(source, reading)
    if raw is None:
        return None, problems
    formats, ambiguous, problems = time_formats(raw, request.time, request.time_format)
    kinds, kind_problems = column_kinds(raw, formats)
    target, target_problems = find_target(request, raw, kinds)
    problems += [*kind_problems, *target_problems, *_key_problems(request, raw), *_group_problems(request, raw)]
    # A form of dates that could not be told says more than that the column is none of times; and times beside texts
    # need not be when a model is asked to go on with them.
    is_text = target is not None and target.task.kind == "language_model"
    if not (is_text and request.time is None) and not any(problem.where.startswith("--time") for problem in problems):
        problems += _time_problems(request, raw, kinds)
    if problems or target is None or not request.is_named:
        return None, problems
    kinds |= {target.column: target.read_as}
    if target.task.kind == "language_model":
        return find_texts_of_table(request, source, work, raw, kinds, target, reading, formats)
    time, day = request.time, request.time and free_name("day", request.time, kinds)
    key = request.keys or find_key(raw, kinds, time, target.column)
    files, problems = find_file_columns(source, raw, kinds, target.column, (time, request.group, *key))
    if problems:
        return None, problems
    kinds |= {place.source: "text" for place in files.places.values()}
    numbered = None if key else free_name("row", time or "new", kinds)
    # Beside files they would be one more part of the network.
    clock = {} if time is None or files.columns else clock_columns(raw, time, kinds[time], formats, (*kinds, str(day)))
    text = rendered(
        "dataset.py.j2", name=request.name, kinds=kinds, time=time, target=target, day=day,
        numbered=numbered, reading=reading, formats=formats, cut=None, files=files.places, clock=clock,
    )  # fmt: skip
    rows = _table_of(text, files, work, numbered) if files.columns else built(text, source, work)
    key = key or (str(numbered),)
    of_files = [name for column in files.columns for name in (column.name, column.place.source)]
    known = (time, day, *key, *of_files, *clock)
    together = find_together(rows, target.label, (target.column, *known))
    about = find_whom(rows, target.column, known)
    group, whom = request.group, None
    if day is not None:
        windows, problems = choose_windows(rows, day, target.label)
    else:
        repeated = next((column.place.source for column in files.columns if column.repeats), None)
        whom = repeated or find_group(rows, target.column, key)
        groups = _groups(request, whom, about, together)
        group, windows, problems = first_shares(rows, target.label, key, groups, request.split)
    if windows is None:
        return None, problems
    remarks = {column.name: column.remark(group, has_times=time is not None) for column in (*about, *together)}
    if day is None and whom is not None and group is None:
        remarks = {whom: split_anyway(whom, request.split)} | remarks
    columns = tuple(
        column_roles(
            rows, time=time, day=day, label=target.label, key=key, remark=target.remark, group=group, in_order=False,
            clock=tuple(clock), together=remarks, use_case=request.name,
        )
    )  # fmt: skip
    columns = files.drafts(columns)
    if not any(column.role == "feature" for column in columns):
        remarks = "; ".join(f"{column.name!r}: {column.remark or column.role}" for column in columns)
        fix = (
            f"give columns with several values that are known when the model is asked; sounds and signals: {AS_ARRAYS}"
        )
        told = "; ".join((remarks, *files.notes))
        return None, [Problem("--data", f"no column can be an input of a model ({told})", fix)]
    observations = table_observations(raw, rows, kinds, target.column, reading, formats, ambiguous)
    observations += tuple(file_observations(files, group))
    if clock:
        observations += (f"made of {time!r} by dataset.py, as inputs: {', '.join(clock)}",)
    if windows.split.by == "time":
        entities = [column.name for column in columns if column.role == "entity"]
        observations += tuple(recurring(rows, target.label, windows.split, entities))
    texts = free_texts(rows, columns)
    observations += tuple(f"{name!r} is free text: its words are read, without their order" for name in texts)
    draft = UseCaseDraft(
        kinds, target, time, day, tuple(key), text, rows, columns, windows, observations,
        table_files=files if files.columns else None, clock=tuple(clock),
    )  # fmt: skip
    return replace(draft, plan=_plan(draft, has_texts=bool(texts))), []


def _groups(
    request: Request, named: str | None, about: Sequence[Whom], together: Sequence[Together]
) -> tuple[str | None, ...]:
    """What rows without times may be split by, the best first.

    `named` is the column whose name says that it names whom a row is about, `about` those whose values do.
    """
    if request.group is not None or request.split is not None:
        return (request.group,)
    if named:
        return (named,)
    return (*(column.name for column in about), *(column.name for column in together if column.can_split), None)


def split_anyway(whom: str, split: str | None) -> str:
    """The remark on a column that names whom a row is about, where rows are split by chance all the same."""
    return (
        f"left out: it names whom a row is about, and by --split {split} rows of one {whom!r} lie in training and in "
        f"the benchmark. For new ones split by it: --group {whom}"
    )


def _table_of(text: str, files: TableFiles, work: Path, numbered: str | None) -> pd.DataFrame:
    """The rows that the generated dataset.py makes of a table and its files, which are not copied for that."""
    files.place(work / "files")
    rows = load_dataset(text, work).table(work / "files" / PART)
    if numbered is not None:
        rows.insert(0, numbered, range(len(rows)))
    return rows


def _plan(draft: UseCaseDraft, *, has_texts: bool) -> Plan:
    """That of the files, where one column of them is the one input; else that of a table."""
    if (alone := draft.files_alone) is not None:
        return with_base_rate(plan_of_files(alone.found, len(draft.rows)), draft.rows, draft.target)
    if (files := draft.table_files) is None:
        return plan_of_table(draft.rows, draft.target, has_texts=has_texts)
    return plan_of_table(
        draft.rows, draft.target, has_texts=has_texts or len(files.pictures) < len(files.columns),
        has_pictures=bool(files.pictures), per_batch=files.row_bytes * len(draft.rows) > MOST_TENSOR_BYTES,
    )  # fmt: skip


def _reading(request: Request, source: Path) -> tuple[Reading | None, list[Problem]]:
    """How a CSV file is to be read; None of any other file, for which read_source says what is wrong with it."""
    if source.suffix == ".csv" and source.is_file():
        return find_reading(source, request.encoding, request.separator, request.nulls)
    options = {"--encoding": request.encoding, "--separator": request.separator, "--null": request.nulls or None}
    fix = "leave it out"
    return None, [Problem(name, "is for CSV files", fix, value) for name, value in options.items() if value is not None]


def _group_problems(request: Request, raw: pd.DataFrame) -> Iterator[Problem]:
    name = request.group
    if name is None:
        return
    if name not in raw.columns:
        yield Problem("--group", "is no column of the file", did_you_mean(name, map(str, raw.columns)), name)
    elif missing := int(raw[name].isna().sum()):
        yield Problem("--group", f"{name!r} is empty in {missing:,} rows", "fill it in, or remove these rows", name)
    elif name == request.target:
        yield Problem("--group", "is the target too", "name two columns", name)


def _time_problems(request: Request, raw: pd.DataFrame, kinds: dict[str, Kind]) -> Iterator[Problem]:
    name = request.time
    if name is None:
        times = [other for other, kind in kinds.items() if kind in ("time", "instant")]
        if times and not (request.split or request.group):
            fix = (
                f"write --time {shlex.quote(times[0])} if the model is asked then; else --split hash, or --group COLUMN"
            )
            yield Problem("--time", f"is missing, and {times[0]!r} holds times", fix)
        return
    if name not in raw.columns:
        yield Problem("--time", "is no column of the file", did_you_mean(name, raw.columns), name)
        return
    if name == request.target:
        yield Problem("--time", "is the target too", "name two columns", name)
    missing, known = int(raw[name].isna().sum()), raw[name].dropna()
    if len(known) and name in kinds and kinds[name] not in ("time", "instant"):
        fix = (
            "write all of them as ISO 8601, with a zone or all without, such as 2024-01-31T13:00:00Z; or --time-format"
        )
        yield Problem("--time", f"{name!r} is no column of times", fix, str(known.iloc[0]))
    elif missing:
        yield Problem("--time", f"{name!r} is empty in {missing:,} rows", "remove these rows, or name another column")


def _key_problems(request: Request, raw: pd.DataFrame) -> Iterator[Problem]:
    key = list(request.keys)
    unknown = [name for name in key if name not in raw.columns]
    for name in unknown:
        yield Problem("--key", "is no column of the file", did_you_mean(name, raw.columns), name)
    if request.target in key:
        yield Problem("--key", "is the target too", "name columns that are known before", request.target)
    if not key or unknown:
        return
    empty, shared = int(raw[key].isna().any(axis=1).sum()), int(raw.duplicated(key, keep=False).sum())
    if empty or shared:
        fix = "name more columns (--key A --key B), or leave --key out: the rows are numbered then"
        problem = f"does not name each row: {shared:,} rows share theirs, {empty:,} have none"
        yield Problem("--key", problem, fix, key)


_SHOWN = 5
# Whole numbers that name something: by the column's name, or by having as many digits in every row.
_CODE_NAME = re.compile(
    r"(^|[_\W])(zip|zipcode|plz|postal|postcode|postal_code|code|phone|iban|icd|naics|sic)([_\W]|$)", re.I
)
_CODE_DIGITS = 5
# Whole numbers that may be days; that so few of others all read as days has odds of 1 in 10^14.
_DAYS, _FEWEST_DAYS = ("%Y%m%d", "%y%m%d"), 10
# Rows that show how many digits a number has.
_LOOKED_AT = 500


def table_observations(
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
        *([] if reading is None or reading == Reading() else [f"read as {reading.description}"]),
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
    if texts is not None and (form := _form_of_days(texts)):
        fix = f"if it is the day on which the model is asked, --time {values.name} --time-format {form} splits by it"
        yield f"{name} is read as a number, such as {texts.iloc[0]}: {fix}"
    elif texts is not None and _looks_like_code(str(values.name), texts):
        fix = 'if it is a code, write "text" for it in dataset.py (TYPES)'
        yield f"{name} is read as a number, such as {texts.iloc[0]}: {fix}"


def _text(name: str, texts: pd.Series) -> Iterator[str]:
    if texts.str.match(r"-?0\d").any() and texts.str.fullmatch(r"\d+").all():
        yield f"{name} is kept as text: it has leading zeros, such as {texts[texts.str.startswith('0')].iloc[0]!r}"
        return
    numbers, non_numbers = numbers_among(texts)
    if len(non_numbers) and NEARLY * len(texts) <= numbers < len(texts):
        shown = ", ".join(f"{value!r} ({count:,})" for value, count in non_numbers.head(MOST_SHOWN).items())
        others = f"others are not: {shown}{null_option(non_numbers)}"
        yield f"{name} is read as text: {numbers:,} of {len(texts):,} values are numbers, and {others}"
    commas = texts.str.fullmatch(DECIMAL_COMMA)
    if commas.mean() >= NEARLY:
        shown = texts[commas].iloc[0]
        yield f"{name} is read as text: its numbers have a decimal comma, such as {shown!r}; write them with a point"


def _form_of_days(texts: pd.Series) -> str:
    """The form in which whole numbers are days, "" if they are none: one in 27 of other numbers looks like a day."""
    days = texts.drop_duplicates()
    if len(days) < _FEWEST_DAYS or not days.str.fullmatch(r"\d{6}|\d{8}").all():
        return ""
    return next((form for form in _DAYS if parsed(days, form).notna().all()), "")


def _looks_like_code(name: str, texts: pd.Series) -> bool:
    if not texts.str.fullmatch(r"\d+").all():
        return False
    digits = texts.str.len()
    return bool(_CODE_NAME.search(name)) or (
        digits.nunique() == 1 and digits.iloc[0] >= _CODE_DIGITS and texts.nunique() > 1
    )
