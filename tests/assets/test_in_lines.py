"""Reasons on Dagster's page: cut into lines, with nothing else changed."""

from trainworthy.assets.metadata import LINE, in_lines
from trainworthy.lifecycle.report.in_words import markdown_list


def test_reasons_are_cut_into_lines_that_a_page_shows_whole():
    sentence = (
        "Better than the label prior: log loss gain +0.2 [+0.1, +0.3] - and more of it 1. than anybody needs here"
    )
    found = in_lines(markdown_list((sentence, "Short.")))
    lines = found.split("\n")
    assert max(map(len, lines)) <= LINE + 4
    assert lines[-1] == "- Short."
    # Each but the last line of a sentence ends in a break, and none begins a list of its own.
    assert [line.endswith("\\") for line in lines] == [*[True] * (len(lines) - 2), False, False]
    assert not any(line.strip().startswith(("- ", "+ ", "1. ")) for line in lines[1:-1])
    assert found.replace("\\\n  ", " ").replace("\\", "") == f"- {sentence}\n- Short."
