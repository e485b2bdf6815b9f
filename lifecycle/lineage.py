"""Which declarations and inputs make up each step's identity.

Owner, description and compute belong to no step: they change nothing that is computed. The budget belongs to
promotion alone, whose cost control judges it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from trainworthy.lifecycle.contract.read import load_contract
from trainworthy.lifecycle.errors import RecordError
from trainworthy.lifecycle.identity import step_identity
from trainworthy.lifecycle.protocol.records import PARENTS, DatasetVersion, Record, StageReport, Step
from trainworthy.lifecycle.run_config import config_text
from trainworthy.lifecycle.spec.task import TaskSpec
from trainworthy.lifecycle.spec.training import MonitorsSpec
from trainworthy.lifecycle.spec.use_case import DatasetSpec
from trainworthy.lifecycle.storage.records import RecordStore
from trainworthy.lifecycle.training_script import trainer_packages
from trainworthy.lifecycle.use_case import UseCase

_LEFT_OUT = ("ema", "early_stopping", "activation_checkpointing", "focal_gamma", "oversampling", "compile")


def declared_sections(use_case: UseCase, step: Step) -> dict[str, Any]:
    """The sections of use_case.yaml that decide the step."""
    spec = use_case.spec.model_dump(mode="json")
    # How often a checkpoint is written changes no result, nor does what is recorded.
    no_result = ("checkpoint_every_steps", "profile")
    training = {name: value for name, value in spec["training"].items() if name not in no_result}
    # What is left out is no part: a setting that came later changes no identity of those who do not use it.
    training = {name: value for name, value in training.items() if value or name not in _LEFT_OUT}
    # Whether a hang ends the process changes no result. Alarms that are only told change none either.
    monitors = {name: value for name, value in training.pop("monitors").items() if name != "hang"}
    if monitors != MonitorsSpec().model_dump(mode="json", exclude={"hang"}):
        training["monitors"] = monitors
    training |= {"schedule": {name: value for name, value in training["schedule"].items() if value is not None}}
    # Whether weights are declared is the snapshot's question; saying `none` trains as saying nothing does.
    declared, training["class_weights"] = use_case.spec.training.imbalance != "", training["class_weights"] or "none"
    # How many trainings a stage has decides that stage alone: the others are the same without them.
    seeds = {f"{stage}_seeds": training.pop(f"{stage}_seeds") for stage in ("pilot", "full")}
    processes, sharding = use_case.spec.compute.processes, use_case.spec.compute.sharding
    fewest = use_case.spec.compute.fewest_processes
    fitted = {"hyperparameters": spec["hyperparameters"], "training": training, "stages": spec["stages"]}
    # The contract says what the label is. Kinds came later than the first verdicts, and changed none of a binary label.
    if use_case.spec.task != TaskSpec(kind="binary"):
        fitted["task"] = {name: value for name, value in spec["task"].items() if value is not None}
    if use_case.spec.trainer is not None:
        fitted["trainer"] = {"script": use_case.spec.trainer, "packages": trainer_packages()}
    # Said or not, 200 rows are 200 rows: these keys came later than the first verdicts.
    later = (
        ("slice_rows", 200), ("weight", None), ("metrics", {}), ("suite", None), ("version", 1), ("looks", None),
        ("decision", None), ("fairness", None), ("behaviour", []), ("at_most_champion", None),
    )  # fmt: skip
    benchmark = {name: value for name, value in spec["benchmark"].items() if (name, value) not in later}
    promotion = {name: value for name, value in spec["promotion"].items() if (name, value) != ("earlier_champions", 2)}
    sections: dict[Step, dict[str, Any]] = {
        "dataset": {"dataset": spec["dataset"]},
        "snapshot": {
            **{name: spec[name] for name in ("prediction_time", "target", "split")},
            "class_weights_declared": declared,
        },
        # What is forecast and judged of several processes differs; what they train does not, but for the last digits.
        "preflight": {
            **fitted,
            **seeds,
            "preflight": spec["preflight"],
            **({"processes": processes} if processes > 1 else {}),
            **({"fewest_processes": fewest} if fewest != processes else {}),
            **({"sharding": sharding} if sharding != "none" else {}),
        },
        "smoke": fitted,
        "pilot": {**fitted, "seeds": seeds["pilot_seeds"]},
        "full": {**fitted, "seeds": seeds["full_seeds"]},
        "evaluation": {"benchmark": benchmark, "seed": spec["training"]["seed"]},
        "promotion": {"benchmark": benchmark, "promotion": promotion, "budget": spec["budget"]},
    }
    return sections[step]


def identity_of(
    use_case: UseCase, step: Step, code_sha256: str, upstream: Mapping[Step, Record], read: Mapping[str, str]
) -> str:
    """Identity of a step: declared sections, upstream identities, and what it reads beside them.

    The snapshot's has the hash of the contract, that of contract.yaml unless `read` names it.
    """
    inputs = {str(name): record.identity for name, record in upstream.items()} | dict(read)
    if step == "snapshot" and "contract" not in inputs:
        # What it accepts, not its words: keys of other tables and the pinned reference are in its rules.
        inputs["contract"] = load_contract(use_case.contract_path).sha256
    if step == "evaluation":
        inputs["artifact"] = cast(StageReport, upstream["full"]).artifact_sha256 or ""
    return step_identity(step, sections=declared_sections(use_case, step), inputs=inputs, code_sha256=code_sha256)


def training_run_id(use_case: UseCase, code_sha256: str, snapshot: Record) -> str:
    """Id of the training: snapshot, values, the stages' code and seed. Made at smoke and carried on by the stages."""
    sections = declared_sections(use_case, "smoke")
    inputs = {"snapshot": snapshot.identity}
    return step_identity("training_run", sections=sections, inputs=inputs, code_sha256=code_sha256)[:16]


def refuse_outdated(
    use_case: UseCase, code_sha256: Callable[[Step], str], upstream: Mapping[Step, Record], store: RecordStore
) -> None:
    """Raises RecordError if an upstream record no longer matches what is declared or the code of its step.

    Only for a step that is materialized alone; inside a run the upstream was made moments ago.
    """
    for step, record in upstream.items():
        parents: dict[Step, Record] = {}
        if isinstance(record, DatasetVersion):
            _refuse_other_version(use_case, record)
        else:
            parents = {name: store.get(use_case.name, name, record.parents[name]) for name in PARENTS[step]}
            if identity_of(use_case, step, code_sha256(step), parents, {}) != record.identity:
                raise RecordError(
                    f"the newest {step} is stale: the use case's values, contract or code changed since it was made",
                    fix=f"materialize {use_case.name}/{step} again, or run the whole job",
                )
        # A change further up (another dataset version) leaves the nearer steps' own sections as they were.
        refuse_outdated(use_case, code_sha256, parents, store)


def _refuse_other_version(use_case: UseCase, record: DatasetVersion) -> None:
    """Raises RecordError unless the record is of the dataset version that this run works with."""
    actual, declared = DatasetSpec(name=record.name, version=record.revision), use_case.spec.dataset
    if actual == declared:
        return
    fix = f"materialize {use_case.name}/dataset again, or run the whole job"
    if actual.name == declared.name:
        fix += f"; to work with {actual} here too, give the run config {config_text(dataset_version=actual.version)}"
    raise RecordError(f"the newest dataset is stale: it is {actual}, and this run works with {declared}", fix=fix)
