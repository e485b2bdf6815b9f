"""MLflow remembers models and runs: one MLflow run per Dagster run, linked both ways, and the registry.

With mlflow_model.py, which has a model's form, and mlflow_folder.py, which has the local store, the only importer of
mlflow. The store is SQLite below the state folder, unless MLFLOW_TRACKING_URI names a server. MLflow's aliases have no
history and no compare-and-swap, so the verdict log is the truth and an alias its projection.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import dagster as dg

from trainworthy.lifecycle.errors import ChampionError, SettingsError
from trainworthy.lifecycle.evaluation.operating_point import (
    point_tags,
    registered_with,
)
from trainworthy.lifecycle.identity import sha256_json
from trainworthy.lifecycle.protocol.operating_point import OperatingPoint
from trainworthy.lifecycle.protocol.training_figures import CurvePoint
from trainworthy.lifecycle.provenance import without_credentials
from trainworthy.lifecycle.storage.metrics_file import MetricsLine
from trainworthy.resources.mlflow_folder import VIEW, create_database, first_use, settle, source_of
from trainworthy.resources.mlflow_model import NOT_THERE, RegisteredModel, has_files, model_of, save_pyfunc
from trainworthy.resources.settings import dagster_url, mlflow_url, read_settings

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    from trainworthy.lifecycle.contract.model import Contract

CHAMPION, ROLLBACK = "champion", "rollback"
# The tag of a version with the id of its logged model: MLflow's own registry keeps none.
LOGGED_MODEL = "logged_model"
# The tag of a version with Dagster's id of the run that judged it last: equal trainings of two states are one version,
# which one of them registers and the other may promote.
JUDGED_BY = "verdict/run_id"
# Characters of a dataset's digest that MLflow takes.
MOST_DIGEST = 36
# So long its first answer is waited for; a server that is busy for longer is left to MLflow, which itself tries for
# 250 s where nobody listens.
ANSWER_SECONDS = 10.0
# What MLflow answers to whom it does not know or let in.
_REFUSED = ("UNAUTHENTICATED", "PERMISSION_DENIED")


def refuse_silent(uri: str) -> None:
    """Raises SettingsError if the HTTP server of that address gives no answer; any answer will do."""
    if urlsplit(uri).scheme not in ("http", "https"):
        return
    import ssl
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import urlopen

    try:
        urlopen(without_credentials(uri), timeout=ANSWER_SECONDS).close()
    except HTTPError:
        return
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, ssl.SSLError | TimeoutError):
            return  # MLflow has certificates of its own, and waits longer for a server that is busy.
        raise SettingsError(
            f"MLflow's server does not answer: {reason}",
            value=without_credentials(uri),
            fix="start it, or name the right one in MLFLOW_TRACKING_URI; then run it again: finished steps are reused",
            code="mlflow_away",
        ) from None


def refused(uri: str, error: MlflowException) -> SettingsError | None:
    """What to do where a server with users says that who asks is not known, or may not; None of any other error."""
    if error.error_code not in _REFUSED:
        return None
    named = os.environ.get("MLFLOW_TRACKING_USERNAME")
    who = f"the user {named}" if named else "a request without a user"
    return SettingsError(
        f"MLflow's server refuses {who}",
        value=without_credentials(uri),
        fix="name a user who may edit experiments and models in MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
        code="mlflow_refused",
    )


@dataclass(frozen=True)
class TrackedRun:
    """An MLflow run and where to look at it."""

    run_id: str
    experiment_id: str

    @property
    def url(self) -> str:
        """Address under the MLflow UI that `make mlflow-ui` starts, or that TRAINWORTHY_MLFLOW_URL names."""
        return f"{mlflow_url()}/#/experiments/{self.experiment_id}/runs/{self.run_id}"


@dataclass(frozen=True)
class DataInput:
    """Rows that a run was made from: `digest` is the hash of their content, `context` what they were for."""

    name: str
    digest: str
    address: str
    rows: int
    context: str


@dataclass(frozen=True)
class Judged:
    """What a verdict says of a registered version: in Markdown, as tags, and the candidate's benchmark metrics."""

    description: str
    tags: Mapping[str, str]
    metrics: Mapping[str, float]


class Tracking(dg.ConfigurableResource):
    """Runs, metrics and the model registry."""

    @cached_property
    def client(self) -> MlflowClient:
        """The client; the first use of a fresh database migrates it, one process at a time.

        Raises SettingsError if it is a server that does not answer, or that refuses who asks.
        """
        refuse_silent(self.uri)
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
        # No pickle is ever loaded: the artifact is pt2 and JSON.
        os.environ.setdefault("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        for noisy in ("alembic", "mlflow.store.db.utils", "mlflow.pyfunc"):
            logging.getLogger(noisy).setLevel(logging.WARNING)

        with first_use(self._folder):
            if self._local:
                settle(self._folder)
                create_database(self._folder / "mlflow.db")
            client = MlflowClient(tracking_uri=self.uri)
            try:
                client.search_experiments(max_results=1)
            except MlflowException as error:
                raise (refused(self.uri, error) or error) from None
        return client

    def reach(self) -> None:
        """Ask the store for one experiment. Raises what MLflow raises if it does not answer."""
        self.client.search_experiments(max_results=1)

    @property
    def uri(self) -> str:
        return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{self._folder}/mlflow.db"

    @property
    def _local(self) -> bool:
        return not os.environ.get("MLFLOW_TRACKING_URI")

    @property
    def _folder(self) -> Path:
        return read_settings().var / "mlflow"

    def run(self, use_case: str, dagster_run_id: str, tags: Mapping[str, str], name: str = "") -> TrackedRun:
        """The MLflow run of a Dagster run, made at its first step; without a name it has the beginning of that id."""
        experiment_id = self._experiment(use_case)
        query = f"tags.`dagster/run_id` = '{dagster_run_id}'"
        runs = self.client.search_runs([experiment_id], query, max_results=1)
        if runs:
            return TrackedRun(runs[0].info.run_id, experiment_id)
        url = f"{dagster_url()}/runs/{dagster_run_id}"
        made = self.client.create_run(
            experiment_id,
            run_name=name or dagster_run_id[:8],
            tags={"dagster/run_id": dagster_run_id, "dagster/url": url, **tags},
        )
        return TrackedRun(made.info.run_id, experiment_id)

    def tags(self, run: TrackedRun) -> Mapping[str, str]:
        """The run's tags."""
        return self.client.get_run(run.run_id).data.tags

    def log_values(
        self, run: TrackedRun, *, parameters: Mapping[str, Any], metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> None:
        """Write parameters not yet there, metrics and tags in one batch."""
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.utils.time import get_current_time_millis

        now = get_current_time_millis()
        known = self.client.get_run(run.run_id).data.params
        self.client.log_batch(
            run.run_id,
            metrics=[Metric(name, value, now, 0) for name, value in metrics.items()],
            params=[Param(name, str(value)[:500]) for name, value in parameters.items() if name not in known],
            tags=[RunTag(name, value) for name, value in tags.items()],
        )

    def log_curve(self, run: TrackedRun, stage: str, lines: Sequence[MetricsLine]) -> None:
        """Write what the run does not have yet of a stage's windows, by figure, step and value.

        Repeats change nothing; with an equal time not even one that another thread writes meanwhile: MLflow takes an
        equal value once.
        """
        from mlflow.entities import Metric

        missing: dict[tuple[str, int], Metric] = {}
        for line in lines:
            step, figures = figures_of_line(stage, line)
            for name, value in figures.items():
                missing.setdefault((name, step), Metric(name, value, line.at_ms, step))
        known = self.client.get_run(run.run_id).data.metrics
        for name in {name for name, _ in missing} & known.keys():
            for logged in self.client.get_metric_history(run.run_id, name):
                metric = missing.get((name, logged.step))
                if metric is not None and metric.value == logged.value:
                    del missing[name, logged.step]
        metrics = list(missing.values())
        for start in range(0, len(metrics), 1000):
            self.client.log_batch(run.run_id, metrics=metrics[start : start + 1000])

    def log_system(self, run: TrackedRun, figures: Mapping[str, float]) -> None:
        """Write what a machine does now as MLflow's system metrics; their steps are seconds since the run began."""
        from mlflow.entities import Metric
        from mlflow.utils.time import get_current_time_millis

        now = get_current_time_millis()
        second = (now - self.client.get_run(run.run_id).info.start_time) // 1000
        self.client.log_batch(
            run.run_id, metrics=[Metric(f"system/{name}", value, now, second) for name, value in figures.items()]
        )

    def log_files(self, run: TrackedRun, files: Mapping[str, bytes]) -> None:
        """Write artifacts by name."""
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self.client.log_artifacts(run.run_id, folder)

    def log_inputs(self, run: TrackedRun, inputs: Sequence[DataInput]) -> None:
        """Name what the run was made from; what is there already stays as it is."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        self.client.log_inputs(
            run.run_id,
            [
                DatasetInput(
                    Dataset(
                        data_input.name,
                        data_input.digest[:MOST_DIGEST],
                        "local",
                        json.dumps({"uri": data_input.address}),
                        profile=json.dumps({"num_rows": data_input.rows}),
                    ),
                    [InputTag("mlflow.data.context", data_input.context)],
                )
                for data_input in inputs
            ],
        )

    def show_columns(self, run: TrackedRun, metrics: Sequence[str]) -> None:
        """Make the experiment's view VIEW: its runs with the verdict and these metrics as columns.

        MLflow keeps the columns that somebody chose in the browser. What can be set from outside is a shared view,
        which its address names; in its menu `Views` it has the name of the tag.
        """
        columns = ["tags.`verdict`", *(f"metrics.`{name}`" for name in metrics)]
        tags = {
            f"mlflow.sharedViewState.{VIEW}": json.dumps({"selectedColumns": columns}),
            # Else MLflow asks what the experiment is for, and shows it as one of language models.
            "mlflow.experimentKind": "custom_model_development",
        }
        known = self.client.get_experiment(run.experiment_id).tags
        for name, value in tags.items():
            if known.get(name) != value:
                self.client.set_experiment_tag(run.experiment_id, name, value)

    def describe(self, run: TrackedRun, name: str, version: str, judged: Judged) -> None:
        """Write the verdict on a registered version: its description, tags, and the metrics of its logged model."""
        from mlflow.entities import Metric
        from mlflow.utils.time import get_current_time_millis

        registered = self.client.update_model_version(name, version, judged.description)
        for tag, value in judged.tags.items():
            self.client.set_model_version_tag(name, version, tag, value)
        model_id = registered.tags.get(LOGGED_MODEL)
        if model_id is None:  # Registered before there were logged models.
            return
        self.client.set_logged_model_tags(model_id, dict(judged.tags))
        now = get_current_time_millis()
        metrics = [Metric(metric, value, now, 0, model_id=model_id) for metric, value in judged.metrics.items()]
        self.client.log_batch(run.run_id, metrics=metrics)

    def end(self, run: TrackedRun, status: Literal["FINISHED", "FAILED", "KILLED"], name: str = "") -> None:
        """Mark the run as ended, and give it the name that says how; until then it is shown as running."""
        self.client.set_terminated(run.run_id, status=status)
        if name:
            self.client.update_run(run.run_id, name=name)

    def register(
        self, run: TrackedRun, name: str, artifact: Path, artifact_sha256: str, tags: Mapping[str, str],
        contract: Contract | None = None, point: OperatingPoint | None = None,
    ) -> RegisteredModel:  # fmt: skip
        """Register the artifact as a new version without alias, or return the version that holds it already.

        The same artifact with another operating point is another version: what is registered is never rewritten.
        Its files lie with a logged model, MLflow's entity for them, whose signature is made from the contract.
        """
        for model in self.versions(name):
            equal = model.tags.get("artifact_sha256") == artifact_sha256 and registered_with(model.tags, point)
            if equal and has_files(model, point):
                return model
        from mlflow.exceptions import MlflowException

        with contextlib.suppress(MlflowException):  # It exists already.
            self.client.create_registered_model(name)
        all_tags = {"artifact_sha256": artifact_sha256, **tags, **point_tags(point)}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            save_pyfunc(path, artifact, contract, point)
            model_id, source = self._log_model(run, name, path, all_tags)
        all_tags[LOGGED_MODEL] = model_id
        version = self.client.create_model_version(name, source, run_id=run.run_id, tags=all_tags, model_id=model_id)
        return model_of(version)

    def _log_model(self, run: TrackedRun, name: str, path: Path, tags: dict[str, str]) -> tuple[str, str]:
        """Id and address of a logged model with these files, an output of the run."""
        from mlflow.entities import LoggedModelOutput

        model = self.client.create_logged_model(run.experiment_id, name, source_run_id=run.run_id, tags=tags)
        try:
            self.client.log_model_artifacts(model.model_id, str(path))
        except BaseException:
            self.client.finalize_logged_model(model.model_id, "FAILED")
            raise
        self.client.finalize_logged_model(model.model_id, "READY")
        self.client.log_outputs(run.run_id, [LoggedModelOutput(model.model_id, step=0)])
        return model.model_id, model.artifact_location

    def versions(self, name: str) -> list[RegisteredModel]:
        """Every version of a model, newest first; [] if it was never registered."""
        registered = self.client.search_model_versions(f"name = '{name}'")
        return sorted((model_of(version) for version in registered), key=lambda model: -int(model.version))

    def version(self, name: str, version: str) -> RegisteredModel | None:
        """A version without its tags, None if there is none. A local registry is read without importing MLflow."""
        if not self._local:
            return next((model for model in self.versions(name) if model.version == version), None)
        with first_use(self._folder):
            settle(self._folder)
        source = source_of(self._folder, name, version)
        return RegisteredModel(name, version, source, {}) if source else None

    def champion(self, name: str) -> RegisteredModel | None:
        """The version that the alias `champion` points to, or None if there is no such alias.

        Raises ChampionError if the version's files are gone; on a server they are looked for at their first use.
        """
        model = self.aliased(name)
        if model is not None and model.local is not None:
            _ = model.artifact
        return model

    def aliased(self, name: str) -> RegisteredModel | None:
        """The same, its files there or not."""
        from mlflow.exceptions import MlflowException

        # Outside: MLflow tells an address that it cannot use with the same code as an alias that is not there.
        client = self.client
        try:
            return model_of(client.get_model_version_by_alias(name, CHAMPION))
        except MlflowException as error:
            if error.error_code in NOT_THERE:
                return None
            raise

    def run_of_version(self, name: str, version: str) -> str | None:
        """Dagster's id of the run that judged the version last, or of the one that registered it where no verdict says.

        None if neither is known, as of a version that somebody made by hand.
        """
        from mlflow.exceptions import MlflowException

        client = self.client
        try:
            registered = client.get_model_version(name, version)
            if JUDGED_BY in registered.tags:
                return registered.tags[JUDGED_BY]
            made_by = registered.run_id
            return client.get_run(made_by).data.tags.get("dagster/run_id") if made_by else None
        except MlflowException as error:
            if error.error_code in NOT_THERE:
                return None
            raise

    def set_champion(self, name: str, version: str, previous: str | None) -> None:
        """Point `champion` at the version, and `rollback` at the one that a rollback would go back to, if any.

        Three may: a promotion (assets/promotion.py), a rollback (assets/rollback.py) and `doctor --fix`
        (pipeline/doctor/stores.py), each after the verdict log has it.

        Raises ChampionError if the registry does not take it: the log, which was written before, has it already.
        """
        from mlflow.exceptions import MlflowException

        try:
            self.client.set_registered_model_alias(name, CHAMPION, version)
            if previous is None:
                self.client.delete_registered_model_alias(name, ROLLBACK)
            else:
                self.client.set_registered_model_alias(name, ROLLBACK, previous)
        except MlflowException as error:
            problem = f"the verdict log has version {version} as champion, and MLflow did not move the alias: {error}"
            raise ChampionError(
                problem, value=name, fix="trainworthy doctor --fix moves it once MLflow is well"
            ) from None

    def _experiment(self, name: str) -> str:
        experiment = self.client.get_experiment_by_name(name)
        if experiment is not None:
            return experiment.experiment_id
        from mlflow.exceptions import MlflowException

        try:
            location = (self._folder / "artifacts" / name).as_uri() if self._local else None
            return self.client.create_experiment(name, artifact_location=location)
        except MlflowException:  # Another run made it in the meantime.
            experiment = self.client.get_experiment_by_name(name)
            assert experiment is not None
            return experiment.experiment_id


def figures_of_line(stage: str, line: MetricsLine) -> tuple[int, dict[str, float]]:
    """The step and the figures of a line. An alarm is a mark: 1 where it warns, 2 where it is critical."""
    if line.point is not None:
        return line.point.step, figures_of_point(stage, line.point)
    if line.alarm is not None:
        height = 2.0 if line.alarm.severity == "critical" else 1.0
        return line.alarm.step, {f"{stage}/alarm/{re.sub(r'[^A-Za-z0-9_.:-]', '_', line.alarm.monitor)}": height}
    if (signals := line.signals) is None:
        return 0, {}
    figures = {
        "gradient_norm": signals.grad_norm,
        "update_ratio": signals.update_ratio,
        "update_seconds": signals.seconds,
    }
    return signals.step, {f"{stage}/{name}": value for name, value in figures.items() if value is not None}


def figures_of_point(stage: str, point: CurvePoint) -> dict[str, float]:
    """A window's figures by their names in MLflow, which takes letters, digits and few other characters."""
    name = f"{stage}/{point.figure}"
    if point.slice is not None:
        plain = re.sub(r"[^A-Za-z0-9_.:-]", "_", point.slice)
        # Two values that differ in what was replaced are two figures all the same.
        exact = plain == point.slice.replace("=", "_") and len(plain) <= 60
        return {f"{name}/{plain if exact else f'{plain[:60]}-{sha256_json(point.slice)[:6]}'}": point.loss}
    main = point.mode == "training"
    return {name: point.loss} | ({f"{stage}/learning_rate": point.learning_rate} if main else {})
