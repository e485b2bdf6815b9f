"""A checkout that was moved with its state folder: nothing is trained again, and the registry is the one beside it."""

import shutil
import subprocess

from toy_project import FIRST, product

from trainworthy.lifecycle.protocol.records import STEPS


def test_moved_checkout_reuses_every_step_and_reads_its_own_registry(trained, tmp_path):
    toy = trained.toy.copied(tmp_path / "moved there")
    checkout = shutil.copytree(product(), tmp_path / "moved there" / "trainworthy", symlinks=True)
    environment = toy.environment() | {"PYTHONPATH": str(checkout / "src")}
    with subprocess.Popen(
        toy.command(intent=FIRST), cwd=checkout, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    ) as process:  # fmt: skip
        done = toy.finish(process)
    assert done.code == 0, done.out
    assert str(product()) not in done.out
    shown = toy.materialized(done.run_id)
    assert {step for step in STEPS if shown[step]["lineage/reused"] == "true"} == set(STEPS)
    with toy.tracking() as tracking:
        (model,) = tracking.versions("toy")
    assert model.source.startswith((tmp_path / "moved there").as_uri())
