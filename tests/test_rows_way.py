"""docs/a-rows-way.md names files and functions that there are."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_rows_way_names_files_and_functions_that_exist():
    named = re.findall(r"`([\w/]+\.py)(?:: (\w+))?`", (ROOT / "docs" / "a-rows-way.md").read_text())
    assert len(named) > 15
    found = {
        name: next((p for p in (ROOT / name, ROOT / "lifecycle" / name) if p.is_file()), None) for name, _ in named
    }
    assert [name for name, path in found.items() if path is None] == []
    defined = [(name, word) for name, word in named if word]
    lacking = [one for one in defined if not re.search(rf"^\s*(def|class) {one[1]}\b", found[one[0]].read_text(), re.M)]
    assert lacking == []
