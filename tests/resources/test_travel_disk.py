"""The folder of a node where workers' files lie: of one launcher, none of somebody else's, and empty afterwards."""

import contextlib

import pytest
from travelled import Travelled

from trainworthy.lifecycle.errors import BackendError
from trainworthy.lifecycle.failure import EXIT_STORAGE
from trainworthy.resources.backends import on_node
from trainworthy.resources.backends.travel import arrival, disk
from trainworthy.resources.backends.travel.disk import MARK, held
from trainworthy.resources.backends.travel.parcel import claimed, lay_out
from trainworthy.resources.backends.travel.places import Gate


@pytest.fixture
def root(tmp_path):
    return tmp_path / "srv/project"


def write(root, name):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("a")


def shown(root):
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()} - {MARK}


def test_folder_is_made_and_is_empty_afterwards_also_after_an_error(root):
    with held(root, "a"):
        write(root, "var/out/result.json")
    assert shown(root) == set()
    with contextlib.suppress(RuntimeError), held(root, "a"):
        write(root, "file")
        (root / "link").symlink_to(root.parent)
        raise RuntimeError
    assert list(root.iterdir()) == [root / MARK]
    assert root.parent.is_dir()


def test_what_a_killed_worker_has_left_is_gone_before_the_next_begins(root):
    with held(root, "a"):
        pass
    write(root, "var/out/result.json")
    with held(root, "b"):
        assert shown(root) == set()


def test_files_without_our_mark_are_refused_and_stay(root):
    write(root, "model.py")
    with pytest.raises(BackendError, match="files of somebody else") as refused, held(root, "a"):
        pytest.fail("it was had")
    assert refused.value.value == str(root / "model.py")
    assert str(root) in refused.value.fix
    assert [path.name for path in root.iterdir()] == ["model.py"]


def test_what_is_hidden_is_somebodys_also_beside_the_mark_of_a_killed_worker(root):
    write(root, MARK)
    write(root, "model.py")
    write(root, ".git/config")
    with pytest.raises(BackendError, match="files of somebody else") as refused, held(root, "a"):
        pytest.fail("it was had")
    assert refused.value.value == str(root / ".git")
    assert shown(root) == {"model.py", ".git/config"}


def test_worker_that_ends_leaves_the_files_of_one_that_is_still_there(root):
    with held(root, "a"):
        with held(root, "a"):
            write(root, "model.py")
        assert shown(root) == {"model.py"}
    assert shown(root) == set()


def test_two_launchers_never_have_it_at_once(root):
    with held(root, "a"):
        write(root, "model.py")
        with pytest.raises(BackendError, match="workers of another launcher"), held(root, "b"):
            pytest.fail("it was had")
        assert shown(root) == {"model.py"}
    with held(root, "b"):
        write(root, "model.py")


def test_folder_that_cannot_be_made_is_told_with_path_and_fix(root):
    write(root.parents[1], "srv")
    with pytest.raises(BackendError, match=f"files of a worker at {root}: Not a directory") as refused, held(root, "a"):
        pytest.fail("it was had")
    assert refused.value.value == str(root)
    assert f"make {root} on each node" in refused.value.fix


def test_worker_that_cannot_empty_it_says_so_and_its_end_stays(root, monkeypatch, capfd):
    with held(root, "a"):
        monkeypatch.setattr(disk, "_empty", lambda root: (_ for _ in ()).throw(OSError(5, "broken disk")))
    assert "the next one removes them: [Errno 5] broken disk" in capfd.readouterr().err


def test_folders_of_a_start_have_no_files_of_an_earlier_one(travelled):
    """Another worker is still there, so that nobody has emptied it."""
    for name in ("use_case/renamed.py", "var/out/result.json", "var/out/ray/old/end.json", "var/other/result.json"):
        travelled.write(travelled.disk / name, "of an earlier start")
    journey = travelled.journey()
    with journey.under_way(travelled.named):
        lay_out(travelled.bucket, claimed(travelled.bucket, journey.prefix), travelled.disk, Gate())
        files = {"use_case/model.py", "artifact/model.pt2", "var/out/ray/old/end.json", "var/other/result.json"}
        assert travelled.laid_out() == files


def test_node_that_cannot_have_the_files_tells_its_launcher_by_the_bucket(travelled: Travelled, monkeypatch, capfd):
    monkeypatch.setattr(on_node, "main", lambda arguments, afterwards: pytest.fail("a worker was started"))
    travelled.write(travelled.disk / "own.txt", "somebody's")
    journey = travelled.journey()
    own = ["--bucket", travelled.address, "--start", journey.prefix, "--root", str(travelled.disk)]
    with journey.under_way(travelled.named):
        assert arrival.main([*own, "--abandoned", "60", "--"]) == EXIT_STORAGE
        journey.arrived()
        assert '"passes":false' in (travelled.here / "error.json").read_text()
        end = on_node.read_end(travelled.here / "kubernetes/1234abcd")
        assert end is not None
        assert end.exit_code == EXIT_STORAGE
    assert "somebody else" in capfd.readouterr().err
    assert travelled.laid_out() == {"own.txt"}
