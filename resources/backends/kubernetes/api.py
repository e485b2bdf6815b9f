"""The cluster's API: one request a function, plain JSON in and out, and what a refusal means. Alone uses the client.

Answers are read as the API wrote them, not as the client's models: a field that a newer cluster adds is no error.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainworthy.lifecycle.errors import BackendError, SettingsError
from trainworthy.resources.backends.kubernetes.manifest import CONTAINER

if TYPE_CHECKING:
    from kubernetes.client import ApiClient
    from kubernetes.client.exceptions import ApiException

Json = dict[str, Any]
# To connect, and to the next byte of an answer. A watch is silent for WATCH_SECONDS at most.
CONNECT_SECONDS, READ_SECONDS = 10.0, 30.0
# A log is silent as long as its worker is; a connection that died silently is noticed after this.
LOG_SILENT_SECONDS = 120.0
# Kueue's, newest first.
KUEUE_VERSIONS = ("v1beta2", "v1beta1")
INSTALL = "pip install 'trainworthy[kubernetes]'"
TOO_MANY, EXPIRED, CONFLICT, NOT_THERE = 429, 410, 409, 404


class AwayError(Exception):
    """The API could not be reached, or had no time: it asks for `wait` seconds of peace, None if it says nothing."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class ConflictError(Exception):
    """There is one of that name already, or not the one that was meant."""


class ExpiredError(Exception):
    """The API no longer knows what has changed since then: list again."""


class NotThereError(Exception):
    """There is none of that name."""


class Api:
    """The API, in one namespace. Requests raise AwayError, ConflictError, or BackendError for what it refuses."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        from kubernetes.client import BatchV1Api, CoreV1Api, CustomObjectsApi

        self._batch, self._core, self._custom = BatchV1Api(client), CoreV1Api(client), CustomObjectsApi(client)
        self._client, self._namespace = client, namespace
        self._kueue = list(KUEUE_VERSIONS)

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()

    def create_job(self, manifest: Json) -> Json:
        """The Job as the cluster has it from now on. Raises ConflictError if there is one of its name."""
        body: Any = manifest
        try:
            return _json("create", "jobs", self._batch.create_namespaced_job, self._namespace, body)
        except NotThereError as error:
            fix = "make the namespace, or correct namespace in kubernetes.yaml"
            raise BackendError(f"the cluster cannot make the Job: {error}", value=self._namespace, fix=fix) from None

    def job(self, name: str) -> Json | None:
        """The Job of that name, None if there is none."""
        try:
            return _json("get", "jobs", self._batch.read_namespaced_job, name, self._namespace)
        except NotThereError:
            return None

    def delete_job(self, name: str, uid: str) -> None:
        """Ask for the end of this very Job and its pods, the Job last; one that is gone is no error."""
        body: Any = {"propagationPolicy": "Foreground", "preconditions": {"uid": uid}}
        with contextlib.suppress(NotThereError):
            _ask("delete", "jobs", self._batch.delete_namespaced_job, name, self._namespace, body=body)

    def pods(self, selector: str) -> tuple[list[Json], str]:
        """The pods with a label, and from which version on their changes can be watched."""
        listed = self._core.list_namespaced_pod
        pod_list = _json("list", "pods", listed, self._namespace, label_selector=selector)
        return pod_list["items"], pod_list["metadata"]["resourceVersion"]

    def pod_changes(self, selector: str, version: str, seconds: int) -> Iterator[Json]:
        """What happens to them for so many seconds, as events of a watch. Raises ExpiredError for too old a version."""
        events = _ask(
            "watch", "pods", self._core.list_namespaced_pod, self._namespace, label_selector=selector, watch=True,
            resource_version=version, timeout_seconds=seconds, allow_watch_bookmarks=True,
        )  # fmt: skip
        with contextlib.closing(events):
            for line in lines(events):
                event = _parsed(line)
                if event["type"] == "ERROR":
                    # The stream began well, and this is all that it can say.
                    message = event["object"].get("message", "")
                    raise ExpiredError(message) if event["object"].get("code") == EXPIRED else AwayError(message)
                yield event

    def delete_pod(self, name: str, grace_seconds: int) -> None:
        """Ask for the end of a pod; one that is gone is no error."""
        with contextlib.suppress(NotThereError):
            deleted = self._core.delete_namespaced_pod
            _ask("delete", "pods", deleted, name, self._namespace, grace_period_seconds=grace_seconds)

    def log(self, pod: str, since_seconds: int | None) -> Any:
        """The open log of the worker until its container ends, each line behind its time; read it by `lines`, close it.

        Raises NotThereError if the pod is gone.
        """
        given = {} if since_seconds is None else {"since_seconds": since_seconds}
        return _ask(
            "get", "pods/log", self._core.read_namespaced_pod_log, pod, self._namespace, container=CONTAINER,
            follow=True, timestamps=True, _request_timeout=(CONNECT_SECONDS, LOG_SILENT_SECONDS), **given,
        )  # fmt: skip

    def workloads(self, job_uid: str) -> tuple[Json, ...]:
        """Kueue's objects of a Job; none where Kueue is not installed, or may not be asked."""
        listed, selector = self._custom.list_namespaced_custom_object, f"kueue.x-k8s.io/job-uid={job_uid}"
        while self._kueue:
            given = ("kueue.x-k8s.io", self._kueue[0], self._namespace, "workloads")
            with contextlib.suppress(NotThereError, BackendError):
                return tuple(_json("list", "workloads", listed, *given, label_selector=selector)["items"])
            # This cluster has another version of it, or none, or does not show it.
            del self._kueue[0]
        return ()


def connect(namespace: str, context: str | None) -> Api:
    """The API of the kubeconfig's context, or within a pod of its own cluster.

    Raises SettingsError if the client is not installed, or nothing says where the cluster is.
    """
    try:
        from kubernetes import client, config
    except ModuleNotFoundError as error:
        value = error.name
        raise SettingsError("Kubernetes needs a package that is not installed", value=value, fix=INSTALL) from None
    configuration = client.Configuration()
    files = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    try:
        if any(Path(file).is_file() for file in files.split(os.pathsep)):
            # The client has read the variable when it was imported.
            config.load_kube_config(files, context, client_configuration=configuration, persist_config=False)
        else:
            config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException as error:
        fix = f"name a kubeconfig in KUBECONFIG, and its context in kubernetes.yaml; looked for {files}"
        raise SettingsError(f"nothing says where the cluster is: {error}", value=context, fix=fix) from None
    # How often, and for how long, is decided by who asks.
    configuration.retries = False  # pyright: ignore[reportAttributeAccessIssue]
    return Api(client.ApiClient(configuration), namespace)


def lines(response: Any) -> Iterator[bytes]:
    """Whole lines of a stream, each as soon as it is there. Raises AwayError if it breaks off."""
    from urllib3.exceptions import HTTPError

    rest = b""
    try:
        for chunk in response.stream():
            *whole, rest = (rest + chunk).split(b"\n")
            yield from (line for line in whole if line)
        if rest:
            yield rest
    except (HTTPError, OSError) as error:
        raise AwayError(f"{type(error).__name__}: {error}") from None


def _json(verb: str, resource: str, request: Callable[..., Any], *values: Any, **given: Any) -> Json:
    """The whole answer, as `_ask`. One that breaks off is no answer."""
    return _parsed(_ask(verb, resource, lambda **plain: request(*values, **given, **plain).data))


def _parsed(text: bytes) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        # Of a proxy before the API.
        raise AwayError(f"no JSON: {text[:100]!r}") from None


def _ask(verb: str, resource: str, request: Callable[..., Any], *values: Any, **given: Any) -> Any:
    """The plain answer of the client's function `request`; what it raises, as what follows from it."""
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    plain = {"_preload_content": False, "_request_timeout": (CONNECT_SECONDS, READ_SECONDS)}
    try:
        return request(*values, **plain | given)
    except ApiException as error:
        raise _refusal(error, verb, resource) from None
    except (HTTPError, OSError) as error:
        raise AwayError(f"{type(error).__name__}: {error}") from None


def _refusal(error: ApiException, verb: str, resource: str) -> Exception:
    status, message = error.status or 0, _message(error)
    named = {CONFLICT: ConflictError, EXPIRED: ExpiredError, NOT_THERE: NotThereError}
    if status in named:
        return named[status](message)
    if status == TOO_MANY or status >= 500:
        return AwayError(message, _seconds((error.headers or {}).get("Retry-After")))
    if status == 401:
        fix = "log in again (kubectl get jobs tells whether it works), or name another context in kubernetes.yaml"
        return BackendError(f"the cluster does not know who asks: {message}", fix=fix)
    if status == 403:
        fix = (
            f"allow the verb {verb} on {resource} in a Role of the namespace: docs/how-to/kubernetes.md has a whole one"
        )
        return BackendError(f"the cluster forbids to {verb} {resource}: {message}", fix=fix)
    fix = "correct kubernetes.yaml where the message names its value"
    return BackendError(f"the cluster refuses to {verb} {resource}: {message}", fix=fix)


def _message(error: ApiException) -> str:
    """The API's own words, of which the client's message is a page."""
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return f"{error.status} {error.reason}"


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdigit() else None
