"""Whether a version keeps what the versions before it hold, by their lists of files."""

import json

import pandas as pd
import pytest

from trainworthy.lifecycle.data.backfill import backfill_check, refuse_undeclared, to_keep
from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.content import FileContent, combined, content_hash
from trainworthy.lifecycle.files.contents import add_contents, contents_path, published_files, read_contents, times_of
from trainworthy.lifecycle.files.versions import PublishedVersion, add_version, read_versions, versions_path


def content(**files):
    return combined(FileContent(name=name, rows=1, sha256=value) for name, value in files.items())


JAN, FEB = content(jan="a"), content(jan="a", feb="b")
MAR = content(jan="a", feb="b", mar="c")
REWRITTEN = content(jan="a", feb="b", mar="x", apr="d")
AFTER = content(jan="a", feb="b", mar="x", apr="d", may="e")


def published(*contents, backfills=()):
    """Versions v1, v2 … of these contents; `backfills` maps a version to the one that it changes."""
    declared = {name: {"of": of, "reason": "the airline corrected its clocks"} for name, of in dict(backfills).items()}
    return {
        f"v{place}": PublishedVersion(
            parameters={"n": place}, rows=1, content_hash=one.sha256, dvc_hash=f"{'0' * 32}.dir",
            backfill=declared.get(f"v{place}"),
        )
        for place, one in enumerate(contents, start=1)
    }  # fmt: skip


def checked(revision, *contents, backfills=(), unknown=()):
    known = {one.sha256: one for place, one in enumerate(contents, start=1) if f"v{place}" not in unknown}
    versions = published(*contents, backfills=backfills)
    return backfill_check("flights", revision, versions, lambda version: known.get(version.content_hash))


def test_backfill_check_of_added_files_passes_and_of_the_first_version_too():
    assert checked("v3", JAN, FEB, MAR).status == "pass"
    assert checked("v1", JAN).evidence == "the first published version"


def test_backfill_check_of_a_rewritten_file_fails_and_names_it():
    check = checked("v4", JAN, FEB, MAR, REWRITTEN)
    assert (check.status, check.stops) == ("fail", True)
    assert "flights@v4 changes or lacks files of v3 without declaring it: mar" in check.evidence
    assert "trainworthy datasets diff flights v3 v4" in check.fix
    assert check.details == ({"version": "v3", "file": "mar", "what": "changed"},)


def test_backfill_check_of_a_missing_file_fails():
    assert checked("v2", FEB, content(jan="a", mar="c")).status == "fail"


def test_backfill_check_of_a_declared_change_passes_and_tells_the_reason():
    check = checked("v4", JAN, FEB, MAR, REWRITTEN, backfills={"v4": "v3"})
    assert check.status == "pass"
    assert "declared backfill of v3: the airline corrected its clocks (1 file differs)" in check.evidence


def test_backfill_check_after_a_declared_change_holds_the_new_rows_not_the_old():
    after = (JAN, FEB, MAR, REWRITTEN, AFTER)
    assert checked("v5", *after, backfills={"v4": "v3"}).status == "pass"
    back = content(jan="a", feb="b", mar="c", apr="d", may="e")
    assert checked("v5", JAN, FEB, MAR, REWRITTEN, back, backfills={"v4": "v3"}).status == "fail"


def test_backfill_check_of_a_declaration_that_names_another_version_covers_only_that_one():
    assert checked("v4", JAN, FEB, MAR, REWRITTEN, backfills={"v4": "v2"}).status == "fail"
    unknown = checked("v4", JAN, FEB, MAR, REWRITTEN, backfills={"v4": "v9"})
    assert (unknown.status, "no version before it" in unknown.evidence) == ("fail", True)


def test_backfill_check_without_the_list_of_the_version_before_is_insufficient():
    check = checked("v3", JAN, FEB, MAR, unknown={"v2"})
    assert (check.status, check.stops) == ("insufficient", False)
    assert checked("v3", JAN, FEB, MAR, unknown={"v1"}).status == "pass"
    # What is known still counts.
    assert checked("v4", JAN, FEB, MAR, REWRITTEN, unknown={"v2"}).status == "fail"


def test_backfill_check_of_a_part_that_is_published_later_passes():
    assert checked("v3", JAN, MAR, FEB).status == "pass"


def test_backfill_check_of_files_that_were_taken_out_fails_unless_declared():
    whole, without = content(a="a", b="b", c="c"), content(a="a", c="c")
    check = checked("v2", whole, without)
    assert (check.status, check.details) == ("fail", ({"version": "v1", "file": "b", "what": "missing"},))
    assert checked("v2", whole, without, backfills={"v2": "v1"}).status == "pass"
    known = {whole.sha256: whole}
    refuse_undeclared("flights", "v2", without, published(whole), lambda v: known[v.content_hash], "b was a test run")


def test_to_keep_ends_at_the_newest_declared_change():
    versions = published(JAN, FEB, MAR, REWRITTEN, AFTER, backfills={"v4": "v3"})
    assert to_keep(versions, "v5") == ("v4",)
    assert to_keep(versions, "v6") == ("v5", "v4")
    assert to_keep(versions, "v4") == ()
    assert to_keep(versions, "v3") == ("v2", "v1")


def test_refuse_undeclared_of_a_declaration_that_changes_nothing_is_refused():
    known = {one.sha256: one for one in (JAN, FEB)}
    with pytest.raises(DatasetError, match="changes no file of flights@v2"):
        refuse_undeclared("flights", "v3", MAR, published(JAN, FEB), lambda v: known[v.content_hash], "a reason")
    with pytest.raises(DatasetError, match="the same as flights@v1"):
        refuse_undeclared("flights", "v3", JAN, published(JAN, FEB), lambda v: known[v.content_hash], "a reason")


def test_contents_are_found_by_the_hash_that_their_files_combine_to(tmp_path):
    (tmp_path / "data").mkdir()
    folder = tmp_path / "rows"
    folder.mkdir()
    rows = pd.DataFrame(
        {"x": [1, 2], "when": pd.to_datetime(["2024-01-02", None]), "empty": pd.to_datetime([None] * 2)}
    )
    rows.to_parquet(folder / "jan.parquet")
    found = content_hash(folder)
    add_contents(tmp_path, {found.sha256: published_files("shop", "v1", found, folder)})
    before = contents_path(tmp_path).read_text()
    add_contents(tmp_path, {found.sha256: published_files("shop", "v2", found, folder)})
    assert contents_path(tmp_path).read_text() == before
    recorded = read_contents(tmp_path)[found.sha256]
    assert (recorded.content, recorded.times) == (found, {"when": ("2024-01-02T00:00:00", "2024-01-02T00:00:00")})
    # A line that was changed is nobody's.
    line = json.loads(before)
    line["files"][0]["sha256"] = "0" * 64
    contents_path(tmp_path).write_text(json.dumps(line))
    assert found.sha256 not in read_contents(tmp_path)
    contents_path(tmp_path).write_text("{}\n")
    with pytest.raises(DatasetError, match=r"line 1 of data/contents\.jsonl"):
        read_contents(tmp_path)


def test_times_of_files_without_statistics_are_left_out(tmp_path):
    rows = pd.DataFrame({"when": pd.to_datetime(["2024-01-02", "2024-03-01"])})
    rows.to_parquet(tmp_path / "a.parquet")
    rows.to_parquet(tmp_path / "b.parquet", write_statistics=False)
    assert times_of(tmp_path) == {}


def test_entry_with_a_backfill_or_a_source_reads_back_equal(tmp_path):
    (tmp_path / "data").mkdir()
    hashes = {"rows": 5, "content_hash": "12" * 32, "dvc_hash": f"{'1' * 32}.dir"}
    plain = PublishedVersion.model_validate({"parameters": {"n": 1}, **hashes})
    other = {"source": "s3://shop/rows", "backfill": {"of": "v1", "reason": "no: it's a 'test'"}, **hashes}
    add_version(tmp_path, "shop", "v1", plain)
    first = versions_path(tmp_path).read_text()
    add_version(tmp_path, "shop", "v2", PublishedVersion.model_validate(other))
    assert versions_path(tmp_path).read_text().startswith(first)
    assert "backfill" not in first
    assert read_versions(tmp_path)["shop"]["v2"] == PublishedVersion.model_validate(other)


@pytest.mark.parametrize(
    "entry",
    [
        {"source": "https://user:word@host/rows.parquet"}, {"source": "s3://a/b?X-Signature=c"}, {"source": "-o/x"},
        {"parameters": {"n": 1}, "source": "s3://a/b"}, {},
        {"parameters": {"n": 1}, "backfill": {"of": "v1", "reason": "two\nlines"}},
        {"parameters": {"n": 1}, "backfill": {"of": "v1", "reason": ""}},
    ],
    ids=str,
)  # fmt: skip
def test_entry_with_credentials_two_origins_or_no_reason_is_refused(tmp_path, entry):
    from trainworthy.lifecycle.files.versions import check_entry

    with pytest.raises(DatasetError, match="can't be published"):
        check_entry("shop", "v2", entry)
