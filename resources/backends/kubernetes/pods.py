"""The pods of a Job, as a watch tells of them."""

from __future__ import annotations

from trainworthy.resources.backends.kubernetes.api import Api, ExpiredError
from trainworthy.resources.backends.kubernetes.manifest import Json


class Pods:
    """The pods that the Job `uid` owns, among those with a label."""

    def __init__(self, api: Api, selector: str, uid: str) -> None:
        self._api, self._selector, self._uid = api, selector, uid
        self._version = ""
        # By their uid.
        self._known: dict[str, Json] = {}
        self._gone: set[str] = set()

    def look(self, seconds: int) -> None:
        """Follow what happens to them, for so many seconds or until something does. Raises as Api's requests."""
        if not self._version:
            self._list()
            return
        try:
            for event in self._api.pod_changes(self._selector, self._version, seconds):
                self._version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._take(event["object"], deleted=event["type"] == "DELETED")
                    return
        except ExpiredError:
            self._version = ""
        except BaseException:
            # What happened meanwhile may be lost with the stream.
            self._version = ""
            raise

    def newest(self, index: int) -> tuple[Json | None, bool]:
        """The pod that was made last, as it was seen last, and whether it is gone; None before there was one.

        One that is there comes before those that are gone: the times are whole seconds, of more than one server.
        """
        of_index = [
            (pod["metadata"]["uid"] not in self._gone, pod["metadata"]["creationTimestamp"], pod)
            for pod in self._known.values()
            if index_of(pod) == index
        ]
        there, _, newest = max(of_index, key=lambda known: known[:2], default=(True, "", None))
        return newest, not there

    def _list(self) -> None:
        there, version = self._api.pods(self._selector)
        for pod in there:
            self._take(pod, deleted=False)
        self._gone |= set(self._known) - {pod["metadata"]["uid"] for pod in there}
        self._version = version

    def _take(self, pod: Json, *, deleted: bool) -> None:
        if owner_of(pod) != self._uid:
            return
        uid = pod["metadata"]["uid"]
        self._known[uid] = pod
        if deleted:
            self._gone.add(uid)


def index_of(pod: Json) -> int:
    """Which of its Job's pods it is; 0 where there is one."""
    return int(pod["metadata"].get("annotations", {}).get("batch.kubernetes.io/job-completion-index", 0))


def owner_of(pod: Json) -> str:
    """The uid of the Job that made a pod, also where the Job is gone and the pod was left; "" if none did."""
    metadata = pod["metadata"]
    owners = (owner["uid"] for owner in metadata.get("ownerReferences", []) if owner["kind"] == "Job")
    return next(owners, metadata.get("labels", {}).get("batch.kubernetes.io/controller-uid", ""))
