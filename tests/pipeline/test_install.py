"""What installs a checkout's packages: its words while it works and when it fails. Nothing is installed."""

import subprocess
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


class Installers:
    """uv on the PATH or in the environment, where there is one, and pip with its configuration; what they are asked."""

    def __init__(self, monkeypatch, *, own: str | None = None, on_path: str | None = None, configured: str = ""):
        self.own, self.on_path, self.configured = own, on_path, configured
        self.uv_in_index, self.uv_ends_with = True, 0
        self.commands: list[list[str]] = []
        monkeypatch.setattr(install.shutil, "which", lambda name, path=None: self.on_path if path is None else self.own)
        monkeypatch.setattr(install.subprocess, "run", self.asked_aside)
        monkeypatch.setattr(install, "run", self.asked)

    def asked_aside(self, command, **_):
        return subprocess.CompletedProcess(command, 0, stdout=self.configured)

    def asked(self, command, environment):
        if command[-1] == "uv":
            self.own = "env/bin/uv" if self.uv_in_index else None
            return 0 if self.own else 1
        self.commands.append(command)
        (environment / install.LOG).write_text("what the installer said")
        return self.uv_ends_with if command[0].endswith("uv") else 0

    def install(self, environment, *options):
        """The commands, by what they begin with: the path of uv, or pip."""
        assert install.main([*options, str(environment), "--editable", ".[dev]"]) == 0
        assert all(
            command[-4:] == ["--constraint", "constraints.txt", "--editable", ".[dev]"] for command in self.commands
        )
        return [command[0] if command[1] == "pip" else command[2] for command in self.commands]


def test_install_by_the_environments_uv_before_that_of_the_path(environment, monkeypatch):
    assert Installers(monkeypatch, own="env/bin/uv", on_path="/bin/uv").install(environment) == ["env/bin/uv"]
    assert Installers(monkeypatch, on_path="/bin/uv").install(environment) == ["/bin/uv"]


def test_install_by_a_uv_that_pip_brings_or_by_pip_where_there_is_none_for_this_machine(environment, monkeypatch):
    assert Installers(monkeypatch).install(environment) == ["env/bin/uv"]
    without = Installers(monkeypatch)
    without.uv_in_index = False
    assert without.install(environment) == ["pip"]


@pytest.mark.parametrize("configured", ["global.index-url='https://mirror'", ":env:.index-url='https://mirror'"])
def test_install_by_pip_where_its_configuration_names_an_index_or_it_is_asked_for(environment, monkeypatch, configured):
    assert Installers(monkeypatch, own="env/bin/uv", configured=configured).install(environment) == ["pip"]
    assert Installers(monkeypatch, own="env/bin/uv").install(environment, "--pip") == ["pip"]
    more = "global.extra-index-url='https://more'\nglobal.cert='x'"
    assert Installers(monkeypatch, own="env/bin/uv", configured=more).install(environment) == ["env/bin/uv"]


def test_install_once_more_by_pip_where_uv_fails_and_keeps_what_uv_said(environment, monkeypatch, capsys):
    installers = Installers(monkeypatch, own="env/bin/uv")
    installers.uv_ends_with = 2
    assert installers.install(environment) == ["env/bin/uv", "pip"]
    assert f"uv could not install it ({environment / install.UV_LOG})" in capsys.readouterr().out
    assert (environment / install.UV_LOG).read_text() == "what the installer said"


def test_last_step_is_one_short_line():
    assert install.last_step("Collecting a\nWARNING: x\n") == "Collecting a"
    assert len(install.last_step("Installing collected packages: " + "name, " * 100)) == install.SHOWN_CHARACTERS
    assert install.last_step("Prepared 2 packages in 4s\nInstalled 2 packages in 1s\n").endswith("1s; compiling them")
    assert install.last_step("") == ""
