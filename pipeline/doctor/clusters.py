"""Clusters that workers run on: whether each that is named answers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from trainworthy.lifecycle.errors import TrainworthyError
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.pipeline.doctor.machine import installed
from trainworthy.pipeline.doctor.project import loadable
from trainworthy.resources.settings import RAY_ADDRESS, Settings

# A head that is up answers in a small part of one.
ANSWER_SECONDS = 5.0


def ray(settings: Settings) -> Iterator[CheckResult]:
    """Ray's head answers, in the version that is installed here; asked where a use case or a variable names it."""
    uses = [use_case for use_case in loadable(settings) if use_case.spec.compute.launcher == "ray"]
    if not uses and not os.environ.get(RAY_ADDRESS):
        evidence = f"no use case has compute.launcher: ray, and {RAY_ADDRESS} names no cluster"
        yield CheckResult(name="ray", status="not_applicable", evidence=evidence)
        return
    named = f"; by it train {', '.join(use_case.name for use_case in uses)}" if uses else ""
    try:
        yield _answered(sorted({use_case.spec.compute.sku for use_case in uses}), named)
    except TrainworthyError as error:
        value = "" if error.value is None else f" (value: {error.value!r})"
        yield CheckResult(
            name="ray", status="fail", severity="error" if uses else "warning",
            evidence=f"{error.problem}{value}{named}", fix=f"{error.fix}; no worker of it starts until then",
        )  # fmt: skip


def _answered(skus: Sequence[str], named: str) -> CheckResult:
    """What Ray says of itself. Raises SettingsError for what is set wrong, BackendError if it does not answer."""
    # Here, since nothing of it is needed where nobody uses Ray.
    from trainworthy.resources.backends.ray_client import RayClient, ray_address
    from trainworthy.resources.backends.ray_table import holding

    address = ray_address()
    client = RayClient(address, ANSWER_SECONDS)
    version, table = client.version(), client.nodes()
    of_skus = "".join(f", {holding(table, {sku: 1})} with {sku!r}" for sku in skus)
    here = installed("ray")
    return CheckResult(
        name="ray", status="pass" if version == here else "fail", severity="warning",
        evidence=f"{address} answers: Ray {version} (here {here}), nodes alive: {holding(table, {})}{of_skus}{named}",
        fix=f"pip install 'ray[default]=={version}', the version of the cluster",
    )  # fmt: skip
