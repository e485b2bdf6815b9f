"""Whether all code that a step runs is in a commit, in real git repositories."""

import base64
import hashlib
import subprocess

import pytest

from trainworthy.lifecycle import provenance
from trainworthy.lifecycle.provenance import (
    OUR_CODE,
    changed_files,
    commit_url,
    committed_text,
    git_state,
    installed_version,
    last_change,
    repository_url,
    without_credentials,
)


def git(folder, *arguments):
    identity = ("-c", "user.name=Tests", "-c", "user.email=tests@example.org")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def commit(folder):
    git(folder, "add", "--all")
    git(folder, "commit", "--message", "change")


def repository(root, files):
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    git(root, "init")
    commit(root)
    return root


@pytest.fixture
def product(tmp_path, monkeypatch):
    """A stand-in for Trainworthy's own repository."""
    root = repository(tmp_path / "product", [f"{name}/code.py" for name in OUR_CODE])
    monkeypatch.setattr(provenance, "PRODUCT", root)
    return root


@pytest.fixture
def toy(tmp_path, product):
    """A use case in a repository of its own."""
    return repository(tmp_path / "mine", ["use_cases/toy/model.py", "use_cases/toy/use_case.yaml"]) / "use_cases/toy"


def test_git_state_with_all_code_committed_is_clean_in_one_repository_and_in_two(toy, product):
    found, dirty = git_state(toy)
    assert (len(found or ""), dirty) == (40, False)
    (product / "use_cases" / "own").mkdir(parents=True)
    (product / "use_cases" / "own" / "model.py").write_text("")
    commit(product)
    assert git_state(product / "use_cases" / "own")[1] is False


def test_git_state_with_bytecode_that_no_gitignore_names_is_clean(toy, product):
    for folder in (toy, product / "assets"):
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / "model.cpython-311.pyc").write_bytes(b"bytecode")
    assert git_state(toy)[1] is False
    # Once committed by mistake, Python writes it anew after each change of its source.
    commit(toy.parents[1])
    (toy / "__pycache__" / "model.cpython-311.pyc").write_bytes(b"other bytecode")
    assert git_state(toy)[1] is False


def test_git_state_of_a_changed_or_untracked_use_case_is_dirty(toy):
    (toy / "notes.txt").write_text("new")
    assert git_state(toy)[1] is True
    commit(toy)
    (toy / "model.py").write_text("changed")
    assert git_state(toy)[1] is True


def test_changed_files_are_the_use_cases_own_and_trainworthys_by_name(toy, product):
    root = toy.parent.parent
    (root / "use_cases" / "other").mkdir()
    (root / "use_cases" / "other" / "model.py").write_text("untracked")
    (root / "dvc.yaml").write_text("untracked")
    (product / "README.md").write_text("untracked")
    assert changed_files(toy) == ()
    (toy / "model.py").write_text("changed")
    (toy / "new part.py").write_text("")
    (product / "assets" / "code.py").unlink()
    assert changed_files(toy) == ("assets/code.py", "use_cases/toy/model.py", "use_cases/toy/new part.py")


def test_committed_text_is_the_commits_and_not_the_trees(toy):
    (toy / "model.py").write_text("changed")
    assert committed_text(toy.parent.parent, "use_cases/toy/model.py") == "use_cases/toy/model.py"
    assert committed_text(toy.parent.parent, "data/versions.yaml") is None


@pytest.mark.parametrize("ignored", ["/use_cases/", "/use_cases/toy/extra.py", "*.yaml"])
def test_git_state_of_code_that_git_ignores_is_dirty(toy, ignored):
    root = toy.parent.parent
    (root / ".gitignore").write_text(ignored)
    git(root, "rm", "-r", "--cached", "use_cases") if ignored != "/use_cases/toy/extra.py" else None
    (toy / "extra.py").write_text("")
    commit(root)
    assert subprocess.run(["git", "-C", root, "status", "--porcelain"], capture_output=True, check=True).stdout == b""
    assert git_state(toy)[1] is True


def test_git_state_while_trainworthy_itself_is_changed_or_not_tracked_is_dirty(toy, product):
    (product / "lifecycle" / "code.py").write_text("changed")
    assert git_state(toy)[1] is True
    commit(product)
    assert git_state(toy)[1] is False
    (product / ".gitignore").write_text("new.py")
    (product / "assets" / "new.py").write_text("")
    commit(product)
    assert git_state(toy)[1] is True


def test_git_state_of_code_outside_git_is_unknown(toy, tmp_path, monkeypatch):
    (tmp_path / "loose").mkdir()
    assert git_state(tmp_path / "loose") == (None, None)
    monkeypatch.setattr(provenance, "PRODUCT", tmp_path / "loose")
    found, dirty = git_state(toy)
    assert (len(found or ""), dirty) == (40, None)


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("https://example.org/team/models.git", "https://example.org/team/models/commit/abc"),
        ("https://name:secret@example.org:8443/team/models/", "https://example.org:8443/team/models/commit/abc"),
        ("git@example.org:team/models.git", None),
        ("http://example.org/team/models", None),
        ("/srv/git/models", None),
        (None, None),
    ],
)
def test_commit_url_of_origin_is_https_without_credentials_or_none(toy, origin, expected):
    repository_url.cache_clear()
    if origin is not None:
        git(toy, "remote", "add", "origin", origin)
    assert commit_url(toy, "abc") == expected
    assert commit_url(toy, None) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://bob:SECRET@db:5432/mlflow", "postgresql://db:5432/mlflow"),
        ("postgresql://bob:SEC/RET?#@db/mlflow", "postgresql://db/mlflow"),
        ("postgresql://db/mlflow?user=bob&password=SECRET", "postgresql://db/mlflow"),
        ("sqlite:////var/mlflow.db", "sqlite:////var/mlflow.db"),
        ("a request to https://bob:SECRET@mlflow/api failed: mail me@example.org", None),
        ("databricks", "databricks"),
    ],
)
def test_without_credentials_keeps_the_address_alone(text, expected):
    expected = expected or "a request to https://mlflow/api failed: mail me@example.org"
    assert without_credentials(text) == expected


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A stand-in for an installed Trainworthy: files in site-packages, which git ignores, and their RECORD."""
    site = tmp_path / "mine" / ".venv" / "site-packages"
    files = [f"trainworthy/{name}" for name in ("lifecycle/provenance.py", "assets/code.py", "lifecycle/stages.toml")]
    lines = ["trainworthy/lifecycle/__pycache__/provenance.cpython-311.pyc,,", "trainworthy-0.1.0.dist-info/RECORD,,"]
    for name in files:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(name)
        sha256 = base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest()).decode().rstrip("=")
        lines.append(f"{name},sha256={sha256},{len(name)}")
    (site / "trainworthy-0.1.0.dist-info").mkdir()
    (site / "trainworthy-0.1.0.dist-info" / "METADATA").write_text("Name: trainworthy\nVersion: 0.1.0\n")
    (site / "trainworthy-0.1.0.dist-info" / "RECORD").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(provenance, "PRODUCT", site / "trainworthy")
    return site / "trainworthy"


@pytest.fixture
def teams(installed, tmp_path):
    """A use case in a team's repository, which ignores its environment."""
    (tmp_path / "mine" / ".gitignore").write_text(".venv/\n")
    return repository(tmp_path / "mine", ["use_cases/toy/model.py", "use_cases/toy/use_case.yaml"]) / "use_cases/toy"


def test_installed_trainworthy_as_its_record_says_is_clean_and_has_a_version(teams, installed):
    assert changed_files(teams) == ()
    assert git_state(teams)[1] is False
    version = installed_version()
    assert version is not None
    assert version.startswith("trainworthy 0.1.0 (files ")


@pytest.mark.parametrize(
    ("name", "text"),
    [("assets/code.py", "changed"), ("lifecycle/stages.toml", "changed"), ("lifecycle/more.py", "more"),
     ("assets/code.py", None)],
    ids=["edited source", "edited table", "source that was not installed", "removed"],
)  # fmt: skip
def test_installed_trainworthy_that_was_changed_names_the_file(teams, installed, name, text):
    # Transformers and others bring it; its finder takes the place of Python's own.
    import importlib_metadata  # noqa: F401  # pyright: ignore[reportUnusedImport]

    version = installed_version()
    (installed / name).write_text(text) if text else (installed / name).unlink()
    assert changed_files(teams) == (f"trainworthy/{name}",)
    assert installed_version() == version


def test_installed_trainworthy_with_bytecode_beside_its_sources_is_clean(teams, installed):
    (installed / "lifecycle" / "__pycache__").mkdir()
    (installed / "lifecycle" / "__pycache__" / "provenance.cpython-311.pyc").write_bytes(b"")
    assert changed_files(teams) == ()


def test_trainworthy_that_its_record_does_not_name_is_judged_by_git(teams, installed, tmp_path, monkeypatch):
    checkout = repository(tmp_path / "checkout", [f"{name}/code.py" for name in OUR_CODE])
    monkeypatch.setattr(provenance, "PRODUCT", checkout)
    assert installed_version() is None
    assert changed_files(teams) == ()
    (checkout / "assets" / "code.py").write_text("changed")
    assert changed_files(teams) == ("assets/code.py",)


def test_installed_trainworthy_says_nothing_of_a_use_case_outside_git(installed, tmp_path):
    (tmp_path / "loose").mkdir()
    assert changed_files(tmp_path / "loose") is None


def test_last_change_is_that_of_the_lines_with_the_word_and_not_of_the_file(toy):
    path = toy / "limits.yaml"

    def changed(text: str, author: str) -> str:
        path.write_text(text)
        git(toy, "add", "-A")
        git(toy, "-c", f"user.name={author}", "commit", "-qm", author)
        asked = ["git", "-C", str(toy), "log", "-1", "--format=%h"]
        head = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        return f"commit {head} by {author}"

    assert last_change(toy, path.name, "rate") == ""
    path.write_text("rate: 1\nrows: 100\n")
    assert last_change(toy, path.name, "rate") == "not committed"
    changed("rate: 1\nrows: 100\n", "Ada")
    of_rows = changed("rate: 1\nrows: 50\n", "Grace")
    of_rate = changed("rate: 2\nrows: 50\n", "Edsger")
    assert last_change(toy, path.name, "rows") == of_rows
    assert last_change(toy, path.name, "rate") == of_rate
    # A line that is committed is not blamed for one that is not.
    path.write_text("rate: 2\nrows: 20\n")
    assert last_change(toy, path.name, "rate") == of_rate
    assert last_change(toy, path.name, "rows") == last_change(toy, path.name) == "not committed"
    # What no line names has the file's last change.
    assert last_change(toy, path.name, "columns") == of_rate
