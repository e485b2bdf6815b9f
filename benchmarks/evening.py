"""What a new user meets on an evening with data of their own.

Messy files, from file to use case: each works, or ends in one error that names what is wrong. Then public tables that
no test uses (evening_tables.py), from file to verdict, alone and beside as many busy processes as there are cores:
target is that no status differs, and that no command on the way is refused.

    make bench NAME=evening          about twenty minutes on 2 idle cores; fetches one wheel from PyPI (7 MB)
    make bench NAME=evening ARGS="--part files"       or tables
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.busy import busy, different
from benchmarks.evening_tables import SHORT_TABLES, TABLES, Evening, evening
from benchmarks.messy_files import FILES, write
from benchmarks.result import arguments, begin, finish, hardware
from trainworthy.lifecycle.errors import TrainworthyError
from trainworthy.pipeline.check import check_use_case
from trainworthy.pipeline.scaffold.create import create
from trainworthy.pipeline.scaffold.request import Request
from trainworthy.resources.settings import PRODUCT, read_settings

# Files of a short run; and of those that work, how many are asked by `trainworthy check` too: a worker each.
SHORT = ("dates_german", "encoding_latin_1")
CHECKED = 6


def main() -> None:
    """A line a file whose end is not the expected one, a line a table and what differs, and the figures."""
    parser = arguments(__doc__)
    parser.add_argument("--part", choices=("files", "tables"), help="that part alone")
    asked = parser.parse_args()
    begin(asked.short)
    figures: dict[str, float] = {}
    # First, since what the files set in this process's environment is not undone.
    if asked.part != "files":
        figures |= of_tables(asked.short)
    if asked.part != "tables":
        figures |= of_files(asked.short)
    counted = [name for name in figures if not name.endswith("_seconds")]
    targets = {name: 0.0 for name in counted if name not in ("files", "tables")}
    finish("evening", figures, targets, short=asked.short, zero_allowed=counted)


def of_files(short: bool) -> dict[str, float]:
    """How many files, and how many of them ended otherwise than expected, or in a crash."""
    names = SHORT if short else tuple(FILES)
    works = [name for name in names if not FILES[name].told]
    checked = set(works[:: max(1, len(works) // CHECKED)])
    wrong = crashes = 0
    for name in names:
        try:
            told = end_of(name, name in checked)
        except Exception as error:
            crashes += 1
            told = f"crashed: {type(error).__name__}: {error}"
        wrong += bool(told)
        print(f"{name:<34}{told or 'as expected'}", flush=True)
    print(f"{len(names)} files, {len(works)} of them to work, {len(checked)} of these checked", flush=True)
    return {"files": len(names), "files_with_another_end": wrong, "crashes": crashes}


def of_tables(short: bool) -> dict[str, float]:
    """How many tables, statuses that differ beside other work, commands that were refused, and seconds to the end."""
    tables, figures = SHORT_TABLES if short else TABLES, {"statuses_that_differ": 0.0, "commands_refused": 0.0}
    for name, table in tables.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            alone = evening(table, name, folder / "alone", folder, train=not short)
            print(f"{name} alone: {alone.seconds:.0f} s; {hardware()}", flush=True)
            with busy(1 if short else os.cpu_count() or 1):
                beside = evening(table, name, folder / "beside", folder, train=not short)
                print(f"{name} beside {os.cpu_count()}: {beside.seconds:.0f} s; {hardware()}", flush=True)
        differ = different(dict(alone.statuses), dict(beside.statuses))
        print("\n".join(in_words(name, alone, beside, differ)), flush=True)
        figures["statuses_that_differ"] += len(differ)
        figures["commands_refused"] += len(alone.errors) + len(beside.errors)
        figures |= {f"{name}_seconds": alone.seconds, f"{name}_beside_seconds": beside.seconds}
    return {"tables": len(tables), **figures}


def in_words(name: str, alone: Evening, beside: Evening, differ: Sequence[str]) -> list[str]:
    """A line of a table's two evenings; below it what is open, what differs, and the commands that were refused."""
    verdicts = [one.statuses.get("verdict", "no verdict") for one in (alone, beside)]
    refused = [*alone.errors, *beside.errors]
    line = (
        f"{name}: {verdicts[0]} alone in {alone.seconds:.0f} s, {verdicts[1]} beside other work in "
        f"{beside.seconds:.0f} s; {len(alone.statuses)} statuses, different: {len(differ) or 'none'}; "
        f"commands refused: {len(refused) or 'none'}"
    )
    open_ = [f"{key} {told}" for key, told in alone.statuses.items() if told in ("fail", "insufficient", "error")]
    return [line, *(f"  {told}" for told in (*open_, *differ, *refused))]


def end_of(name: str, check: bool) -> str:
    """What `trainworthy new` makes of a file, against what is expected; empty where that is what happened."""
    case = FILES[name]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "project" / "use_cases").mkdir(parents=True)
        os.environ |= {
            "TRAINWORTHY_USE_CASES": str(folder / "project" / "use_cases"),
            "TRAINWORTHY_VAR": str(folder / "state"), "PYTHONPATH": str(PRODUCT / "src"),
        }  # fmt: skip
        asked = replace(Request("shop", write(name, folder), "bought", "at", None, (), None), **case.asked)
        try:
            created = create(asked, read_settings())
        except TrainworthyError as error:
            missing = [part for part in case.told if part not in str(error)]
            return f"refused: {error}" if not case.told else f"the error lacks {missing}: {error}" if missing else ""
        if case.told:
            return f"worked, and should be refused with {case.told}"
        missing = [part for part in case.seen if part not in "\n".join(created.observations)]
        problems = [str(problem) for part in check_use_case("shop") for problem in part.problems] if check else []
        return f"not printed: {missing}" if missing else "; ".join(problems)


if __name__ == "__main__":
    main()
