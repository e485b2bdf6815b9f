"""Records of runs as the report reads them: judged, stopped at pilot, an experiment, and judged ones of other kinds."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from trainworthy.lifecycle.promotion.decide import decide
from trainworthy.lifecycle.promotion.evidence import CONTROLS, PromotionEvidence
from trainworthy.lifecycle.protocol.checks import CheckResult
from trainworthy.lifecycle.protocol.figures import Comparison, Estimate, Metric, ReliabilityBin
from trainworthy.lifecycle.protocol.records import (
    PARENTS,
    STEPS,
    Control,
    Cost,
    DatasetVersion,
    EvaluationReport,
    Forecast,
    PreflightReport,
    Provenance,
    Record,
    Snapshot,
    Split,
    StageReport,
    Step,
    StoredFile,
    Verdict,
)
from trainworthy.lifecycle.protocol.training_figures import CurvePoint, SeedResult
from trainworthy.lifecycle.spec.task import Target
from trainworthy.lifecycle.tasks import kind_of

RUN_ID = "6f1c2f0e-8f0a-4c7e-9a53-0f1f5b9f2f11"
WALL = {"dataset": 1.2, "snapshot": 6.4, "preflight": 9.8, "smoke": 3.1, "pilot": 7.7, "full": 61.0, "evaluation": 14.5}
USD_PER_SECOND = 0.0000267


def sha(text: str) -> str:
    """A stand-in for the hash of something."""
    return hashlib.sha256(text.encode()).hexdigest()


def judged(decision: str = "promote", **changes: Any) -> dict[Step, Record]:
    """All eight records; `changes` replace fields of the verdict."""
    records = experiment()
    records["evaluation"] = evaluation()
    records["promotion"] = verdict(decision).model_copy(update=changes)
    return records


def experiment() -> dict[Step, Record]:
    """A run that ended, as asked, after full."""
    return {
        "dataset": dataset(),
        "snapshot": snapshot(),
        "preflight": preflight(),
        "smoke": stage("smoke", 1_870, 24, 0.5794),
        "pilot": stage("pilot", 18_699, 74, 0.5231),
        "full": stage("full", 186_993, 732, 0.4987),
    }


def of_numbers() -> dict[Step, Record]:
    """A judged model of the arrival delay in minutes: errors in the label's unit, worse than ridge in nothing."""
    errors = {
        "candidate": (41.27, 23.9, 0.113, 1.2),
        "prior": (43.81, 25.7, -0.001, 1.9),
        "linear": (42.6, 24.9, 0.054, 1.7),
        "gradient_boosting": (41.31, 24.0, 0.111, 1.3),
    }
    reliability = tuple(
        ReliabilityBin(predicted=minutes, observed=1.1 * minutes - 2.0, rows=5_496)
        for minutes in (-12.4, -6.1, -2.8, 0.4, 3.9, 8.0, 13.2, 20.5, 31.8, 58.3)
    )
    splits: dict[str, str] = {
        name: f"median {-5 + place}, 80 % from -22 to {41 + place}" for place, name in enumerate(_SPLITS)
    }
    losses = {"smoke": 1_903.42, "pilot": 1_788.09, "full": 1_703.2}
    return _of_kind(
        "regression", ("rmse", "mae", "r2", "bias"), errors, 0.91, reliability, splits, losses, 1_919.3, "mae", 24.1
    )


def of_classes() -> dict[Step, Record]:
    """A judged model of three classes, whose primary metric is higher the better and is measured on no slice."""
    shares = {
        "candidate": (0.861, 0.583, 0.611, 0.594),
        "prior": (1.021, 0.447, 0.333, 0.206),
        "linear": (0.902, 0.561, 0.577, 0.561),
        "gradient_boosting": (0.866, 0.579, 0.609, 0.59),
    }
    reliability = tuple(ReliabilityBin(predicted=p, observed=p - 0.03, rows=5_496) for p in (0.36, 0.45, 0.58, 0.9))
    splits: dict[str, str] = dict.fromkeys(_SPLITS, "3 classes, rarest very_late 9.1%")
    losses = {"smoke": 0.962, "pilot": 0.897, "full": 0.871}
    return _of_kind(
        "multiclass", ("log_loss", "accuracy", "recall[very_late]", "macro_f1"), shares, 0.0043, reliability, splits,
        losses, 1.02, "accuracy", 0.581,
    )  # fmt: skip


_SPLITS: tuple[str, ...] = ("training", "validation", "calibration", "benchmark")


def _of_kind(
    task: str, metrics: tuple[str, ...], figures: dict[str, tuple[float, ...]], error: float,
    reliability: tuple[ReliabilityBin, ...], labels: dict[str, str], losses: dict[str, float], prior: float,
    score: str, scored: float,
) -> dict[Step, Record]:  # fmt: skip
    """The judged run with the figures of another kind; the last metric of classes, the first of numbers decides."""
    kind = kind_of(Target.model_validate({"kind": task, "classes": ("on_time", "late", "very_late")}))
    primary = metrics[0] if task == "regression" else metrics[-1]
    better = kind.metrics[primary].higher_is_better
    of = dict(zip(figures, (row[metrics.index(primary)] for row in figures.values()), strict=True))
    gains = tuple(
        Comparison(
            reference=name, metric=primary,
            gain=estimate((of["candidate"] - value) * (1 if better else -1), 0.004 * abs(of["candidate"])),
        )
        for name, value in list(of.items())[1:]
    )  # fmt: skip
    whole = [
        Metric(model=model, metric=name, estimate=estimate(value, error if abs(value) > 2 else 0.004), rows=54_961)
        for model, row in figures.items()
        for name, value in zip(metrics, row, strict=True)
    ]
    sliced = metrics[0]
    slices = [
        Metric(model="candidate", metric=sliced, estimate=estimate(of_all * by, error), rows=3_000 + place, slice=name)
        for of_all in (figures["candidate"][metrics.index(sliced)],)
        for place, (name, by) in enumerate({"carrier=UA": 0.9, "carrier=B6": 1.01, "carrier=EV": 1.2}.items())
    ]
    records = judged()
    report, split = records["evaluation"], records["snapshot"]
    assert isinstance(report, EvaluationReport)
    assert isinstance(split, Snapshot)
    changes: dict[str, dict[str, Any]] = {
        "evaluation": {
            "primary": primary, "metrics": (*whole, *slices), "comparisons": gains, "reliability": reliability,
        },
        "snapshot": {
            "splits": {
                name: one.model_copy(update={"positives": None, "labels": labels[name]})
                for name, one in split.splits.items()
            },
        },
    }  # fmt: skip
    for name, loss in losses.items():
        record = records[name]  # pyright: ignore[reportArgumentType]
        assert isinstance(record, StageReport)
        seeds = range(3 if name == "pilot" else 0)
        changes[name] = {
            "metrics": {"val_loss": loss, f"val_{score}": scored, "val_loss_of_prior": prior},
            "curve": tuple(
                point.model_copy(update={"loss": point.loss * loss, "standard_error": point.standard_error * loss})
                for point in record.curve
            ),
            "trained": tuple(
                SeedResult(
                    seed=seed, val_loss=loss * (1 + seed / 200), val_score=scored, score=score, resumed_from_step=0
                )
                for seed in seeds
            ),
        }  # fmt: skip
    evidence = PromotionEvidence(
        words=kind.words, metric=primary, margin=0.002 * abs(of["candidate"]), purpose="improve", first_model=True,
        champion=None, baselines=gains, champion_comparison=None, guardrails=(),
        controls=tuple(Control(name=name, status="pass", reason="good.") for name in CONTROLS),
    )  # fmt: skip
    found = decide(evidence)
    changes["promotion"] = {
        "decision": found.decision, "reasons": found.reasons, "headline": found.headline,
        "held_back_by": found.held_back_by, "comparisons": (),
    }  # fmt: skip
    return {step: record.model_copy(update={"task": task, **changes.get(step, {})}) for step, record in records.items()}


def stopped_at_pilot() -> dict[Step, Record]:
    """A run whose pilot did not learn."""
    records = experiment()
    del records["full"]
    failed = CheckResult(
        name="learned_something",
        status="fail",
        observed=0.0031,
        threshold=0.02,
        evidence="permuting predictions within their day raises the validation loss by 0.0031 (1.1 SE)",
        fix="check that labels and rows belong together, then the learning rate; replay the stage with its seed",
    )
    pilot = stage("pilot", 18_699, 74, 0.5794)
    records["pilot"] = pilot.model_copy(update={"checks": (pilot.checks[0], failed)})
    return records


def dataset() -> DatasetVersion:
    return DatasetVersion(
        **_base("dataset", [CheckResult(name="content_hash", status="pass", evidence="the bytes are the published")]),
        name="flights",
        revision="v9",
        dvc_hash="9b1c0c5f4fd7e52f6a1d2bb6b5ab2f0c.dir",
        content_hash=sha("content"),
        rows=336_776,
        path="data/flights/v9",
        files=tuple(StoredFile(path=f"{m:02}.parquet", sha256=sha(str(m)), bytes=812_331) for m in range(1, 13)),
    )


def snapshot() -> Snapshot:
    checks = [
        CheckResult(name="row_count", status="pass", observed=336_776, threshold=300_000),
        CheckResult(
            name="tailnum_null_share",
            status="fail",
            severity="warning",
            observed=0.00746,
            threshold=0.005,
            evidence="2,512 rows have no tail number",
            fix="ask the owner of the source, or widen the rule in contract.yaml",
            details=tuple({"month": m, "carrier": "MQ", "rows": 30 + m} for m in range(1, 31)),
        ),
        CheckResult(name="leakage", status="pass", evidence="no column knows the label before it exists"),
    ]
    spans = {
        "training": ("2013-01-01", "2013-09-14", 186_993, 38_800, 257),
        "validation": ("2013-09-16", "2013-10-07", 20_412, 3_102, 22),
        "calibration": ("2013-10-09", "2013-10-30", 20_890, 3_008, 22),
        "benchmark": ("2013-11-01", "2013-12-31", 54_961, 13_025, 61),
    }
    return Snapshot(
        **_base("snapshot", checks),
        content_hash=sha("snapshot"),
        contract_sha256=sha("contract"),
        label_sha256=sha("label"),
        label="late (arrives 15 or more minutes after schedule)",
        feature_columns=("carrier", "origin", "dest", "distance", "hour", "wind_speed", "visib", "seats"),
        rows=327_346,
        excluded_rows=9_430,
        excluded_share=0.028,
        benchmark="2013-11-01_2013-12-31",
        splits={name: _split(name, *values) for name, values in spans.items()},
    )


def preflight() -> PreflightReport:
    checks = [
        CheckResult(name="overfits_one_batch", status="pass", observed=0.0041, threshold=0.05, device="cpu"),
        CheckResult(
            name="budget", status="pass", observed=0.0021, threshold=0.05, evidence="upper end of the forecast"
        ),
        CheckResult(name="gpu_memory", status="not_applicable", severity="info", evidence="the run uses no GPU"),
    ]
    return PreflightReport(
        **_base("preflight", checks),
        memory_bytes=Forecast(name="memory", unit="bytes", value=412_000_000, low=380_000_000, high=455_000_000),
        seconds=Forecast(name="training_time", unit="seconds", value=58.0, low=44.0, high=79.0),
        cost_usd=Forecast(name="training_cost", unit="usd", value=0.00155, low=0.0012, high=0.00175),
    )


def stage(kind: Any, rows: int, steps: int, loss: float) -> StageReport:
    checks = [CheckResult(name="finite", status="pass", evidence=f"{steps} losses and gradient norms are finite")]
    return StageReport(
        **_base(kind, checks),
        kind=kind,
        training_run=sha("training run")[:16],
        fraction={"smoke": 0.01, "pilot": 0.1, "full": 1.0}[kind],
        seed=0,
        rows=rows,
        steps=steps,
        resumed_from_step=0,
        checkpoint=f"checkpoints/{kind}",
        checkpoint_sha256=sha(f"checkpoint {kind}"),
        prefix_steps=8,
        prefix_sha256=sha("prefix"),
        parameters=12_545,
        parameters_sha256=sha(f"parameters {kind}"),
        artifact="models/full" if kind == "full" else None,
        artifact_sha256=sha("artifact") if kind == "full" else None,
        metrics={"val_loss": loss, "val_auc": 0.9 - loss / 2.6, "val_loss_of_prior": 0.5771},
        curve=_curve(steps, rows, loss),
    )


def evaluation() -> EvaluationReport:
    slices = [
        CheckResult(
            name="groups",
            status="pass",
            observed=61,
            threshold=10,
            evidence="61 groups, both labels in at least two of them; 2 slices are too small to measure",
            details=(
                {"slice": "carrier=HA", "rows": 61, "reason": "fewer than 200 rows"},
                {"slice": "carrier: small values", "rows": 6, "reason": "1 values of fewer than 20 rows each"},
            ),
        ),
        CheckResult(name="artifact_equals_training", status="pass", observed=2.1e-7, threshold=1e-5),
    ]
    return EvaluationReport(
        **_base("evaluation", slices),
        benchmark="2013-11-01_2013-12-31",
        rows=54_961,
        groups=61,
        primary="log_loss",
        metrics=(*_overall(), *_slices()),
        comparisons=(
            _comparison("prior", 0.0412, 0.0081),
            _comparison("linear", 0.0091, 0.0025),
            _comparison("gradient_boosting", 0.0012, 0.0021),
        ),
        reliability=tuple(
            ReliabilityBin(predicted=p, observed=p + 0.02 * math.sin(9 * p), rows=int(11_000 * math.exp(-4 * p)))
            for p in (0.05, 0.11, 0.17, 0.23, 0.29, 0.36, 0.44, 0.53, 0.64, 0.75)
        ),
        predictions=StoredFile(path="predictions.parquet", sha256=sha("predictions"), bytes=410_000),
        latency_ms=1.83,
        artifact="models/full",
        artifact_sha256=sha("artifact"),
    )


def verdict(decision: Any) -> Verdict:
    """A first model, promoted, or one of which the reasons say why not."""
    promoted = decision == "promote"
    why = (
        "The gain over logistic regression in log loss, +0.0091 [+0.0041, +0.0141], is above zero.",
        "All five controls pass.",
    )
    why_not = ("The gain over the champion in log loss, +0.0012 [−0.0030, +0.0054], cannot be told from zero.",)
    gates = {
        "dataset": "contract of 41 rules, version v9, label definition unchanged",
        "benchmark": "2013-11-01 to 2013-12-31 lies after every training row of both models",
        "cost": "0.0028 USD of 0.05 USD; forecast met",
        "reproducibility": "8 steps repeated bit for bit from the same seed, commit clean",
        "deployment": "loads in a child process in 0.9 s, 1.83 ms a prediction, roll-back rehearsed",
    }
    compared = Control(
        name="better_than_champion",
        status="pass" if promoted else "insufficient",
        reason=(why if promoted else why_not)[0],
    )
    return Verdict(
        **_base("promotion", [CheckResult(name="lineage", status="pass", evidence="every record is what it was")]),
        decision=decision,
        reasons=why if promoted else why_not,
        controls=(*(Control(name=name, status="pass", reason=reason) for name, reason in gates.items()), compared),
        comparisons=() if promoted else (_comparison("champion", 0.0012, 0.0021),),
        model_name="flight_delays",
        model_version="4",
        champion=None if promoted else "3",
        first_model=promoted,
        evaluation_identity=sha("evaluation identity"),
        evidence={"deployment": {"load_seconds": 0.91, "latency_ms": 1.83}, "rollback_rehearsed": True},
        binds={name: sha(name) for name in ("model", "dataset", "benchmark", "contract", "code", "environment")},
        step_costs={step: _cost(step) for step in STEPS[:-1]},
        model_cost=sum((_cost(step) for step in STEPS[:-1]), Cost()),
        previous_verdict_sha256=sha("previous verdict"),
    )


def _base(step: Step, checks: list[CheckResult]) -> dict[str, Any]:
    return {
        "use_case": "flight_delays",
        "parents": {parent: sha(f"record {parent}") for parent in PARENTS[step]},
        "identity": sha(f"identity {step}"),
        "provenance": Provenance(
            git_commit=hashlib.sha1(b"commit").hexdigest(),
            git_dirty=False,
            code_sha256=sha("code"),
            environment_sha256=sha("environment"),
            seeds=(0,) if step in ("smoke", "pilot", "full") else (),
            device="cpu" if step in ("preflight", "smoke", "pilot", "full") else "host",
            run_id=RUN_ID,
            created_at=f"2026-03-0{1 + STEPS.index(step) // 4}T09:1{STEPS.index(step)}:07+00:00",
        ),
        "cost": _cost(step),
        "checks": tuple(checks),
    }


def _cost(step: Step) -> Cost:
    wall = WALL.get(step, 4.2)
    return Cost(cpu_seconds=1.6 * wall, wall_seconds=wall, usd=wall * USD_PER_SECOND)


def _split(name: str, start: str, end: str, rows: int, positives: int, groups: int) -> Split:
    file = StoredFile(path=f"{name}.parquet", sha256=sha(name), bytes=rows * 40)
    return Split(name=name, file=file, rows=rows, positives=positives, groups=groups, start=start, end=end)


def _curve(steps: int, rows: int, loss: float) -> tuple[CurvePoint, ...]:
    windows = min(steps, 40)
    ends = [round(steps * (index + 1) / windows) for index in range(windows)]
    return tuple(
        CurvePoint(
            step=step,
            rows=round(rows * step / steps),
            loss=loss + 0.19 * math.exp(-step / 14) + 0.006 * math.sin(5 * step),
            standard_error=0.02 * (24 / steps) ** 0.5 + 0.002,
            learning_rate=0.002,
        )
        for step in ends
    )


def estimate(value: float, error: float, groups: int = 61) -> Estimate:
    """A 95 % interval of two standard errors."""
    return Estimate(value=value, low=value - 2 * error, high=value + 2 * error, standard_error=error, groups=groups)


def _comparison(reference: str, gain: float, error: float) -> Comparison:
    return Comparison(reference=reference, metric="log_loss", gain=estimate(gain, error))


def _overall() -> list[Metric]:
    values = {
        "candidate": (0.4987, 0.1588, 0.7082, 0.0121),
        "prior": (0.5399, 0.1770, 0.5, 0.0310),
        "linear": (0.5078, 0.1623, 0.6934, 0.0174),
        "gradient_boosting": (0.4999, 0.1592, 0.7066, 0.0136),
    }
    names = ("log_loss", "brier", "auc", "calibration_error")
    return [
        Metric(model=model, metric=name, estimate=estimate(value, 0.0043 if value > 0.1 else 0.0011), rows=54_961)
        for model, row in values.items()
        for name, value in zip(names, row, strict=True)
    ]


def _slices() -> list[Metric]:
    values = {
        "UA": 0.52,
        "B6": 0.508,
        "EV": 0.571,
        "DL": 0.45,
        "AA": 0.46,
        "MQ": 0.55,
        "US": 0.41,
        "9E": 0.53,
        "WN": 0.56,
    }
    named = {f"carrier={name}": loss for name, loss in values.items()}
    named |= {"origin=JFK": 0.487, "origin=EWR": 0.519, "origin=LGA": 0.49, "hour=6 to 9": 0.39, "hour=18 to 21": 0.601}
    return [
        Metric(
            model="candidate",
            metric="log_loss",
            estimate=estimate(loss, 0.006 + 0.002 * (index % 4)),
            rows=1_200 + 917 * index,
            slice=name,
        )
        for index, (name, loss) in enumerate(named.items())
    ]
