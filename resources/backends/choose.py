"""Which backend runs a use case's workers."""

from __future__ import annotations

from importlib.util import find_spec

from trainworthy.lifecycle.errors import Problem, TrainworthyError
from trainworthy.lifecycle.spec.use_case import ComputeSpec
from trainworthy.resources.backends.backend import Backend
from trainworthy.resources.backends.local import LOCAL
from trainworthy.resources.settings import read_settings


def backend_of(compute: ComputeSpec | None) -> Backend:
    """What runs workers where `compute.launcher` says. Raises SettingsError or PriceError if that cannot be used."""
    if compute is None:
        return LOCAL
    match compute.launcher:
        case "kubernetes":
            from trainworthy.resources.backends.kubernetes.backend import kubernetes_backend

            return kubernetes_backend(compute, read_settings())
        case "ray":
            from trainworthy.resources.backends.ray import ray_backend

            return ray_backend(compute)
        case "torchrun" if compute.nodes > 1:
            from trainworthy.resources.backends.nodes import nodes_backend

            return nodes_backend(compute.nodes)
        case _:
            return LOCAL


def launcher_problems(compute: ComputeSpec) -> list[Problem]:
    """What keeps the launcher from being asked at all, as far as this machine knows: nothing is connected to."""
    where, problems = "use_case.yaml: compute.launcher", list[Problem]()
    if compute.elsewhere and find_spec(compute.launcher) is None:
        fix = f"pip install 'trainworthy[{compute.launcher}]'"
        problems.append(Problem(where, f"the package {compute.launcher} is not installed", fix))
    try:
        backend_of(compute)
    except TrainworthyError as error:
        problems.append(Problem(where, error.problem, error.fix, error.value))
    return problems
