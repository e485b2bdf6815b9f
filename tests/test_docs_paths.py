"""Docs name files, functions and rooms that there are, and all rooms that there are."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_rows_way_names_files_and_functions_that_exist():
    named = re.findall(r"`([\w/]+\.py)(?:: (\w+))?`", (ROOT / "docs" / "a-rows-way.md").read_text())
    assert len(named) > 15
    places = {name: [p for p in (ROOT / name, ROOT / "lifecycle" / name) if p.is_file()] for name, _ in named}
    assert [name for name, paths in places.items() if not paths] == []
    texts = {name: paths[0].read_text() for name, paths in places.items()}
    defined = [(name, word) for name, word in named if word]
    lacking = [one for one in defined if not re.search(rf"^\s*(def|class) {one[1]}\b", texts[one[0]], re.M)]
    assert lacking == []


def test_design_names_every_room_of_lifecycle():
    tree = (ROOT / "docs" / "design.md").read_text().partition("## The tree")[2].partition("\n## ")[0]
    rooms = [
        path.name for path in (ROOT / "lifecycle").iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()
    ]
    assert len(rooms) > 30
    assert [name for name in rooms if not name.startswith("_") and name not in tree] == []


def test_docs_link_to_files_that_exist():
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
        if not link.startswith("http") and not (page.parent / link).exists()
    ]
    assert broken == []
