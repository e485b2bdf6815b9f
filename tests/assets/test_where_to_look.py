"""What a step says at its end: the command that replays an alarm, and the report's path."""

from pathlib import Path

import pytest

from trainworthy.assets.step_lines import where_to_look
from trainworthy.lifecycle.protocol.records import StageReport
from trainworthy.lifecycle.protocol.training_figures import Alarm


def alarm(step: int, severity: str, incident: str | None) -> Alarm:
    return Alarm.model_validate(
        {
            "step": step, "onset": step, "last_step": step, "monitor": "loss_spike", "severity": severity,
            "symptom": "", "evidence": "", "cause": "", "fix": "", "action": "warn", "incident": incident,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("alarms", "told"),
    [
        ([], []),
        ([alarm(3, "warning", None)], []),
        ([alarm(9, "critical", "c/9"), alarm(3, "warning", "c/3")], ["replay: trainworthy replay c/9"]),
        ([alarm(5, "warning", "c/5"), alarm(3, "warning", "c/3")], ["replay: trainworthy replay c/3"]),
    ],
)
def test_step_with_alarms_ends_with_the_command_that_replays_the_worst(alarms: list[Alarm], told: list[str]):
    stage = StageReport.model_construct(alarms=tuple(alarms))
    assert where_to_look(stage, None) == told
    assert where_to_look(stage, Path("/state/report.html")) == [*told, "report: /state/report.html"]
