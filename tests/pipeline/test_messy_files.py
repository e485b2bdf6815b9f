"""Files as people have them: each gives a use case, or one error that names column, value and fix."""

from typing import Any

import pytest

from benchmarks.messy_files import FILES, write
from trainworthy.pipeline.scaffold.request import Request
from trainworthy.pipeline.scaffold.table_profile import find_out

# Each costs a third of a second; all of them are read in `make bench NAME=evening`.
CHOSEN = (
    "dates_german", "dates_ambiguous", "dates_in_four_forms", "dates_with_a_slip", "dates_compact", "encoding_bom",
    "encoding_latin_1", "encoding_gb18030", "encoding_utf_16", "separator_decimal_comma", "file_empty",
    "file_of_numbers_without_header",
    "rows_short", "rows_long", "rows_open_quote", "rows_doubled", "target_y_n", "target_three_classes",
    "target_spelt_twice", "target_one_class", "target_null", "target_of_a_follow_up", "column_huge",
    "column_nearly_numbers", "column_codes", "column_names_alike", "column_names_hostile", "column_nested", "no_time",
    "no_time_of_customers", "no_time_though_it_is_there",
)  # fmt: skip


@pytest.mark.parametrize("name", CHOSEN)
def test_file_gives_a_use_case_or_one_error_that_names_what_to_do(tmp_path, name):
    case, path = FILES[name], write(name, tmp_path)
    (tmp_path / "work").mkdir()
    asked: dict[str, Any] = {"target": "bought", "time": "at", "positive": None, "keys": (), "owner": None} | dict(
        case.asked
    )
    found, problems = find_out(Request(name="shop", data=path, **asked), path, tmp_path / "work")
    assert all(problem.fix for problem in problems)
    told = "\n".join(map(str, problems))
    assert (found is None) == bool(case.told) == bool(problems), told
    for part in case.told:
        assert part in told
    for part in case.seen:
        assert found is not None
        assert part in "\n".join(found.observations)
