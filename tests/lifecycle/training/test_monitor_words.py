"""monitors.toml and stages.toml: the one place of what is said of monitors, causes and a stage's checks."""

import ast
import importlib
from pathlib import Path

import pytest

from trainworthy.lifecycle.code_identity import ENTRIES, CodeOnDisk
from trainworthy.lifecycle.engine.training import monitors
from trainworthy.lifecycle.engine.training.monitors.all import all_monitors
from trainworthy.lifecycle.engine.training.monitors.base import Base
from trainworthy.lifecycle.engine.training.monitors.causes import RULES
from trainworthy.lifecycle.gates import monitor_words
from trainworthy.lifecycle.gates.monitor_words import CAUSES, MONITORS, causes_of, symptom_of
from trainworthy.lifecycle.gates.pages import PAGES, alarms_text
from trainworthy.lifecycle.gates.stage import CHECKS
from trainworthy.lifecycle.gates.stage_words import STAGE_CHECKS

ENGINE = Path(monitors.__file__).parents[1]
GATES = Path(monitor_words.__file__).parent


def calls_of_symptom() -> set[tuple[str, str]]:
    """What the engine asks for by name: (monitor, case)."""
    found = set()
    for path in ENGINE.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "symptom_of":
                given = [one.value for one in node.args if isinstance(one, ast.Constant)]
                if len(given) == len(node.args):
                    found.add((str(given[0]), str(given[1]) if len(given) > 1 else ""))
    return found


def test_every_rule_of_causes_has_the_causes_words_in_their_order():
    told = [(rule.name, rule.cause, rule.fix, rule.explains) for rule in RULES]
    assert told == [(cause.id, cause.cause, cause.fix, cause.explains) for cause in CAUSES]


def test_monitors_have_ids_of_their_own_a_question_and_a_symptom_without_figures():
    assert len({one.id for one in MONITORS}) == len(MONITORS)
    assert [one.id for one in MONITORS if not one.question.endswith("?")] == []
    symptoms = [text for one in MONITORS for text in (one.symptom, *one.also.values())]
    assert [text for text in symptoms if not text or any(sign.isdigit() for sign in text)] == []


def test_every_alarm_has_a_cause_and_every_cause_explains_known_alarms():
    assert [one.id for one in MONITORS if not causes_of(one.id)] == []
    assert {name for cause in CAUSES for name in cause.explains} == {one.id for one in MONITORS}


def test_symptoms_that_the_engine_asks_for_are_in_the_catalogue():
    asked = calls_of_symptom()
    assert len(asked) > 20
    for monitor, case in asked:
        assert symptom_of(monitor, case)
    with pytest.raises(KeyError):
        symptom_of("no_such_monitor")


def calls_of(name: str) -> list[ast.Call]:
    """All calls of a function or method of that name in the engine."""
    nodes = [node for path in ENGINE.parent.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    return [
        node for node in nodes
        if isinstance(node, ast.Call) and name in (getattr(node.func, "id", ""), getattr(node.func, "attr", ""))
    ]  # fmt: skip


def test_no_monitor_says_by_itself_that_its_finding_is_critical():
    calls = [*calls_of("Finding"), *calls_of("tell")]
    assert len(calls) > 20
    literal = [call.lineno for call in calls for one in call.args if getattr(one, "value", "") == "critical"]
    assert literal == []


@pytest.mark.parametrize("monitor", MONITORS, ids=lambda one: one.id)
def test_severity_of_a_finding_is_the_catalogues_and_a_warning_where_it_is_milder(monitor):
    found = [Base().tell(0, 0, "symptom", "evidence", what=monitor.id, milder=milder) for milder in (False, True)]
    assert [one.severity for one in found if one] == [monitor.severity, "warning"]


def test_finding_of_a_monitor_that_the_catalogue_lacks_is_refused():
    with pytest.raises(KeyError):
        Base().tell(0, 0, "symptom", "evidence", what="no_such_monitor")


def test_monitors_are_named_as_in_the_catalogue_but_for_those_that_tell_of_several_things():
    for path in sorted(Path(monitors.__file__).parent.glob("*.py")):
        importlib.import_module(f"{monitors.__name__}.{path.stem}")
    kinds: list[type[Base]] = [Base]
    for kind in kinds:
        kinds += kind.__subclasses__()
    names = {kind.name for kind in kinds if kind.__module__.startswith(all_monitors.__module__.rpartition(".")[0])}
    assert names - {one.id for one in MONITORS} == {"", "non_finite", "spikes", "trends"}


def test_page_of_alarms_is_what_the_code_gives():
    wanted = "python -m trainworthy.lifecycle.gates.pages alarms > docs/how-to/alarms.md"
    assert (PAGES.parent / "how-to" / "alarms.md").read_text() == alarms_text(), f"run: {wanted}"


def test_every_stages_check_has_its_words_and_a_page_that_is_there():
    of_stages = {check.name for check in STAGE_CHECKS if check.id.startswith("stage.")}
    assert of_stages == {name for names in CHECKS.values() for name in names}
    root = PAGES.parents[1]
    assert [c.id for c in STAGE_CHECKS if not all((c.question, c.symptom, c.cause, c.fix))] == []
    assert [c.id for c in STAGE_CHECKS if not (root / c.page).is_file()] == []


def test_words_are_a_part_of_the_identity_and_the_record_of_benchmarks_is_none():
    hashed = CodeOnDisk().of(ENTRIES["full"]).tables.keys()
    assert {f"lifecycle/gates/{name}.toml" for name in ("catalogue", "monitors", "stages")} <= hashed
    assert not any(name.endswith("record.json") for name in hashed)
