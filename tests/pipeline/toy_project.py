"""The synthetic project as a user has it: its own git repository, its own state folder, the real commands."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import dagster as dg
import psutil
import pytest

from trainworthy.lifecycle.protocol.records import Record, Step, Verdict
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.resources.mlflow import Tracking

ROOT = Path(__file__).parents[2]
# Kept for the life of the tests' process, then removed.
_COPY = tempfile.TemporaryDirectory(prefix="trainworthy-")
FIRST = {"first_model": True}


@functools.cache
def product() -> Path:
    """Trainworthy's code as it is now, in a clean git repository: a verdict asks that its code is committed."""
    root = Path(_COPY.name).resolve() / "trainworthy"
    for name in ("lifecycle", "expectations", "resources", "assets", "pipeline"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(
        ROOT / "src", root / "src", symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    for path in (ROOT / ".gitignore", ROOT / "pyproject.toml", *ROOT.glob("*.yaml")):
        shutil.copy(path, root)
    committed(root)
    return root


@dataclass(frozen=True)
class Done:
    """A command that ended, and the Dagster run that it made (empty if it made none)."""

    code: int
    out: str
    run_id: str


@dataclass(frozen=True)
class Toy:
    """A copy of tests/toy at `root`, committed, and the state folder `var`."""

    root: Path
    var: Path

    @property
    def folder(self) -> Path:
        return self.root / "use_cases" / "toy"

    @property
    def records(self) -> StateRecords:
        return StateRecords(FolderState(self.var))

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DAGSTER_", "MLFLOW_", "TRAINWORTHY_"))}
        # The copy of the product begins without bytecode: the first process writes it for those after it.
        return kept | self.settings() | {"PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": ""}

    def settings(self) -> dict[str, str]:
        """What a run in this process is given: no variable that would keep its workers from being forked."""
        return {
            "TRAINWORTHY_VAR": str(self.var),
            "TRAINWORTHY_USE_CASES": str(self.root / "use_cases"),
            "PYTHONPATH": str(product() / "src"),
            "DAGSTER_DISABLE_TELEMETRY": "1",
        }

    def command(
        self, job: str = "train_toy", intent: Mapping[str, Any] | None = None, python: Sequence[str] = ()
    ) -> list[str]:
        """`dagster job execute` with this intent in a config file of its own."""
        config = {"resources": {"intent": {"config": dict(intent or {})}}, "loggers": {"console": {}}}
        if job.startswith("preflight"):
            config.pop("resources")
        path = self.root.parent / f"config-{abs(hash(str(config)))}.json"
        path.write_text(json.dumps(config))
        base = [sys.executable, *python, "-m", "dagster", "job", "execute", "-m", "trainworthy.pipeline.definitions"]
        return [*base, "-j", job, "-c", str(path)]

    def start(self, command: Sequence[str], **environment: str) -> subprocess.Popen[str]:
        """Start a command in the project's root, as a shell would: a group of its own."""
        return subprocess.Popen(
            command,
            cwd=product(),
            env=self.environment() | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def execute(
        self, job: str = "train_toy", intent: Mapping[str, Any] | None = None, python: Sequence[str] = ()
    ) -> Done:
        """Run a job to its end by the bare command. `intent` is the config of the resource of that name."""
        return self.finish(self.start(self.command(job, intent, python)))

    def run(self, job: str = "train_toy", intent: Mapping[str, Any] | None = None, **environment: str) -> Done:
        """The same run in this process, its workers in theirs: of the 10 CPU seconds of a run that reuses every step,
        6 go into importing Dagster, MLflow and matplotlib.

        For tests of what a run does. What the command is (its imports, its end, its signals) is `execute`'s.
        """
        config = {"resources": {"intent": {"config": dict(intent)}}} if intent else {}
        return self._here(lambda defs: defs.resolve_job_def(job), {"run_config": config}, environment)

    def materialize(self, step: Step, intent: Mapping[str, Any] | None = None) -> Done:
        """Materialize one step in this process, as `dagster asset materialize --select toy/STEP` does."""
        selected: dict[str, Any] = {"asset_selection": [dg.AssetKey(["toy", step])]}
        if intent:
            selected["run_config"] = {"resources": {"intent": {"config": dict(intent)}}}
        return self._here(lambda defs: defs.resolve_implicit_global_asset_job_def(), selected, {})

    def _here(
        self,
        job: Callable[[dg.Definitions], dg.JobDefinition],
        how: Mapping[str, Any],
        environment: Mapping[str, str],
    ) -> Done:
        """Execute in this process a job of the definitions that the bare command would load."""
        from trainworthy.pipeline.build import build_defs, load_all

        run_id, success = "", False
        with (
            self._settings(**environment),
            dg.DagsterInstance.from_config(str(product())) as instance,
            written(self.root.parent) as output,
        ):
            try:
                use_cases, broken = load_all()
                definition = job(build_defs(use_cases, broken=broken))
                result = definition.execute_in_process(instance=instance, raise_on_error=False, **how)
                run_id, success = result.run_id, result.success
            except click.ClickException as error:
                error.show()
        return Done(int(not success), output.read_text(), run_id)

    def call(self, *command: str, **environment: str) -> Done:
        """Run any command, for example `-m trainworthy.pipeline.cli datasets`, with this Python."""
        return self.finish(self.start([sys.executable, *command], **environment))

    def finish(self, process: subprocess.Popen[str]) -> Done:
        out, _ = process.communicate(timeout=280)
        # Kept beside the project for whoever looks at a failure.
        (self.root.parent / f"output-{process.pid}.txt").write_text(out)
        named = self.run_ids(f"{process.pid}")
        return Done(process.returncode, out, named[0] if named else "")

    def run_ids(self, pid: str) -> list[str]:
        """Dagster runs that the process of that pid executed."""
        if not (self.var / "dagster" / "history").is_dir():
            return []
        with self.instance() as instance:
            runs = instance.get_runs(limit=10)
            return [run.run_id for run in runs if f"pid: {pid})" in str(instance.all_logs(run.run_id))]

    def edit(self, name: str, old: str, new: str, *, commit: bool = True) -> None:
        """Replace text that occurs once in a file of the use case, and commit it."""
        path = self.folder / name
        text = path.read_text()
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {name}"
        path.write_text(text.replace(old, new))
        if commit:
            self.commit()

    def commit(self) -> None:
        git(self.root, "add", "--all")
        git(self.root, "commit", "--quiet", "--message", "change")

    @contextlib.contextmanager
    def instance(self) -> Iterator[dg.DagsterInstance]:
        """The Dagster instance of dagster.yaml on this state folder, as the bare commands open it."""
        with self._settings(), dg.DagsterInstance.from_config(str(product())) as instance:
            yield instance

    @contextlib.contextmanager
    def tracking(self) -> Iterator[Tracking]:
        """MLflow on this state folder."""
        with self._settings():
            yield Tracking()

    @contextlib.contextmanager
    def _settings(self, **environment: str) -> Iterator[None]:
        """This process as the bare commands find it: their environment, their folder, and the copy's clean commit."""
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith(("DAGSTER_", "MLFLOW_", "TRAINWORTHY_"))]:
                patch.delenv(name)
            for name, value in (self.settings() | environment).items():
                patch.setenv(name, value)
            patch.chdir(product())
            patch.setattr("trainworthy.lifecycle.provenance.PRODUCT", product())
            yield

    def materialized(self, run_id: str) -> dict[str, dict[str, Any]]:
        """Metadata values of each materialization of a run, by step."""
        with self.instance() as instance:
            events = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
            found = [entry.get_dagster_event().step_materialization_data.materialization for entry in events]
        return {event.asset_key.path[-1]: values(event.metadata) for event in found}

    def observed(self, run_id: str) -> dict[str, dict[str, Any]]:
        """Metadata values of each observation of a run, by step."""
        with self.instance() as instance:
            events = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_OBSERVATION)
            found = [entry.get_dagster_event().asset_observation_data.asset_observation for entry in events]
        return {event.asset_key.path[-1]: values(event.metadata) for event in found}

    def tags(self, run_id: str) -> Mapping[str, str]:
        """Tags of a Dagster run."""
        with self.instance() as instance:
            run = instance.get_run_by_id(run_id)
            assert run is not None
            return run.tags

    def status(self, run_id: str) -> str:
        with self.instance() as instance:
            run = instance.get_run_by_id(run_id)
            assert run is not None
            return run.status.value

    def mlflow_run(self, run_id: str) -> Any:
        """The MLflow run of a Dagster run."""
        with self.tracking() as tracking:
            client = tracking.client
            experiment = client.get_experiment_by_name("toy")
            (found,) = client.search_runs([experiment.experiment_id], f"tags.`dagster/run_id` = '{run_id}'")
            return found

    def champion(self) -> str | None:
        """Version of the model with the alias `champion`."""
        with self.tracking() as tracking:
            found = tracking.champion("toy")
        return found.version if found else None

    def record(self, run_id: str, step: Step) -> Record:
        found = self.records.of_run("toy", step, run_id)
        assert found is not None, f"run {run_id} has no record of {step}"
        return found

    def verdict(self, run_id: str) -> Verdict:
        found = self.record(run_id, "promotion")
        assert isinstance(found, Verdict)
        return found

    def verdict_log(self) -> list[dict[str, Any]]:
        path = self.var / "verdicts" / "toy.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def copied(self, into: Path) -> Toy:
        """An equal project with an equal state folder elsewhere."""
        shutil.copytree(self.root, into / "project")
        if self.var.is_dir():
            shutil.copytree(self.var, into / "state", ignore=shutil.ignore_patterns("work"))
        return Toy(into / "project", into / "state")

    def workers(self) -> list[psutil.Process]:
        """Processes that name this state folder in their command line: workers, and what a test planted in them."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and any(str(self.var) in a for a in process.cmdline()):
                    found.append(process)
        return found


@contextlib.contextmanager
def written(into: Path) -> Iterator[Path]:
    """A file of what this process and its children write meanwhile on stdout and stderr."""
    handle, name = tempfile.mkstemp(".txt", "output-", into)
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        with os.fdopen(handle, "w", buffering=1) as file:
            for number in kept:
                os.dup2(file.fileno(), number)
            with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
                yield Path(name)
    finally:
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)


def new_toy(into: Path) -> Toy:
    """tests/toy in a git repository of its own, and a state folder that does not exist yet."""
    root = into / "project"
    shutil.copytree(ROOT / "tests" / "toy", root, ignore=shutil.ignore_patterns("__pycache__", "toy_rows"))
    committed(root)
    return Toy(root, into / "state")


def committed(root: Path) -> None:
    """Make the folder a git repository with all of it in one commit."""
    git(root, "init", "--quiet")
    git(root, "config", "user.name", "Tests")
    git(root, "config", "user.email", "tests@example.org")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "start")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True)


def values(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as plain values."""
    return {name: value.value for name, value in metadata.items()}


def unbroken(reasons: str) -> str:
    """Reasons as they were before they were cut into lines for Dagster's page."""
    return reasons.replace("\\\n  ", " ")


def until(condition: Callable[[], Any], seconds: float = 60.0, why: str = "") -> Any:
    """Poll until the condition holds and give its value."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s {why}"
        time.sleep(0.05)
    return found


def plant(toy: Toy, folder: str, line: str, fault: str) -> None:
    """Put a fault behind a line of model.py, in effect only in the worker whose job lies in that folder."""
    toy.edit("model.py", "import torch\n", "import os\nimport subprocess\nimport sys\nimport time\n\nimport torch\n")
    toy.edit(
        "model.py", line, f'{line}    if any("/{folder}" in argument for argument in sys.argv):\n        {fault}\n'
    )
