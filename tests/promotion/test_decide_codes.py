"""Codes of a verdict's reasons: all that the rules can give stand in the docs, and no others."""

import ast
import inspect
import re
from pathlib import Path

from trainworthy.lifecycle.promotion import decide, limit_rules
from trainworthy.lifecycle.promotion.evidence import CONTROLS

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "evaluation.md"
# Their standing is that of a slice's result.
OF_SLICES = {f"{rule}.{how}" for rule in ("slice_bound", "slice_champion") for how in ("kept", "not_shown", "broken")}


def test_every_code_of_a_reason_is_in_the_docs_and_no_other():
    section = PAGE.read_text().partition("\n## Slices")[0]
    rows = re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \| (.+) \|$", section, re.MULTILINE)
    told = {
        f"{rule}.{how}"
        for rules, standings in rows
        for rule in re.findall(r"`([a-z_]+)`", rules)
        for how in re.findall(r"`([a-z_]+)`", standings)
    }
    given = set()
    for module in (decide, limit_rules):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                code = node.args[1]
                given |= {code.value} if isinstance(code, ast.Constant) else set()
    assert told == given | OF_SLICES


def test_the_page_names_every_control():
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith("| `control.<name>` |")]
    assert [name for name in CONTROLS if name not in row] == []
