"""Every command and snippet of docs/tutorial.md, in order, in a fresh copy of the project; and what it says they print.

A ```text block shows what the commands right before it print, shortened: each of its lines must come, in this order.
Figures, times and hashes may be others; `…` stands for anything.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from toy_project import ROOT, committed

# Two minutes on two idle cores.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A run's id first: read as numbers, its last digit would take the dot of `.html` along.
FIGURE = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{8,64}\b|[-+]?\d+(?:[.,]\d+)*(?:e-?\d+)?"
)


@pytest.fixture
def copy(tmp_path) -> Path:
    """The project as it is checked out, without state."""
    root = tmp_path / "trainworthy"
    skipped = shutil.ignore_patterns("__pycache__", "flights", "*_source", "*.egg-info")
    for name in ("lifecycle", "expectations", "resources", "assets", "pipeline", "use_cases", "data", "docs"):
        shutil.copytree(ROOT / name, root / name, ignore=skipped)
    shutil.copytree(ROOT / "src", root / "src", symlinks=True, ignore=skipped)
    for path in (ROOT / ".gitignore", ROOT / "pyproject.toml", ROOT / "Makefile", *ROOT.glob("*.yaml")):
        shutil.copy(path, root)
    committed(root)
    return root


def environment(root: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DAGSTER_", "MLFLOW_", "TRAINWORTHY_"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return kept | {
        "PATH": path,
        "PYTHONPATH": str(root / "src"),
        "PYTHONWARNINGS": "ignore",
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }


def plain(text: str) -> str:
    """The text without figures and runs of spaces."""
    return re.sub(r"[ \t]+", " ", FIGURE.sub("#", text))


def missing_lines(shown: str, printed: str) -> list[str]:
    """The lines of `shown` that do not come in `printed`, in order."""
    left, missing = [plain(line).strip() for line in printed.splitlines()], []
    for line in (plain(line).strip() for line in shown.splitlines()):
        wanted = re.compile(".*".join(map(re.escape, line.split("…"))))
        place = next((place for place, found in enumerate(left) if wanted.fullmatch(found)), None)
        if line and line != "…":
            missing += [line] if place is None else []
            left = left if place is None else left[place + 1 :]
    return missing


def test_tutorial_every_command_works_and_prints_what_the_tutorial_shows(copy):
    blocks = BLOCK.findall((copy / "docs" / "tutorial.md").read_text())
    assert {"sh", "python", "text"} <= {kind for kind, _ in blocks}
    printed = ""
    for kind, text in blocks:
        if kind == "text":
            assert missing_lines(text, printed) == [], printed
        elif kind in ("sh", "python"):
            command = ["bash", "-euo", "pipefail", "-c", text] if kind == "sh" else [sys.executable, "-c", text]
            done = subprocess.run(
                command, cwd=copy, env=environment(copy), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            printed = done.stdout
            assert done.returncode == 0, f"{text}\n{printed}"


@pytest.mark.parametrize(
    ("shown", "printed", "missing"),
    [
        ("a 1.5 s\n…\nb", "a 2 s\nx\nb\n", []),
        ("wrote …/x", "wrote /tmp/x", []),
        ("a\nb", "b\na", ["b"]),
        ("run b3b7363e", "run 0a8b54af", []),
        ("rain/….html", "rain/04006374-7804-4d7e-b2e3-6cab2a1505c8.html", []),
        ("PROMOTE", "REJECT", ["PROMOTE"]),
    ],
)
def test_tutorial_shown_lines_are_compared_without_figures(shown, printed, missing):
    assert missing_lines(shown, printed) == missing
