"""Which checks, monitors and causes keep their place: each left out, each mechanism without the rules that know it."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from benchmarks.general_runs import cases, ran
from benchmarks.result import arguments, begin


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--out", type=Path, default=Path("general.jsonl"))
    asked = parser.parse_args()
    begin(asked.short)
    torch.set_num_threads(1)
    done = set()
    if asked.out.is_file():
        done = {json.loads(line)["name"] for line in asked.out.read_text().splitlines()}
    for case in cases(asked.short):
        if case.name not in done:
            found = ran(case)
            with asked.out.open("a") as lines:
                lines.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
