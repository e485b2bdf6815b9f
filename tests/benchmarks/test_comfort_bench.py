"""The form of the benchmark's result; its figures are no matter of a test."""

import json

import pytest

from benchmarks import comfort
from benchmarks.process import Usage
from benchmarks.result import finish


@pytest.mark.parametrize(("cpu", "wall", "met"), [(0.1, 2.0, True), (0.6, 2.0, False), (0.1, 5.5, False)])
def test_comfort_result_line_is_met_only_if_both_commands_are_fast(capsys, cpu, wall, met):
    usages = {"help": [Usage(cpu, 0.3)] * 3, "check": [Usage(9.0, wall)] * 3}
    finish("comfort", comfort.figures(usages), comfort.TARGETS)
    line = json.loads(capsys.readouterr().out)
    assert (line["benchmark"], line["met"]) == ("comfort", met)
    assert line["targets"].keys() == line["figures"].keys()
    assert "trainworthy --help" in comfort.table(usages)


def test_comfort_measures_fresh_processes_that_ended_well():
    usages = comfort.measure(["--help"], 2)
    assert len(usages) == 2
    assert all(usage.cpu_seconds > 0 for usage in usages)
    with pytest.raises(AssertionError, match="ended with 2"):
        comfort.measure(["no_such_command"], 1)
