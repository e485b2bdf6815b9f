"""What a new user meets on an evening with data of their own. Part `files`: messy tables, from file to use case.

make bench NAME=evening              every file of messy_files.py, each in a fresh project
make bench NAME="evening --short"    every fourth
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.messy_files import FILES, write
from benchmarks.result import finish, hardware
from lifecycle.errors import TrainworthyError
from pipeline.check import check_use_case
from pipeline.scaffold.create import create
from pipeline.scaffold.request import Request
from resources.settings import PROJECT, read_settings

TARGETS = {"files_with_another_end": 0.0, "crashes": 0.0}
# Of those that work, so many are asked by `trainworthy check` too: a worker each.
CHECKED = 6


def main() -> None:
    """A line a file whose end is not the expected one, and the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="every fourth file")
    names = list(FILES)[:: 4 if parser.parse_args().short else 1]
    print(hardware(), flush=True)
    wrong = crashes = working = 0
    started = time.process_time()
    for name in names:
        works = not FILES[name].told
        check = works and working % max(1, len(names) // CHECKED) == 0
        working += works
        try:
            told = end_of(name, check)
        except Exception as error:
            crashes += 1
            told = f"crashed: {type(error).__name__}: {error}"
        if told:
            wrong += 1
            print(f"{name}: {told}", flush=True)
    print(f"{len(names)} files, {working} of them to work, in {time.process_time() - started:.0f} CPU s", flush=True)
    finish("evening", {"files": len(names), "files_with_another_end": wrong, "crashes": crashes}, TARGETS)


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
