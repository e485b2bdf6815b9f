"""docs/errors.md: an entry for each error class, its example as the code says it, no message that does not exist."""

import ast
import functools
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from kubernetes.client import ApiClient, BatchV1Api
from kubernetes.client.exceptions import ApiException
from sqlalchemy.engine import URL
from verdict_logs import log_in, logged

from trainworthy.lifecycle import failure
from trainworthy.lifecycle.cost.prices import load_prices
from trainworthy.lifecycle.engine.training.loop import train_step
from trainworthy.lifecycle.engine.training.state import Recipe, TrainData, TrainState
from trainworthy.lifecycle.errors import TrainworthyError
from trainworthy.lifecycle.failure import MemorySeen
from trainworthy.lifecycle.files.versions import published_version
from trainworthy.lifecycle.folder_lock import Lease, locked
from trainworthy.lifecycle.incidents.incident import read_incident, write_manifest
from trainworthy.lifecycle.promotion import log
from trainworthy.lifecycle.promotion.champion import agreed_champion
from trainworthy.lifecycle.storage.checkpoints import verify_checkpoint
from trainworthy.lifecycle.storage.records import StateRecords
from trainworthy.lifecycle.storage.shared.folder import FolderState
from trainworthy.lifecycle.storage.upstream import upstream_records
from trainworthy.lifecycle.tasks.probabilities import require_both_classes
from trainworthy.lifecycle.use_case import load_use_case
from trainworthy.pipeline.backup.manifest import read_manifest
from trainworthy.resources import dagster_private
from trainworthy.resources.attempt_table import AttemptTable
from trainworthy.resources.backends.backend import Ended
from trainworthy.resources.backends.kubernetes.api import Api
from trainworthy.resources.notifier import webhook
from trainworthy.resources.process_group import run_group
from trainworthy.resources.settings import read_settings
from trainworthy.resources.worker_process import worker_error as error_of_worker

ROOT = Path(__file__).parents[2]
TOY = ROOT / "tests" / "toy"
PACKAGES = ("lifecycle", "expectations", "resources", "assets", "pipeline", "use_cases")
DOC = (ROOT / "docs" / "errors.md").read_text()
# Name and text of each section.
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", DOC, re.MULTILINE | re.DOTALL))
ENTRIES = {name: text for name, text in SECTIONS.items() if name.endswith("Error")}


def sources() -> dict[Path, str]:
    return {path: path.read_text() for name in PACKAGES for path in (ROOT / name).rglob("*.py")}


def error_classes() -> list[str]:
    """Every class of the code that descends from TrainworthyError by name."""
    bases = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for text in sources().values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    }
    found, size = {"TrainworthyError"}, 0
    while size != len(found):
        size = len(found)
        found |= {name for name, of in bases.items() if of & found}
    return sorted(found - {"TrainworthyError"})


def test_errors_doc_has_one_entry_a_class_and_no_entry_without_one():
    headings = [name for name in re.findall(r"^## (.+)$", DOC, re.MULTILINE) if name.endswith("Error")]
    assert sorted(headings) == error_classes()
    assert "CheckpointError" in headings


def use_case_error(folder: Path) -> None:
    shutil.copytree(TOY / "use_cases" / "toy", folder / "toy")
    path = folder / "toy" / "use_case.yaml"
    path.write_text(path.read_text().replace("owner:", "ownr:"))
    load_use_case(folder / "toy")


def settings_error(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWORTHY_USE_CASES", "/nowhere/use_cases")
        read_settings()


def dagster_private_error(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("importlib.metadata.version", lambda name: "1.99.0")
        patch.setitem(dagster_private.PLACES, "DagsterSqliteStorage", "dagster._core.moved")
        dagster_private.__getattr__("DagsterSqliteStorage")


def checkpoint_error(folder: Path) -> None:
    path = Path("training/toy/0123456789ab/smoke/checkpoints/step-00000025")
    path.mkdir(parents=True)
    (path / "state.pt").write_bytes(b"changed")
    (path / "manifest.json").write_text('{"identity": "0", "step": 25, "sha256": "0"}')
    verify_checkpoint(path)


def incident_error(folder: Path) -> None:
    (folder / "incident.json").write_text("{}")
    write_manifest(folder)
    (folder / "incident.json").write_text('{"step": 3}')
    read_incident(folder)


def worker_error(folder: Path) -> None:
    kill = f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})"
    killed = functools.partial(subprocess.Popen, [sys.executable, "-c", kill], start_new_session=True)
    raise error_of_worker(folder, Ended(run_group(killed, 1.0), MemorySeen()))


def lease_lost_error(folder: Path) -> None:
    with locked(folder, print):
        lease = Lease(folder)
        (folder / ".lock").write_text("process 7 on other since 1")
        lease.check()


def champion_error(folder: Path) -> None:
    logged(
        log_in(folder), action="promote", model_version="1", verdict_sha256="1" * 64, previous_verdict_sha256=None
    )  # fmt: skip
    agreed_champion(log.read(log_in(folder)), "toy", None)


def state_error(folder: Path) -> None:
    FolderState(Path("/nowhere")).check()


def notifier_error(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWORTHY_WEBHOOK", "http://example.org/hook")
        webhook()


def attempt_error(folder: Path) -> None:
    Path("attempts.db").mkdir()
    AttemptTable(URL.create("sqlite", database="attempts.db")).rows()


def backend_error(folder: Path) -> None:
    def forbid(*given: object, **how: object) -> None:
        refusal = ApiException(status=403)
        refusal.body = '{"message": "jobs.batch is forbidden: User \\"ci\\" cannot create resource \\"jobs\\""}'
        raise refusal

    api = Api(ApiClient(), "training")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchV1Api, "create_namespaced_job", forbid)
        api.create_job({})


def training_error(folder: Path) -> None:
    model = torch.nn.Module()
    model.words = torch.nn.Embedding(9, 1, sparse=True)
    model.forward = lambda inputs: model.words(inputs["words"]).squeeze(-1)
    words = torch.arange(9)
    recipe = Recipe(loss_fn=lambda outputs, targets: outputs, learning_rate=lambda step: 1.0, clip_norm=1.0)
    train_step(TrainState(model, ()), TrainData({"words": words}, words), words, recipe)


PROVOKED: dict[str, Callable[[Path], object]] = {
    "UseCaseError": use_case_error,
    "SettingsError": settings_error,
    "DagsterPrivateError": dagster_private_error,
    "DatasetError": lambda folder: published_version(TOY, "toy_rows", "v7"),
    "RecordError": lambda folder: upstream_records(StateRecords(FolderState(folder)), "toy", "smoke", "run"),
    "StateError": state_error,
    "CheckpointError": checkpoint_error,
    "IncidentError": incident_error,
    "WorkerError": worker_error,
    "TrainingError": training_error,
    "LeaseLostError": lease_lost_error,
    "EvaluationError": lambda folder: require_both_classes(np.ones(3)),
    "PriceError": lambda folder: load_prices(ROOT / "prices.yaml").sku("local-3cpu"),
    "ChampionError": champion_error,
    "NotifierError": notifier_error,
    "AttemptError": attempt_error,
    "BackupError": lambda folder: read_manifest(Path("backup")),
    "BackendError": backend_error,
}


@pytest.mark.parametrize("name", ENTRIES)
def test_errors_doc_example_is_what_the_code_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TrainworthyError) as caught:
        PROVOKED[name](tmp_path)
    assert type(caught.value).__name__ == name
    (example,) = re.findall(r"^```text\n(.*?)\n```$", ENTRIES[name], re.MULTILINE | re.DOTALL)
    assert str(caught.value) == example
    assert caught.value.more == f"docs/errors.md#{name.lower()}"


def test_errors_doc_names_no_message_that_the_code_does_not_have():
    code = "\n".join(sources().values())
    cells = re.findall(r"^\| (`.*?) \|", "".join(ENTRIES.values()), re.MULTILINE)
    named = [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]
    assert len(named) > 40
    for message in named:
        for part in message.split("…"):
            assert part.strip() in code, message


def test_errors_doc_has_every_exit_code_of_the_worker():
    codes = re.findall(r"^\| (\d+) \|", ENTRIES["WorkerError"], re.MULTILINE)
    known = sorted(value for name, value in vars(failure).items() if name.startswith("EXIT_"))
    assert len(known) >= 8
    assert codes == [str(code) for code in (0, *known)]
