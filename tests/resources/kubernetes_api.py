"""A scripted API server of Kubernetes: a real HTTP server on the loopback device, and controllers that a test plays.

Jobs, pods, their logs and Kueue's Workloads are kept as the API tells them, changes are watched by version, and a test
says what happens: pods that wait, run, end, are evicted. `started` runs a container's command for real, as a child
process with the manifest's environment and nothing else. Of an Indexed Job all pods are made at once, each with its
number and an address of the loopback device, and when one has failed the others are asked to end.
docs/how-to/kubernetes.md says what was never tried.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
NAMESPACE = "ml"
INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass
class Fault:
    """What the server does in place of its work, `times` often, for requests whose "VERB path" matches."""

    request: str
    status: int = 0
    message: str = "no"
    retry_after: str = ""
    times: int = 1
    # An event of a watch that began well.
    in_stream: bool = False
    # In place of the API's own form: a proxy's page.
    page: bytes = b""


@dataclass
class Log:
    """A container's log: lines with their times, and whether there will be more."""

    lines: list[tuple[str, bytes]] = field(default_factory=list)
    ended: bool = False


class Kube:
    """The cluster: what it has, what happens to it, and what it was asked."""

    def __init__(self, played: Callable[[Kube, str], object] = lambda kube, pod: None) -> None:
        # What happens to each new pod, in a thread of its own.
        self.played = played
        self.jobs: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.workloads: list[Json] = []
        self.logs: dict[str, Log] = {}
        self.faults: list[Fault] = []
        self.asked: list[str] = []
        self.manifests: list[Json] = []
        # Whether Kueue lets every new Job begin.
        self.admits = False
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        # A watch is left open so long, however long it was asked for; a log is cut off after so many lines, once.
        self.watch_seconds, self.cut_log_after = 0.02, 0
        self.changed = threading.Condition()
        # Pods that Kueue took back: no failure of their Job, which makes others in their place once it is admitted.
        self._taken_back: set[str] = set()
        self._version, self._events = 0, list[tuple[int, str, Json]]()
        self._threads: list[threading.Thread] = []

    # What controllers and nodes do.

    def admit(self, name: str) -> None:
        """Kueue lets the Job begin."""
        with self.changed:
            self.jobs[name]["spec"]["suspend"] = False
            self.workloads = []
            self._make_pods(self.jobs[name])

    def evict(self, name: str, message: str, code: int | None = None) -> None:
        """Kueue takes the Job's place away: it is suspended, its pods are asked to end.

        Those that run do so by this exit code.
        """
        with self.changed:
            self._taken_back |= set(self.pods)
            self.jobs[name]["spec"]["suspend"] = True
            told = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": message}
            self.workloads = [{"status": {"conditions": [told]}}]
        for pod in list(self.pods):
            self.delete_pod(pod, code=code)

    def pod_of(self, name: str) -> str:
        """The name of the Job's newest pod, once it is there."""
        with self.changed:
            assert self.changed.wait_for(lambda: any(pod.startswith(f"{name}-") for pod in self.pods), 10)
            return [pod for pod in self.pods if pod.startswith(f"{name}-")][-1]

    def pods_of(self, name: str) -> list[str]:
        """The names of the Job's pods by their numbers, once all are there."""
        pods = self.jobs[name]["spec"]["completions"]
        with self.changed:
            assert self.changed.wait_for(lambda: len(self._pods_of(self.jobs[name])) == pods, 10)
            return sorted(self._pods_of(self.jobs[name]), key=lambda pod: int(index_of(self.pods[pod])))

    def set_pod(self, name: str, container: Json | None = None, **status: Any) -> None:
        """Change what is known of a pod: its container's state, and other fields of its status."""
        with self.changed:
            pod = self.pods[name]
            if container is not None:
                pod["status"]["containerStatuses"] = [{"name": "worker", "state": container}]
            pod["status"] |= status
            self._tell("MODIFIED", pod)

    def runs(self, name: str) -> None:
        """The container has begun."""
        self.set_pod(name, {"running": {"startedAt": _now()}}, phase="Running")

    def ends(self, name: str, code: int, reason: str = "", **status: Any) -> None:
        """The container has ended."""
        ended = {"exitCode": code, "reason": reason or ("Error" if code else "Completed"), "finishedAt": _now()}
        began = self.pods[name]["status"].get("containerStatuses", [{"state": {}}])[0]["state"].get("running", {})
        status = {"phase": "Failed" if code else "Succeeded"} | status
        with self.changed:
            self.logs[name].ended = True
            self.set_pod(name, {"terminated": ended | began}, **status)
        if code and name not in self._taken_back:
            self._end_others(self.pods[name])

    def say(self, name: str, text: str) -> None:
        """The container writes a line."""
        with self.changed:
            self.logs[name].lines.append((_now(), text.encode()))
            self.changed.notify_all()

    def delete_pod(self, name: str, grace: float = 5.0, code: int | None = None) -> None:
        """Ask a pod to end; it is gone once its process is. One that runs without one ends by `code`, if any."""
        with self.changed:
            if name not in self.pods or "deletionTimestamp" in self.pods[name]["metadata"]:
                return
            self.pods[name]["metadata"]["deletionTimestamp"] = _now()
            self._tell("MODIFIED", self.pods[name])
        self._spawn(self._end_pod, name, grace, code)

    def drop_pod(self, name: str) -> None:
        """The pod is there no more."""
        with self.changed:
            pod = self.pods.pop(name, None)
            if pod is not None:
                self.logs[name].ended = True
                self._tell("DELETED", pod)
                job = self.jobs.get(pod["metadata"]["ownerReferences"][0]["name"])
                if name in self._taken_back:
                    if (
                        job is not None
                        and not job["spec"].get("suspend")
                        and "deletionTimestamp" not in job["metadata"]
                    ):
                        self._make_pods(job)
                elif job is not None and not job["spec"].get("suspend"):
                    # backoffLimit is 0.
                    job["status"].setdefault("conditions", [{"type": "Failed", "status": "True", "reason": "Lost"}])
        if pod is not None and pod["status"]["phase"] != "Succeeded" and name not in self._taken_back:
            self._end_others(pod)
        with self.changed:
            for job in [name for name, job in self.jobs.items() if "deletionTimestamp" in job["metadata"]]:
                self._drop_job_without_pods(job)

    def drop_job(self, name: str) -> Json:
        """The Job is there no more, its pods are left: as with kubectl delete --cascade=orphan."""
        with self.changed:
            return self.jobs.pop(name)

    def make_job(self, manifest: Json) -> Json:
        """As the API makes one."""
        with self.changed:
            job = copy.deepcopy(manifest)
            job["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": _now()}
            job.setdefault("status", {})
            self.jobs[job["metadata"]["name"]] = job
            if not job["spec"].get("suspend"):
                self._make_pods(job)
            elif self.admits:
                self._spawn(self.admit, job["metadata"]["name"])
            return copy.deepcopy(job)

    def close(self) -> None:
        """End what still runs."""
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for thread in self._threads:
            thread.join(10)

    # What the API does.

    def delete_job(self, name: str, body: Json, status: Callable[[int, Json], None]) -> None:
        with self.changed:
            job = self.jobs.get(name)
            if job is None:
                return status(404, _status(404, f'jobs.batch "{name}" not found'))
            if body.get("preconditions", {}).get("uid", job["metadata"]["uid"]) != job["metadata"]["uid"]:
                return status(409, _status(409, "the UID in the precondition does not match"))
            assert body["propagationPolicy"] == "Foreground"
            job["metadata"]["deletionTimestamp"] = _now()
            graces = {pod: self.pods[pod]["spec"]["terminationGracePeriodSeconds"] for pod in self._pods_of(job)}
            self._drop_job_without_pods(name)
        status(200, job)
        for pod, grace in graces.items():
            self.delete_pod(pod, grace)
        return None

    def events_since(self, version: int, until: float) -> Iterator[Json]:
        """Changes of pods, as they come."""
        while True:
            with self.changed:
                new = [one for one in self._events if one[0] > version]
                if not new:
                    left = until - time.monotonic()
                    if left <= 0 or not self.changed.wait(left):
                        return
                    continue
            for _, kind, pod in new:
                yield {"type": kind, "object": pod}
            version = new[-1][0]

    @property
    def version(self) -> str:
        return str(self._version)

    def _make_pods(self, job: Json) -> None:
        """Those that are not there: podReplacementPolicy makes none in the place of one that has not ended."""
        there = {self.pods[name]["metadata"]["annotations"].get(INDEX) for name in self._pods_of(job)}
        if job["spec"].get("completionMode") == "Indexed":
            for index in map(str, range(job["spec"]["completions"])):
                if index not in there:
                    self._make_pod(job, index)
        else:
            assert job["spec"]["completions"] == 1
            if not there:
                self._make_pod(job, None)

    def _make_pod(self, job: Json, index: str | None) -> None:
        metadata, template = job["metadata"], copy.deepcopy(job["spec"]["template"])
        name = "-".join([metadata["name"], *([index] if index else []), uuid.uuid4().hex[:5]])
        if index:
            # As the controller adds it.
            env = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.{INDEX}"}}}
            template["spec"]["containers"][0]["env"].append(env)
        self.pods[name] = {
            "metadata": {
                "name": name, "uid": str(uuid.uuid4()), "creationTimestamp": _now(),
                "labels": template["metadata"]["labels"],
                "annotations": {INDEX: index} if index else {},
                "ownerReferences": [{"kind": "Job", "uid": metadata["uid"], "name": metadata["name"]}],
            },
            "spec": template["spec"],
            "status": {"phase": "Pending", "podIP": f"127.0.0.{2 + int(index or 0)}"},
        }  # fmt: skip
        self.logs[name] = Log()
        self._tell("ADDED", self.pods[name])
        self._spawn(self.played, self, name)

    def _end_pod(self, name: str, grace: float, code: int | None) -> None:
        process = self.processes.get(name)
        if process is not None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace)
            process.kill()
            process.wait()
            with self.changed:
                self.changed.wait_for(lambda: self.logs[name].ended, 5)
        elif code is not None and self._runs(name):
            self.ends(name, code)
        self.drop_pod(name)

    def _runs(self, name: str) -> bool:
        return any("running" in one["state"] for one in self.pods[name]["status"].get("containerStatuses", []))

    def _end_others(self, pod: Json) -> None:
        """What podFailurePolicy and backoffLimit do with the other pods of a Job, of which one has failed."""
        with self.changed:
            job = self.jobs.get(pod["metadata"]["ownerReferences"][0]["name"])
            mine, name = pod["metadata"]["ownerReferences"][0]["uid"], pod["metadata"]["name"]
            if job is None or job["metadata"]["uid"] != mine:
                return
            others = [other for other in self._pods_of(job) if other != name]
        for other in others:
            self.delete_pod(other, self.pods[other]["spec"]["terminationGracePeriodSeconds"])

    def _drop_job_without_pods(self, name: str) -> None:
        if name in self.jobs and not self._pods_of(self.jobs[name]):
            del self.jobs[name]

    def _pods_of(self, job: Json) -> list[str]:
        uid = job["metadata"]["uid"]
        return [name for name, pod in self.pods.items() if pod["metadata"]["ownerReferences"][0]["uid"] == uid]

    def _tell(self, kind: str, pod: Json) -> None:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        self._events.append((self._version, kind, copy.deepcopy(pod)))
        self.changed.notify_all()

    def _spawn(self, work: Callable[..., object], *given: object) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()


def index_of(pod: Json) -> str:
    """Which of an Indexed Job's pods it is."""
    return pod["metadata"]["annotations"][INDEX]


def field_of(pod: Json, variable: Json) -> str:
    """The value of a variable that is a field of its pod."""
    (path,) = variable["valueFrom"]["fieldRef"].values()
    return {"status.podIP": pod["status"]["podIP"], f"metadata.{INDEX}": pod["metadata"]["annotations"].get(INDEX)}[
        path
    ]


def started(kube: Kube, pod: str, within: Sequence[str] = ()) -> None:
    """Run the container's command as a node would, its environment the manifest's alone, and tell how it ended.

    `within` is a command that runs it somewhere else, with a PATH of its own.
    """
    container = kube.pods[pod]["spec"]["containers"][0]
    assert container["command"][0] == "python"
    process = subprocess.Popen(
        [*within, sys.executable, *container["command"][1:]],
        env={one["name"]: one["value"] if "value" in one else field_of(kube.pods[pod], one) for one in container["env"]}
        | ({"PATH": os.environ["PATH"]} if within else {}),
        cwd=container["workingDir"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    kube.processes[pod] = process
    kube.runs(pod)
    assert process.stdout is not None
    for line in process.stdout:
        kube.say(pod, line.decode().rstrip("\n"))
    code = process.wait()
    if pod in kube.pods:
        kube.ends(pod, 128 - code if code < 0 else code)


@contextlib.contextmanager
def kube_server(folder: Path, played: Callable[[Kube, str], object] = lambda kube, pod: None) -> Iterator[Kube]:
    """The cluster, and in `folder` the kubeconfig by which it is found."""
    kube = Kube(played)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"kube": kube}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    named = {"name": "test", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "test", "clusters": [named],
        "users": [{"name": "test", "user": {"token": "secret-token"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }  # fmt: skip
    (folder / "kubeconfig").write_text(json.dumps(config))
    try:
        yield kube
    finally:
        kube.close()
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    # Else a body waits for the acknowledgement of its headers, which takes 40 ms.
    disable_nagle_algorithm = True
    protocol_version = "HTTP/1.1"
    kube: Kube

    def do_GET(self) -> None:
        kube, path, query = self.kube, urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        watched = "watch" in query
        if self._faulty("WATCH" if watched else "GET", path):
            return
        name = path.rpartition("/")[2]
        if path.endswith("/jobs/" + name):
            with kube.changed:
                job = kube.jobs.get(name)
                self._answer(*((200, job) if job else (404, _status(404, f'jobs.batch "{name}" not found'))))
        elif path.endswith("/pods"):
            label, _, value = query["labelSelector"][0].partition("=")
            if watched:
                until = time.monotonic() + min(kube.watch_seconds, int(query["timeoutSeconds"][0]))
                events = kube.events_since(int(query["resourceVersion"][0]), until)
                self._stream(json.dumps(one).encode() + b"\n" for one in events if _has(one["object"], label, value))
                return
            with kube.changed:
                found = [pod for pod in kube.pods.values() if _has(pod, label, value)]
                self._answer(200, {"kind": "PodList", "metadata": {"resourceVersion": kube.version}, "items": found})
        elif path.endswith("/log"):
            self._log(path.split("/")[-2], query)
        elif path.endswith("/workloads"):
            known = "/v1beta1/" in path
            self._answer(*((200, {"items": kube.workloads}) if known else (404, _status(404, "no such version"))))
        else:
            self._answer(404, _status(404, path))

    def do_POST(self) -> None:
        body = self._body()
        if self._faulty("POST", self.path):
            return
        name = body["metadata"]["name"]
        if name in self.kube.jobs:
            self._answer(409, _status(409, f'jobs.batch "{name}" already exists'))
            return
        self.kube.manifests.append(body)
        self._answer(201, self.kube.make_job(body))

    def do_DELETE(self) -> None:
        body, path = self._body(), urlsplit(self.path).path
        if self._faulty("DELETE", path):
            return
        name = path.rpartition("/")[2]
        if "/jobs/" in path:
            self.kube.delete_job(name, body, self._answer)
            return
        grace = float(parse_qs(urlsplit(self.path).query)["gracePeriodSeconds"][0])
        self._answer(200, {})
        self.kube.delete_pod(name, grace)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _log(self, pod: str, query: dict[str, list[str]]) -> None:
        log = self.kube.logs.get(pod)
        if log is None or pod not in self.kube.pods:
            self._answer(404, _status(404, f'pods "{pod}" not found'))
            return
        since = time.time() - int(query["sinceSeconds"][0]) if "sinceSeconds" in query else 0.0

        def lines() -> Iterator[bytes]:
            sent = 0
            while True:
                with self.kube.changed:
                    if len(log.lines) == sent and not log.ended:
                        self.kube.changed.wait(0.2)
                    new, ended = log.lines[sent:], log.ended
                for at, text in new:
                    sent += 1
                    if datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp() >= since:
                        yield at.encode() + b" " + text + b"\n"
                    if self.kube.cut_log_after and sent >= self.kube.cut_log_after:
                        self.kube.cut_log_after = 0
                        raise ConnectionAbortedError
                if ended and sent == len(log.lines):
                    return

        self._stream(lines())

    def _faulty(self, verb: str, path: str) -> bool:
        """True if a fault answered."""
        self.kube.asked.append(f"{verb} {path}")
        for fault in self.kube.faults:
            if fault.times > 0 and re.search(fault.request, f"{verb} {path}"):
                fault.times -= 1
                if fault.in_stream:
                    event = {"type": "ERROR", "object": _status(fault.status, fault.message)}
                    self._stream([json.dumps(event).encode() + b"\n"])
                elif fault.page:
                    self._write(fault.status, fault.page, {"Content-Type": "text/html"})
                elif fault.status:
                    retry = {"Retry-After": fault.retry_after} if fault.retry_after else {}
                    self._answer(fault.status, _status(fault.status, fault.message), retry)
                else:
                    # As a server that goes away: no answer at all.
                    self.close_connection = True
                return True
        return False

    def _body(self) -> Json:
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")

    def _answer(self, status: int, body: Json, headers: dict[str, str] | None = None) -> None:
        self._write(status, json.dumps(body).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _write(self, status: int, text: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(text)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)

    def _stream(self, chunks: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for chunk in chunks:
                self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except (ConnectionError, OSError):
            self.close_connection = True


def _has(pod: Json, label: str, value: str) -> bool:
    return pod["metadata"]["labels"].get(label) == value


def _status(code: int, message: str) -> Json:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
