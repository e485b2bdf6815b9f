"""What installs a checkout's packages: its words while it works and when it fails. Nothing is installed."""

import sys

import pytest

import install


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """An environment with two packages."""
    for name in ("a-1.dist-info", "b-2.dist-info"):
        (tmp_path / "lib" / "python3.11" / "site-packages" / name).mkdir(parents=True)
    monkeypatch.setattr(install, "SECONDS_A_LINE", 0.05)
    return tmp_path


def writes(text, then="pass"):
    """A command that writes the text, then runs a statement."""
    return [sys.executable, "-c", f"import sys, time; print({text!r}, flush=True); {then}"]


def test_install_says_what_is_done_while_it_works_and_at_the_end(environment, capsys):
    assert install.install(writes("Collecting numpy==2.4.6", "time.sleep(0.5)"), environment) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "   0 s: 2 packages; Collecting numpy==2.4.6"
    assert lines[-1] == "   0 s: 2 packages"


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("NewConnectionError('Temporary failure in name resolution')", "needs a network"),
        ("NewConnectionError('x')\nERROR: ResolutionImpossible", "needs a network"),
        ("ERROR: ResolutionImpossible", "git checkout -- constraints.txt"),
        ("× No solution found when resolving dependencies", "git checkout -- constraints.txt"),
        ("OSError: [Errno 28] No space left on device", "free space"),
        ("ERROR: something else", "run it again"),
    ],
)
def test_install_that_fails_shows_the_end_of_its_log_and_a_fix(environment, capsys, text, fix):
    assert install.install(writes(f"WARNING: noise\n{text}", "sys.exit(2)"), environment) == 1
    shown = capsys.readouterr().err
    assert text in shown
    assert "WARNING" not in shown
    assert shown.count("fix:") == 1
    assert fix in shown
    assert str(environment / "setup.log") in shown


def asked_for(environment, monkeypatch, options=(), *, uv=None, uv_ends_with=0):
    """The commands that an installation of the checkout runs."""
    commands = []

    def ran(command, environment):
        commands.append(command)
        return uv_ends_with if command[0] == uv else 0

    monkeypatch.setattr(install, "run", ran)
    monkeypatch.setattr(install.shutil, "which", lambda name, path=None: uv)
    assert install.main([*options, str(environment), "--editable", ".[dev]"]) == 0
    assert all(command[-4:] == ["--constraint", "constraints.txt", "--editable", ".[dev]"] for command in commands)
    return commands


def test_install_by_uv_where_it_is_and_by_pip_where_it_is_asked_for(environment, monkeypatch):
    (by_uv,) = asked_for(environment, monkeypatch, uv="/bin/uv")
    (by_pip,) = asked_for(environment, monkeypatch, ["--pip"], uv="/bin/uv")
    (without_uv,) = asked_for(environment, monkeypatch)
    assert by_uv[:3] == ["/bin/uv", "pip", "install"]
    assert by_pip[1:4] == without_uv[1:4] == ["-m", "pip", "install"]
    # Whatever uv installs later, it compiles all that is there, on all cores.
    assert ("--no-compile" in by_pip, "--no-compile" in without_uv) == (True, False)


def test_install_by_pip_where_uv_fails_as_one_that_does_not_know_pips_mirror(environment, monkeypatch, capsys):
    by_uv, by_pip = asked_for(environment, monkeypatch, uv="/bin/uv", uv_ends_with=2)
    assert (by_uv[0], by_pip[1:3]) == ("/bin/uv", ["-m", "pip"])
    assert "once more by pip" in capsys.readouterr().out


def test_last_step_is_one_short_line():
    assert install.last_step("Collecting a\nWARNING: x\n") == "Collecting a"
    assert len(install.last_step("Installing collected packages: " + "name, " * 100)) == install.SHOWN_CHARACTERS
    assert install.last_step("Prepared 2 packages in 4s\nInstalled 2 packages in 1s\n").endswith("1s; compiling them")
    assert install.last_step("") == ""
