"""kubernetes.yaml: the cluster that workers run on, and what each SKU of prices.yaml asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, StringConstraints, ValidationError, field_validator, model_validator

from trainworthy.lifecycle.errors import Problem, SettingsError, did_you_mean
from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.spec_problems import spec_problems
from trainworthy.lifecycle.unique_keys import yaml_mistake

FILE, HOW_TO = "kubernetes.yaml", "docs/how-to/kubernetes.md"
# RFC 1123, as the API asks of most names: a label, and labels with dots between them.
Label = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
Subdomain = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", max_length=253)
]
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[int, Field(gt=0, le=10**8)]


class Volume(Frozen):
    """The claim (ReadWriteMany) with project and state folder, mounted in pods where this machine has it.

    Without a claim pods have an empty disk there, and files come and go by the bucket of TRAINWORTHY_STATE.
    """

    claim: Subdomain | None = None
    mount: str

    @field_validator("mount")
    @classmethod
    def _is_a_whole_path(cls, mount: str) -> str:
        path = Path(mount)
        if not path.is_absolute() or ".." in path.parts or ":" in mount or len(path.parts) == 1:
            raise ValueError("a volume is mounted at an absolute path below /, without .. and : in it")
        return str(path)


class Toleration(Frozen):
    """A taint of nodes that the pod may be put on in spite of it, by the API's names."""

    key: Text | None = None
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = Field(default=None, ge=0)


class Machine(Frozen):
    """What a pod of a SKU has, and which nodes it may be on. `gpus` None is what prices.yaml says of the SKU."""

    cpu: Amount
    memory_gb: Amount
    gpus: int | None = Field(default=None, ge=0)
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


class Cluster(Frozen):
    """Where and how pods run. A worker may wait `queue_timeout_seconds` until all its containers run, and then
    `run_timeout_seconds` for its end.

    `user` and `group` are the numbers of whom the files on the volume belong to. With a `queue` (a Kueue LocalQueue)
    jobs wait for their admission, in the order of `queue_priority` (a WorkloadPriorityClass, of the queue alone) or
    else of `priority_class` (a PriorityClass, of nodes as well). `context` is one of the kubeconfig, None its current
    one. `secret` is a Secret whose keys are variables of the worker, such as those that open a bucket.
    """

    namespace: Label
    image: Text
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    volume: Volume
    user: int = Field(gt=0)
    group: int = Field(gt=0)
    service_account: Subdomain = "default"
    secret: Subdomain | None = None
    context: Text | None = None
    queue: Subdomain | None = None
    queue_priority: Subdomain | None = None
    priority_class: Subdomain | None = None
    queue_timeout_seconds: Seconds = 86_400
    run_timeout_seconds: Seconds = 604_800
    gpu_resource: Text = "nvidia.com/gpu"
    spot_tolerations: tuple[Toleration, ...] = ()
    spot_node_selector: dict[str, str] = Field(default_factory=dict)
    skus: dict[str, Machine] = Field(min_length=1)

    @model_validator(mode="after")
    def _priority_is_of_a_queue(self) -> Cluster:
        if self.queue_priority is not None and self.queue is None:
            raise ValueError("queue_priority is a priority in a queue: name the queue, or take priority_class")
        return self

    def machine(self, sku: str) -> Machine:
        """What a pod of the SKU has. Raises SettingsError: resources are never guessed."""
        if sku not in self.skus:
            fix = f"add it below skus of {FILE}, or correct compute.sku; {did_you_mean(sku, self.skus)}"
            raise SettingsError(f"{FILE} does not say what a pod of the SKU has", value=sku, fix=fix)
        return self.skus[sku]


def load_cluster(path: Path) -> Cluster:
    """Read kubernetes.yaml. Raises SettingsError if it is missing, or with every problem in it."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        values = yaml.safe_load(text)
    except FileNotFoundError:
        fix = f"write it ({HOW_TO} has one to begin with), or set compute.launcher to local"
        raise SettingsError(
            "compute.launcher is kubernetes, and kubernetes.yaml is missing", value=str(path), fix=fix
        ) from None
    except OSError as error:
        fix = f"correct its form; {HOW_TO} has one to begin with"
        raise SettingsError(f"{FILE} cannot be read: {error}", value=str(path), fix=fix) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mistake = yaml_mistake(error, text)
        fix = f"{mistake.fix}; {HOW_TO} has one to begin with"
        problem = f"{mistake.where(FILE)} cannot be read: {mistake.problem}"
        raise SettingsError(problem, value=str(path), fix=fix) from None
    problems = cluster_problems(values)
    if problems:
        noun = "problem" if len(problems) == 1 else "problems"
        lines = "\n".join(f"  - {problem}" for problem in problems)
        fix = "correct the lines above, then run again"
        raise SettingsError(f"kubernetes.yaml has {len(problems)} {noun}:\n{lines}", value=str(path), fix=fix)
    return Cluster.model_validate(values)


def cluster_problems(values: Any) -> list[Problem]:
    """All that is wrong with what a kubernetes.yaml holds."""
    if not isinstance(values, Mapping):
        return [Problem(FILE, "it holds no mapping of keys", f"write one; {HOW_TO} explains each key")]
    try:
        Cluster.model_validate(values)
    except ValidationError as error:
        return spec_problems(error.errors(), Cluster, FILE, HOW_TO)
    return []
