"""Bisecting a batch for the rows that do it."""

from collections.abc import Sequence

from trainworthy.lifecycle.engine.incidents.step import MOST_TRIES, Search


def search(*guilty: int, count: int) -> tuple[Search, str]:
    found = Search(lambda part: any(place in guilty for place in part))
    return found, found.run(count)


def test_few_guilty_rows_among_thousands_are_found_with_few_parts():
    found, told = search(17, 3001, count=4096)
    assert sorted(found.alone) == [17, 3001]
    assert found.tries < 60
    assert told.startswith("2 of 4096 rows")


def test_batch_in_which_each_row_does_it_is_not_searched():
    found, told = search(*range(512), count=512)
    assert (found.alone, found.tries) == ([], 4)
    assert "look at weights and model" in told


def test_rows_that_do_it_only_together_are_told_together():
    def bad(part: Sequence[int]) -> bool:
        return {2, 9} <= set(part)

    found = Search(bad)
    assert "together" in found.run(16)
    assert {2, 9} <= set(found.together[0])


def test_search_that_finds_no_end_says_so():
    found, told = search(*range(0, 4096, 2), count=4096)
    assert found.tries <= MOST_TRIES + 1
    assert "there may be more" in told


def test_batch_whose_parts_are_sound_has_no_guilty_row():
    found = Search(lambda part: False)
    assert "parts of the batch do not do it" in found.run(8)
