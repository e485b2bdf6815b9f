"""Runs of the bare command belong to the code location that `make ui` shows."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from dagster._core.code_pointer import FileCodePointer, ModuleCodePointer

from trainworthy.assets.step_run import REPOSITORY_TAG, show_in_location

MODULE = "trainworthy.pipeline.definitions"
OF_MODULE = SimpleNamespace(repository_origin=SimpleNamespace(code_pointer=ModuleCodePointer(MODULE, "defs", "/here")))
OF_FILE = SimpleNamespace(repository_origin=SimpleNamespace(code_pointer=FileCodePointer("defs.py", "defs", "/here")))


def tags_of(origin: Any, remote: Any = None, **tags: str) -> dict[str, str]:
    """What is put on a run of that origin."""
    told: dict[str, str] = {}
    run = SimpleNamespace(run_id="1", remote_job_origin=remote, job_code_origin=origin, tags=tags)
    instance: Any = SimpleNamespace(add_run_tags=lambda run_id, more: told.update(more))
    context: Any = SimpleNamespace(run=run, instance=instance)
    show_in_location(context)
    return told


def test_location_of_a_bare_command_is_the_one_of_the_workspace():
    (location,) = yaml.safe_load((Path(__file__).parents[2] / "workspace.yaml").read_text())["load_from"]
    assert location["python_module"] == {"module_name": MODULE, "location_name": MODULE}
    assert tags_of(OF_MODULE) == {REPOSITORY_TAG: f"__repository__@{MODULE}"}


@pytest.mark.parametrize(
    ("origin", "remote", "tags"),
    [(OF_MODULE, object(), {}), (OF_MODULE, None, {REPOSITORY_TAG: "mine"}), (OF_FILE, None, {}), (None, None, {})],
    ids=["launched", "told on the command line", "a file's", "in this process"],
)
def test_location_that_dagster_knows_or_nobody_does_is_left(origin, remote, tags):
    assert tags_of(origin, remote, **tags) == {}
