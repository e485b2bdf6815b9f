"""What `trainworthy verdict` says that is served."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.lifecycle import report_records
from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.promotion.log import LogEntry
from trainworthy.lifecycle.protocol.operating_point import OperatingPoint
from trainworthy.lifecycle.protocol.records import Verdict
from trainworthy.lifecycle.spec.benchmark import DecisionSpec
from trainworthy.pipeline import compare, show


def judged(version: str, threshold: float) -> Verdict:
    point = OperatingPoint(decision=DecisionSpec(capacity=0.1), threshold=threshold)
    return report_records.verdict("promote").model_copy(update={"model_version": version, "decides": point})


def entry(version: str) -> LogEntry:
    return LogEntry(
        number=1, use_case="toy", action="rollback", model_version=version, verdict_sha256=version,
        previous_verdict_sha256=None, previous_entry_sha256=None, entry_sha256="", written_at="2026-11-26T00:00:00",
    )  # fmt: skip


class Kept:
    """Records of two verdicts."""

    def __init__(self, *_: Any) -> None: ...

    def get(self, _use_case: str, _step: str, sha256: str) -> Verdict:
        if sha256 != "2":
            raise RecordError("the record is gone", value=sha256, fix="restore it")
        return judged("2", 0.05471)


@pytest.mark.parametrize(
    ("champion", "lines"),
    [
        ("3", ["served      it decides: 1 from an answer of 0.1088 on"]),
        (
            "2",
            [
                "served      it decides: 1 from an answer of 0.05471 on",
                "judged      version 3 decides: 1 from an answer of 0.1088 on",
            ],
        ),
        (
            "1",
            [
                "served      what it decides is not known: the record is gone",
                "judged      version 3 decides: 1 from an answer of 0.1088 on",
            ],
        ),
        (None, ["judged      version 3 decides: 1 from an answer of 0.1088 on"]),
    ],
)
def test_served_is_what_the_champion_decides_and_not_a_version_that_was_withdrawn(monkeypatch, champion, lines):
    monkeypatch.setattr(show, "records_of", Kept)
    told = show._decides(judged("3", 0.1088), None if champion is None else entry(champion))
    assert [line.partition(";")[0] for line in told.splitlines()] == lines


def test_compare_shows_both_operating_points_where_there_are_some():
    def row(first: Any, second: Any) -> list[tuple[str, str, str]]:
        mine, theirs = (SimpleNamespace(verdict=SimpleNamespace(decides=one)) for one in (first, second))
        return list(compare._decides(mine, theirs))  # pyright: ignore[reportArgumentType]

    point = judged("2", 0.25).decides
    assert row(point, None) == [("decides", "1 from an answer of 0.25 on", "answers alone")]
    assert row(None, None) == []
