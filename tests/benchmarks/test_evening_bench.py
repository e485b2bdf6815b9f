"""What the bench of an evening on unseen tables says of one."""

from benchmarks.busy import different
from benchmarks.evening import in_words
from benchmarks.evening_tables import Evening


def test_table_is_told_with_both_verdicts_what_differs_and_what_was_refused():
    alone = Evening(81.2, {"verdict": "promote", "snapshot/drift": "pass", "pilot/learned": "insufficient"}, ())
    assert in_words("credit", alone, alone, ()) == [
        "credit: promote alone in 81 s, promote beside other work in 81 s; 3 statuses, different: none; "
        "commands refused: none",
        "  pilot/learned insufficient",
    ]
    beside = Evening(190.0, {"snapshot/drift": "fail"}, ("check ended with 1",))
    line, *below = in_words("credit", alone, beside, different(dict(alone.statuses), dict(beside.statuses)))
    assert "promote alone in 81 s, no verdict beside other work in 190 s" in line
    assert line.endswith("3 statuses, different: 3; commands refused: 1")
    assert below == [
        "  pilot/learned insufficient", "  verdict: promote alone, not there beside",
        "  snapshot/drift: pass alone, fail beside", "  pilot/learned: insufficient alone, not there beside",
        "  check ended with 1",
    ]  # fmt: skip
