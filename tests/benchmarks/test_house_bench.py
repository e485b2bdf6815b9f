"""The house: no circle of imports, no decision on words; and the bench sees both where they are planted."""

import ast
from pathlib import Path

from benchmarks import house


def test_no_modules_of_the_product_import_each_other_and_nothing_decides_by_words():
    edges = {name: set(house.imports(name)) for name in house.modules()}
    assert len(edges) > 400
    assert house.circles(edges) == []
    assert house.decided_by_words() == []
    assert house.linter_exceptions() == 0


def test_circles_are_found_over_any_number_of_modules_and_apart():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert house.circles(edges) == [["a", "b", "c"], ["d", "e"]]


def test_import_in_a_function_and_for_types_alone_counts(monkeypatch):
    lazy = "def f():\n    from trainworthy.lifecycle.errors import Problem\n\n"
    text = f"{lazy}if TYPE_CHECKING:\n    from trainworthy.lifecycle import plan\n"
    monkeypatch.setattr(house, "tree", lambda name: ast.parse(text))
    assert list(house.imports("trainworthy.lifecycle.new")) == [
        "trainworthy.lifecycle.errors",
        "trainworthy.lifecycle.plan",
    ]


def test_decision_on_words_is_told_and_one_on_a_code_is_not(monkeypatch):
    text = (
        'a = trial.evidence.startswith("not tried")\nb = error.problem == SPARSE\nc = "x" in check.cause\n'
        'd = check.fix == ""\ne = trial.code == UNTRIED\nf = text.startswith("x")\n'
    )
    monkeypatch.setattr(house, "tree", lambda name: ast.parse(text))
    monkeypatch.setattr(house, "modules", lambda: {"trainworthy.lifecycle.new": None})
    assert [place.rpartition(":")[2] for place in house.decided_by_words()] == ["1", "2", "3"]


def test_module_beside_its_one_importer_is_told_unless_a_list_names_it_or_a_layer_keeps_it(monkeypatch):
    folder, other = Path("lifecycle/leakage"), Path("lifecycle/data")
    named = {"a": folder / "a.py", "b": folder / "b.py", "x.battery": folder / "battery.py", "c": folder / "c.py"}
    monkeypatch.setattr(house, "modules", lambda: {**named, "d": other / "d.py", "e": folder / "e.py"})
    edges = {"a": {"b", "d"}, "x.battery": {"c"}, "b": {"e"}, "c": {"a"}, "d": {"a"}}
    # a has two importers, and the one of d lies in another folder.
    beside = house.beside_importer(edges)
    assert beside == [("b", "a"), ("c", "x.battery"), ("e", "b")]
    assert house.unlisted(beside) == [("b", "a"), ("e", "b")]
    monkeypatch.setattr(house, "layer_of_each", lambda: {"b": 1, "a": 0})
    assert house.unlisted(beside) == [("e", "b")]


def test_layers_of_the_import_linter_are_read():
    layers = house.layer_of_each()
    assert layers["trainworthy.lifecycle.worker"] < layers["trainworthy.lifecycle.predict"]
