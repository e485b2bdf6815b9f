"""How a CSV file is written: its encoding, its separator, and whether every line has as many fields as the header.

A byte order mark and UTF-8 are recognised, and the separator that splits header and rows alike. Any other encoding
reads every byte as some letter, so it is not guessed: the error shows what the text would be, and --encoding names it.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyarrow import ArrowInvalid
from pyarrow import csv as arrow

from trainworthy.lifecycle.errors import Problem

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
# Records that show the separator, and the share of them that must have as many fields as the header.
_LOOKED_AT, _ALIKE = 200, 0.9
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
# What files that are not UTF-8 are mostly written in: Western European and Cyrillic Windows, Chinese, Japanese, Korean.
_USUAL = ("cp1252", "cp1251", "gb18030", "cp932", "cp949")
_BLOCK = 1 << 20
_SHOWN = 60


@dataclass(frozen=True)
class Reading:
    """What pandas.read_csv is told; `nulls` are texts of missing values besides those that pandas knows."""

    encoding: str = "utf-8"
    separator: str = ","
    nulls: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        missing = "".join(f", {text!r} as a missing value" for text in self.nulls)
        separator = SEPARATORS.get(self.separator, repr(self.separator))
        return f"CSV, separated by {separator}, encoded as {self.encoding}{missing}"


def find_reading(
    path: Path, encoding: str | None = None, separator: str | None = None, nulls: tuple[str, ...] = ()
) -> tuple[Reading, list[Problem]]:
    """How to read the file; what is asked for is taken and tried. With problems, the reading is not to be used."""
    detected, problems = _encoding(path, encoding)
    if problems:
        return Reading(), problems
    given = {"tab": "\t", "\\t": "\t"}.get(separator or "", separator)
    if given is not None and len(given) != 1:
        return Reading(), [
            Problem("--separator", "is not one character", 'write it in quotes, such as ";", or tab', given)
        ]
    reading = Reading(detected, given or _separator(path, detected), nulls)
    return reading, list(_uneven(path, reading))


def _encoding(path: Path, given: str | None) -> tuple[str, list[Problem]]:
    if given is not None:
        try:
            codecs.lookup(given)
        except LookupError:
            return "", [
                Problem("--encoding", "there is no such encoding", "write utf-8, utf-16, cp1252 or latin-1", given)
            ]
        wrong = _undecodable(path, given)
        fix = "name the encoding that the file was written with, for example utf-8, utf-16 or cp1252"
        return given, [] if wrong is None else [
            Problem("--encoding", f"does not fit: byte {wrong} is none of it", fix, given)
        ]
    with path.open("rb") as file:
        start = file.read(4096)
    marked = next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)
    if marked is None and start.count(b"\0") > len(start) // 4:
        little = start[1::2].count(b"\0") >= start[::2].count(b"\0")
        fix = f"write --encoding utf-16-{'le' if little else 'be'}, or save the file as UTF-8"
        return "", [
            Problem("--data", "can't be read: every second byte is zero, as in UTF-16 without its mark", fix, str(path))
        ]
    wrong = _undecodable(path, marked or "utf-8")
    if wrong is None:
        return marked or "utf-8", []
    readable = [name for name in _USUAL if _undecodable(path, name) is None]
    problem = f"can't be read: {_shown(path, wrong, readable)}"
    named = f"write --encoding {' or '.join(readable)}, if that reads right, or name another" if readable else "name it"
    fix = f"{named} (docs.python.org: Standard Encodings), or save the file as UTF-8"
    return "", [Problem("--data", problem, fix, str(path))]


def _undecodable(path: Path, encoding: str) -> int | None:
    """The place of the first byte that is none of the encoding; None if all are."""
    decoder, place = codecs.getincrementaldecoder(encoding)(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            try:
                decoder.decode(block)
            except UnicodeError as error:
                return place + getattr(error, "start", 0)
            place += len(block)
    try:
        decoder.decode(b"", final=True)
    except UnicodeError:
        return max(0, place - 1)
    return None


def _shown(path: Path, place: int, encodings: Iterable[str]) -> str:
    """The line of a byte, and what stands around it in each of the encodings."""
    with path.open("rb") as file:
        before = file.read(place)
        rest = file.read(_SHOWN)
    line = before.rpartition(b"\n")[2][-_SHOWN // 2 :] + rest.partition(b"\n")[0][: _SHOWN // 2]
    read = [f"{line.decode(name, errors='replace').strip()!r} in {name}" for name in encodings]
    reads = f"; it reads {', '.join(read)}" if read else ""
    return f"line {before.count(bytes([10])) + 1} is not UTF-8{reads}"


def _separator(path: Path, encoding: str) -> str:
    """The one that gives header and rows equally many fields, the most of them; a comma if none gives two."""
    best, most = ",", (1, 0.0)
    for separator in SEPARATORS:
        sizes = [len(record) for record in _records(path, encoding, separator)]
        if not sizes or sizes[0] < 2:
            continue
        alike = sum(size == sizes[0] for size in sizes) / len(sizes)
        if alike >= _ALIKE and (sizes[0], alike) > most:
            best, most = separator, (sizes[0], alike)
    if most == (1, 0.0):
        # Ragged, or one column: the header alone decides.
        header = next(_records(path, encoding, "\0"), [""])[0]
        best = max(SEPARATORS, key=header.count)
        return best if header.count(best) else ","
    return best


def _records(path: Path, encoding: str, separator: str) -> Iterator[list[str]]:
    """The first records that are not empty, as far as they are CSV."""
    with path.open(encoding=encoding, newline="") as file:
        reader = csv.reader(file, delimiter=separator)
        try:
            for number, record in enumerate(reader):
                if number >= _LOOKED_AT:
                    return
                if record:
                    yield record
        except csv.Error:
            return


def _uneven(path: Path, reading: Reading) -> Iterator[Problem]:
    """Rows with fewer or more fields than the header: pandas fills the first, and shifts the second, in silence."""
    uneven_rows: list[tuple[int, int, int]] = []

    def note(row: arrow.InvalidRow) -> str:
        uneven_rows.append((row.number or 0, row.actual_columns, row.expected_columns))
        return "skip"

    try:
        names = arrow.ReadOptions(autogenerate_column_names=True, encoding=reading.encoding, use_threads=False)
        form = arrow.ParseOptions(delimiter=reading.separator, newlines_in_values=True, invalid_row_handler=note)
        # Texts, and the first column alone: what the fields hold is not asked here.
        first_column = arrow.ConvertOptions(include_columns=["f0"], column_types={"f0": "string"})
        for _ in arrow.open_csv(path, read_options=names, parse_options=form, convert_options=first_column):
            pass
    except (ArrowInvalid, LookupError, OSError):
        # An empty file, an open quote: pandas says so when it reads the file.
        return
    if uneven_rows:
        number, actual, expected = uneven_rows[0]
        fix = "close every quote, quote texts that hold the separator, complete these rows, or name another --separator"
        yield Problem(
            "--data",
            f"row {number} has {actual} fields and the header {expected}; {len(uneven_rows):,} rows differ "
            f"({reading.description})",
            fix,
            str(path),
        )
