"""data/versions.yaml: read strictly, written whole and in order."""

import pytest
from refusals import refused

from trainworthy.lifecycle.errors import DatasetError
from trainworthy.lifecycle.files.content import FileContent, combined
from trainworthy.lifecycle.files.versions import (
    PublishedVersion,
    add_version,
    check_entry,
    published_version,
    read_versions,
    refuse_changes,
    versions_path,
)

ENTRY = (
    f"{{parameters: {{through_month: 9, source: 0.0.3}}, rows: 5, content_hash: {'ab' * 32}, dvc_hash: {'c' * 32}.dir}}"
)
VERSION = PublishedVersion(
    parameters={"through_month": 9, "source": "0.0.3", "fraction": 0.5, "weather": True},
    rows=5,
    content_hash="12" * 32,
    dvc_hash="1" * 32 + ".dir",
)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path


def write(project, text):
    versions_path(project).write_text(text)


def test_read_versions_of_a_project_without_any_is_empty(project):
    assert read_versions(project) == {}
    with refused(DatasetError, "dataset.unknown"):
        published_version(project, "flights", "v1")


def test_add_version_keeps_order_and_reads_back_equal(project):
    write(project, f"flights:\n  v9: {ENTRY}\n  v1: {ENTRY}\nadult:\n  v1: {ENTRY}\n")
    # `no` is a boolean and all-digit hashes are numbers to YAML unless they are quoted.
    for name, revision in (("flights", "v10"), ("no", "yes")):
        add_version(project, name, revision, VERSION)
        assert published_version(project, name, revision) == VERSION
    order = {name: list(revisions) for name, revisions in read_versions(project).items()}
    assert order == {"flights": ["v9", "v1", "v10"], "adult": ["v1"], "no": ["yes"]}
    assert list(order) == ["flights", "adult", "no"]
    assert [path.name for path in (project / "data").iterdir()] == ["versions.yaml"]


def test_add_version_adds_one_line(project):
    add_version(project, "flights", "v1", VERSION)
    before = versions_path(project).read_text()
    add_version(project, "flights", "v2", VERSION)
    added = versions_path(project).read_text().removeprefix(before)
    assert added.startswith("  v2: {parameters: {")
    assert added.count("\n") == 1


def test_add_version_of_a_published_one_is_refused(project):
    add_version(project, "flights", "v1", VERSION)
    with refused(DatasetError, "dataset.published"):
        add_version(project, "flights", "v1", VERSION)


def test_dataset_without_a_published_version_is_told_with_the_file_that_was_read(project):
    with refused(DatasetError, "dataset.unknown") as caught:
        published_version(project, "nothing_of_this_name", "v1")
    assert f"published in {versions_path(project)}" in caught.value.problem


def test_published_version_unknown_offers_the_nearest(project):
    write(project, f"flights:\n  v9: {ENTRY}\n")
    with refused(DatasetError, "dataset.unknown") as caught:
        published_version(project, "flight", "v9")
    assert "'flights'" in caught.value.fix
    with refused(DatasetError, "dataset.unknown_version") as caught:
        published_version(project, "flights", "newest")
    assert "v9" in caught.value.problem


@pytest.mark.parametrize(
    ("old", "new", "code", "named"),
    [
        ("rows:", "row:", "versions.entry", "'rows'"),
        ("rows: 5", "rows: 0", "versions.entry", "rows"),
        ("rows: 5, ", "", "versions.entry", "rows"),
        ("abab", "", "versions.entry", "content_hash"),
        (".dir", "", "versions.entry", "dvc_hash"),
        ("0.0.3", '"1; rm -rf x"', "versions.entry", "source"),
        ("0.0.3", ".nan", "versions.entry", "source"),
        ("0.0.3", "[1]", "versions.entry", "source"),
        ("{through_month: 9, source: 0.0.3}", "{}", "versions.entry", "parameters"),
        ("v9", "V 9", "versions.entry", "V 9"),
        ("  v9", f"  v9: {ENTRY}\n  v9", "versions.yaml", "twice"),
        ("rows: 5", "rows: 5, rows: 6", "versions.yaml", "twice"),
        ("{parameters", "[parameters", "versions.yaml", "data/versions.yaml:2 "),
    ],
)
def test_read_versions_of_a_bad_file_is_refused(project, old, new, code, named):
    write(project, f"flights:\n  v9: {ENTRY}\n".replace(old, new))
    with refused(DatasetError, code) as caught:
        read_versions(project)
    assert named in caught.value.problem


def test_read_versions_of_a_file_that_is_no_mapping_is_refused(project):
    write(project, "- flights\n")
    with refused(DatasetError, "versions.entry"):
        read_versions(project)


def test_check_entry_takes_good_names_and_refuses_bad_ones():
    check_entry("flights", "v1", {"parameters": {"through_month": 9, "source": "0.0.3"}})
    one = {"parameters": {"a": 1}}
    for entry in (("Flights", "v1", one), ("flights", "1", one), ("flights", "v1", {"parameters": {}})):
        with refused(DatasetError, "dataset.unpublishable"):
            check_entry(*entry)


@pytest.mark.parametrize(
    "source",
    [
        "https://user:SECRET@host/x",
        "https://host/x?sig=SECRET",
        "/mnt/x?sig=SECRET",
        "user:SECRET@host:/x",
        "https://user:SECRET word@host/x",
    ],
)
@pytest.mark.parametrize("more", [{}, {"parameters": {"a": 1}}])
def test_check_entry_of_a_source_with_a_secret_does_not_repeat_it(source, more):
    with refused(DatasetError, "dataset.unpublishable") as caught:
        check_entry("flights", "v1", {"source": source, **more})
    assert "SECRET" not in str(caught.value)
    assert "/x" in str(caught.value)


def content(**files):
    return combined(FileContent(name=name, rows=1, sha256=value) for name, value in files.items())


def test_refuse_changes_takes_added_files_in_either_order():
    small, large = content(m_1="a", m_9="b"), content(m_1="a", m_9="b", m_10="c")
    refuse_changes("v2", large, "v1", small)
    # An older state that is published later.
    refuse_changes("v1", small, "v2", large)


@pytest.mark.parametrize(("lacking", "named"), [("m_1", "m_1"), ("m_9", "m_9")])
def test_refuse_changes_of_files_that_were_taken_out_names_them(lacking, named):
    files = {"m_1": "a", "m_9": "b", "m_10": "c"}
    later = content(**{name: value for name, value in files.items() if name != lacking})
    with refused(DatasetError, "dataset.changed_files") as caught:
        refuse_changes("v2", later, "v1", content(**files))
    assert caught.value.value == [named]


@pytest.mark.parametrize(
    ("new", "named"),
    [({"jan": "x", "feb": "b", "mar": "c"}, "jan"), ({"feb": "b", "mar": "c"}, "jan"), ({"feb": "x"}, "feb")],
)
def test_refuse_changes_of_changed_or_missing_files_names_them(new, named):
    with refused(DatasetError, "dataset.changed_files") as caught:
        refuse_changes("v2", content(**new), "v1", content(jan="a", feb="b"))
    assert caught.value.value == [named]


def test_refuse_changes_of_equal_content_is_refused():
    with refused(DatasetError, "dataset.same_content"):
        refuse_changes("v2", content(jan="a"), "v1", content(jan="a"))
