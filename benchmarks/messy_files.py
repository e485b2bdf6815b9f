"""Sixty tables as people have them: dates in four forms, other encodings, slips, ids, files that were cut off.

Each is made from a seed, with what is asked of `trainworthy new`, and what has to come of it: a use case, or one error
that holds certain texts. Half a hundred ways to be odd are no promise for the next; they are what was thought of.
"""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROWS, DAYS = 1200, 60
Made = pd.DataFrame | bytes


@dataclass(frozen=True)
class Messy:
    """`make` gives the file's rows or bytes from healthy rows; `told` are parts of the one error, () if it works.

    `asked` are options of `trainworthy new` beside --target and --time, by their names in Request; `seen` are parts of
    what is printed of a file that works.
    """

    make: Callable[[pd.DataFrame], Made]
    told: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    asked: Mapping[str, Any] = field(default_factory=dict)
    suffix: str = ".csv"


def healthy(seed: int = 0) -> pd.DataFrame:
    """A visit a row: an id, a time, a number, a text, and a label that the number tells in part."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=ROWS)
    return pd.DataFrame(
        {
            "visit_id": np.arange(1, ROWS + 1),
            "at": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(ROWS) * DAYS * 1440 // ROWS, unit="min"),
            "x": x.round(4),
            "place": generator.choice(["north", "south"], ROWS),
            "bought": np.where(x + generator.normal(size=ROWS) > 0, "yes", "no"),
        }
    )


def write(name: str, folder: Path, seed: int = 0) -> Path:
    """The file of a case, in an existing folder."""
    case = FILES[name]
    made, path = case.make(healthy(seed)), folder / f"{name}{case.suffix}"
    if isinstance(made, bytes):
        path.write_bytes(made)
    elif case.suffix == ".parquet":
        made.to_parquet(path, index=False)
    else:
        path.write_bytes(text(made).encode())
    return path


def text(rows: pd.DataFrame, separator: str = ",") -> str:
    return rows.to_csv(index=False, sep=separator)


def replaced(column: str, value: object, share: float = 0.05) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Every so manieth value of a column is another one."""

    def change(rows: pd.DataFrame) -> pd.DataFrame:
        values = rows[column].astype("object")
        values.iloc[:: round(1 / share)] = value
        return rows.assign(**{column: values})

    return change


def dated(form: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda rows: rows.assign(at=rows["at"].dt.strftime(form))


def added(**columns: Any) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda rows: rows.assign(**columns)


def renamed(**names: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda rows: rows.rename(columns=names)


def _four_forms(rows: pd.DataFrame) -> pd.DataFrame:
    forms = ("%Y-%m-%d", "%d.%m.%Y", "%b %d, %Y", "%Y/%m/%d")
    texts = [when.strftime(forms[number % 4]) for number, when in enumerate(rows["at"])]
    return rows.assign(at=texts)


def _ragged(rows: pd.DataFrame, change: Callable[[str], str]) -> bytes:
    lines = text(rows).splitlines()
    return "\n".join([*lines[:40], change(lines[40]), *lines[41:], ""]).encode()


def _labelled_early(rows: pd.DataFrame) -> pd.DataFrame:
    """A label that takes a month to be known: nobody of the last weeks has it."""
    early = rows["at"] < rows["at"].max() - pd.Timedelta(days=30)
    return rows.assign(bought=np.where(early & (rows["x"] > 0), "yes", "no"))


def _duplicate_names_in_parquet(rows: pd.DataFrame) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table, buffer = pa.Table.from_pandas(rows, preserve_index=False), io.BytesIO()
    pq.write_table(table.append_column("x", table["x"]), buffer)
    return buffer.getvalue()


def _customers(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.drop(columns="at").assign(customer_id=np.arange(ROWS) % 150)


NO_TIME: Mapping[str, Any] = {"time": None}
LONG = "a" * 300
HOSTILE = {"x": "../../etc/passwd", "place": "a.b/c d"}
FILES: dict[str, Messy] = {
    # Dates.
    "dates_iso": Messy(lambda rows: rows),
    "dates_german": Messy(dated("%d.%m.%Y %H:%M"), seen=("%d.%m.%Y %H:%M",)),
    "dates_american": Messy(dated("%m/%d/%Y"), seen=("%m/%d/%Y",)),
    "dates_ambiguous": Messy(
        added(at=lambda rows: "01/0" + (rows.index % 9 + 1).astype(str) + "/2024"), ("--time-format", "'at'"),
    ),
    "dates_asked": Messy(dated("%d/%m/%Y"), asked={"time_format": "%d/%m/%Y"}),
    "dates_asked_wrongly": Messy(
        dated("%d/%m/%Y"), ("--time-format", "does not fit"), asked={"time_format": "%m/%d/%Y"},
    ),
    "dates_compact": Messy(dated("%Y%m%d"), seen=("%Y%m%d",)),
    "dates_in_words": Messy(dated("%d %B %Y"), seen=("%d %B %Y",)),
    "dates_twelve_hours": Messy(dated("%m/%d/%Y %I:%M %p")),
    "dates_in_four_forms": Messy(_four_forms, ("several forms", "'at'")),
    "dates_with_a_slip": Messy(
        lambda rows: replaced("at", "soon", 0.01)(dated("%Y-%m-%d")(rows)), ("'at'", "'soon'", "--time"),
    ),
    "dates_empty": Messy(lambda rows: replaced("at", None, 0.01)(dated("%Y-%m-%d")(rows)), ("empty in 12 rows",)),
    "dates_no_dates": Messy(added(at="monday"), ("no column of times", "'at'")),
    "dates_far_away": Messy(lambda rows: replaced("at", "9999-12-31", 0.01)(dated("%Y-%m-%d")(rows)), ("--data",)),
    "dates_few_days": Messy(lambda rows: rows.assign(at="2024-01-01"), ("too few days", "--split hash")),
    "dates_with_zones": Messy(dated("%Y-%m-%dT%H:%M:%S+02:00")),
    # Encodings and separators.
    "encoding_bom": Messy(lambda rows: b"\xef\xbb\xbf" + text(rows.assign(place="Süd")).encode(), seen=("utf-8-sig",)),
    "encoding_umlauts": Messy(lambda rows: rows.assign(place=np.where(rows["x"] > 0.5, "Köln", "Zürich"))),
    "encoding_latin_1": Messy(
        lambda rows: text(rows.assign(place="Köln")).encode("latin-1"), ("not UTF-8", "Köln", "--encoding"),
    ),
    "encoding_gb18030": Messy(
        lambda rows: text(rows.assign(place="北京")).encode("gb18030"), ("not UTF-8", "北京", "or gb18030"),
    ),
    "encoding_asked": Messy(
        lambda rows: text(rows.assign(place=np.where(rows["x"] > 0.5, "Köln", "Genf"))).encode("cp1252"),
        seen=("cp1252",), asked={"encoding": "cp1252"},
    ),
    "encoding_unknown": Messy(lambda rows: rows, ("no such encoding", "klingon"), asked={"encoding": "klingon"}),
    "encoding_utf_16": Messy(lambda rows: text(rows).encode("utf-16"), seen=("utf-16",)),
    "encoding_utf_16_unmarked": Messy(lambda rows: text(rows).encode("utf-16-le"), ("--encoding utf-16-le",)),
    "separator_semicolon": Messy(lambda rows: text(rows, ";").encode(), seen=("semicolon",)),
    "separator_tab": Messy(lambda rows: text(rows, "\t").encode(), seen=("tab",)),
    "separator_bar": Messy(lambda rows: text(rows, "|").encode(), seen=("vertical bar",)),
    "separator_decimal_comma": Messy(
        lambda rows: text(rows.assign(x=rows["x"].astype(str).str.replace(".", ",")), ";").encode(),
        seen=("decimal comma",),
    ),
    # Files that were cut off, or are none.
    "file_empty": Messy(lambda rows: b"", ("can't be read",)),
    "file_header_only": Messy(lambda rows: rows.head(0), ("holds no rows",)),
    "file_without_header": Messy(lambda rows: text(rows).split("\n", 1)[1].encode(), ("holds values, not names",)),
    "file_of_numbers_without_header": Messy(
        lambda rows: text(rows[["visit_id", "x"]]).split("\n", 1)[1].encode(), ("holds values, not names",),
    ),
    "file_compressed": Messy(lambda rows: gzip.compress(text(rows).encode()), ("can't be read",)),
    "file_no_parquet": Messy(lambda rows: b"PAR1", ("can't be read",), suffix=".parquet"),
    "file_excel": Messy(lambda rows: b"PK", ("neither CSV nor Parquet",), suffix=".xlsx"),
    "rows_short": Messy(lambda rows: _ragged(rows, lambda line: line.rpartition(",")[0]), ("has 4 fields", "row 41")),
    "rows_long": Messy(lambda rows: _ragged(rows, lambda line: line + ",1"), ("has 6 fields", "row 41")),
    "rows_open_quote": Messy(
        lambda rows: _ragged(rows, lambda line: re.sub("(north|south)", r'"\1', line)), ("row 41", "close every quote"),
    ),
    "rows_quoted": Messy(lambda rows: rows.assign(place=np.where(rows["x"] > 0.5, 'a, "b"', "c\nd"))),
    "rows_forty": Messy(lambda rows: rows.head(40), ("too few rows", "40 rows")),
    "rows_doubled": Messy(
        lambda rows: pd.concat([rows.drop(columns="visit_id"), rows.drop(columns="visit_id").head(100)]),
        seen=("100 rows repeat another one exactly",),
    ),
    # The target.
    "target_yes_no": Messy(lambda rows: rows),
    "target_y_n": Messy(lambda rows: rows.assign(bought=rows["bought"].str[0].str.upper())),
    "target_true_false": Messy(lambda rows: rows.assign(bought=rows["bought"] == "yes")),
    "target_numbers": Messy(lambda rows: rows.assign(bought=(rows["bought"] == "yes") * 1.0)),
    "target_other_words": Messy(
        lambda rows: rows.assign(bought=rows["bought"].map({"yes": "ja", "no": "nein"})), ("--positive ja", "'bought'"),
    ),
    "target_three_classes": Messy(replaced("bought", "maybe")),
    "target_three_classes_for_two": Messy(
        replaced("bought", "maybe"), ("'bought' has 3 different values and is not binary", "'maybe'"),
        asked={"kind": "binary"},
    ),
    "target_spelt_twice": Messy(replaced("bought", "Yes "), ("differ by case or by a blank", "'Yes '")),
    "target_one_class": Messy(added(bought="yes"), ("'bought' has one value only", "'yes'")),
    "target_null": Messy(added(bought=None), ("'bought' is empty in all 1,200 rows",)),
    "target_partly_null": Messy(replaced("bought", None, 0.1), seen=("120 without one",)),
    "target_of_a_follow_up": Messy(_labelled_early, ("need time to be known", "follow-up")),
    # Columns.
    "column_huge": Messy(lambda rows: rows.assign(x=rows["x"] * 1e308), ("column 'x'", "beyond ±3.4e38")),
    "column_infinite": Messy(replaced("x", "inf"), ("column 'x'", "infinite", "in 60 rows")),
    "column_empty": Messy(added(note=None)),
    "column_nearly_numbers": Messy(replaced("x", "-"), seen=("'x' is read as text", "'-' (60)")),
    "column_codes": Messy(
        added(zip_code=10_000 + np.arange(ROWS) % 71, plz=[f"0{1000 + number % 71}" for number in range(ROWS)]),
        seen=("'zip_code' is read as a number", "'plz' is kept as text"),
    ),
    "column_names_alike": Messy(lambda rows: rows.assign(**{"place ": rows["place"]}), seen=("differ by a blank",)),
    "column_names_doubled": Messy(
        lambda rows: text(rows.assign(y=1)).replace(",y\n", ",x\n", 1).encode(), ("two columns share a name", "x"),
    ),
    "column_names_doubled_in_parquet": Messy(_duplicate_names_in_parquet, ("--data", "x"), suffix=".parquet"),
    "column_names_hostile": Messy(lambda rows: rows.rename(columns=HOSTILE)),
    "column_names_long": Messy(renamed(x=LONG)),
    "column_nested": Messy(
        added(x=[{"a": 1}] * ROWS), ("column 'x'", "holds values of type dict"), suffix=".parquet",
    ),
    "column_mixed": Messy(replaced("x", "n. a.", 0.5)),
    # No times.
    "no_time": Messy(lambda rows: rows.drop(columns="at"), asked=NO_TIME),
    "no_time_of_customers": Messy(_customers, asked=NO_TIME),
    "no_time_though_it_is_there": Messy(lambda rows: rows, ("'at' holds times", "--split hash"), asked=NO_TIME),
    "no_time_asked_for": Messy(lambda rows: rows, asked={**NO_TIME, "split": "hash"}),
}  # fmt: skip
