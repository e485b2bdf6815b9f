"""The form of the benchmark's result; its figures are no matter of a test."""

import ast
import json
from pathlib import Path

import pytest

from benchmarks import lifecycle
from benchmarks.process import Usage, run
from benchmarks.result import finish

ROOT = Path(__file__).parents[2]
CPU_SECONDS = {
    "import dagster": 0.5,
    "definitions": 0.6,
    "definitions, more use cases": 0.7,
    "empty": 1.2,
    "empty, Dagster's storage": 1.4,
    "empty, multiprocess": 9.0,
    "frame": 1.5,
    "frame, reused": 1.4,
    "frame, more checks": 2.0,
    "import torch": 1.0,
    "worker, to its rows": 1.4,
    "worker, one update": 2.5,
}


def result_line(capsys, **changes: float) -> dict:
    usages = {name: [Usage(seconds, 2 * seconds)] * 3 for name, seconds in (CPU_SECONDS | changes).items()}
    finish("lifecycle", lifecycle.figures(usages), lifecycle.TARGETS)
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_result_line_good_figures_names_every_target_and_is_met(capsys):
    line = result_line(capsys)
    assert line["benchmark"] == "lifecycle"
    assert line["targets"].keys() <= line["figures"].keys()
    assert line["figures"]["frame_over_empty"] == pytest.approx(1.25)
    assert line["figures"]["further_use_case_cpu_seconds"] == pytest.approx(0.01)
    assert line["met"] is True


def test_result_line_slow_frame_is_missed(capsys):
    assert result_line(capsys, frame=1.9)["met"] is False


def test_variants_names_are_those_that_the_figures_read(tmp_path):
    assert lifecycle.variants(tmp_path).keys() == CPU_SECONDS.keys()


def test_run_failing_process_is_refused_with_its_words(tmp_path):
    with pytest.raises(AssertionError, match="told why"):
        run(["sh", "-c", "echo told why; exit 3"], {}, tmp_path)


def test_frame_answers_every_question_that_a_step_asks_of_mlflow():
    """What it lacked would go to the real MLflow, whose answer ended `make bench NAME=lifecycle` once."""
    asked = {
        node.attr
        for file in ("step", "step_run", "track")
        for node in ast.walk(ast.parse((ROOT / "assets" / f"{file}.py").read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "tracking"
    }
    module = ast.parse((ROOT / "benchmarks" / "frame_assets.py").read_text())
    (double,) = [node for node in module.body if isinstance(node, ast.ClassDef) and node.name == "NoTracking"]
    answered = {node.name for node in double.body if isinstance(node, ast.FunctionDef)}
    assert {"run", "tags", "log_values"} <= asked <= answered
