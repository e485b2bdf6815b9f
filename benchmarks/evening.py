"""What a new user meets on an evening with data of their own. Part `files`: messy tables, from file to use case.

make bench NAME=evening          every file of messy_files.py, each in a fresh project: about five minutes on 2 cores
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.messy_files import FILES, write
from benchmarks.result import arguments, begin, finish
from lifecycle.errors import TrainworthyError
from pipeline.check import check_use_case
from pipeline.scaffold.create import create
from pipeline.scaffold.request import Request
from resources.settings import PROJECT, read_settings

TARGETS = {"files_with_another_end": 0.0, "crashes": 0.0}
# Files of a short run; and of those that work, how many are asked by `trainworthy check` too: a worker each.
SHORT = ("dates_german", "encoding_latin_1", "target_three_classes")
CHECKED = 6


def main() -> None:
    """A line a file whose end is not the expected one, and the figures."""
    short = arguments(__doc__).parse_args().short
    begin(short)
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
    figures = {"files": len(names), "files_with_another_end": wrong, "crashes": crashes}
    finish("evening", figures, TARGETS, short=short, zero_allowed=tuple(TARGETS))


def end_of(name: str, check: bool) -> str:
    """What `trainworthy new` makes of a file, against what is expected; empty where that is what happened."""
    case = FILES[name]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "project" / "use_cases").mkdir(parents=True)
        os.environ |= {
            "TRAINWORTHY_USE_CASES": str(folder / "project" / "use_cases"),
            "TRAINWORTHY_VAR": str(folder / "state"), "PYTHONPATH": str(PROJECT),
        }  # fmt: skip
        asked = replace(Request("shop", write(name, folder), "bought", "at", None, (), None), **case.asked)
        try:
            created = create(asked, read_settings())
        except TrainworthyError as error:
            missing = [part for part in case.told if part not in str(error)]
            return f"refused: {error}" if not case.told else f"the error lacks {missing}: {error}" if missing else ""
        if case.told:
            return f"worked, and should be refused with {case.told}"
        missing = [part for part in case.seen if part not in "\n".join(created.seen)]
        problems = [str(problem) for part in check_use_case("shop") for problem in part.problems] if check else []
        return f"not printed: {missing}" if missing else "; ".join(problems)


if __name__ == "__main__":
    main()
