"""How the pods of one training become its nodes: which one this is, and where all of them meet.

Each says in the folder of their start where it is, and the first one, once all have, at which address and port its
agent will listen. So no name has to be served by the cluster, no right is needed to make one, and an agent begins
only when all pods run: however long one of them waits for a machine, that is a wait for a machine.

The files are there before the pods, empty: what a file server's clients remember longest is that there was nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.nodes.node import Node

# Given to each pod of an Indexed Job by the cluster, and by the manifest.
INDEX, ADDRESS = "JOB_COMPLETION_INDEX", "POD_IP"
# In the folder of a start: a folder for each pod by its number, with its address in it; and where they meet.
_HERE, _ENDPOINT = "address", "endpoint"
LOOK_SECONDS = 0.5


def folders(folder: Path, pods: int) -> list[Path]:
    """Where each pod of a start has its signs and its end, by its number."""
    return [folder] if pods == 1 else [folder / str(number) for number in range(pods)]


def prepare(folder: Path, pods: int) -> None:
    """Make the folders of a start, before any pod of it."""
    for pod_folder in folders(folder, pods):
        pod_folder.mkdir(parents=True)
        if pods > 1:
            (pod_folder / _HERE).touch()
    if pods > 1:
        (folder / _ENDPOINT).touch()


class Meeting:
    """Pod `number` of so many, at `address` of the cluster's network, in the folder of their start."""

    def __init__(self, folder: Path, number: int, pods: int, address: str) -> None:
        self._start, self._number, self._pods, self._address = folder, number, pods, address
        # Of a pod whose place another has taken since the same file may tell.
        self._token = uuid.uuid4().hex[:8]

    def node(self, look: Callable[[], None]) -> Node:
        """This pod as a node, once all are there; `look` is called meanwhile. Raises SettingsError."""
        (self.folder / _HERE).write_text(f"{self._address} {self._token}\n")
        if self._number == 0:
            # An address that is none is told before the wait.
            _free_port(self._address)
            tokens = [word[-1] for word in self._wait_until_written(self._all, look)]
            port = _free_port(self._address)
            (self._start / _ENDPOINT).write_text(f"{self._address} {port} {' '.join(tokens)}\n")
            return Node(0, self._pods, self._address, port)
        ((host, port_text, *_),) = self._wait_until_written(self._endpoint, look)
        return Node(self._number, self._pods, host, int(port_text))

    def leave(self) -> None:
        """What runs in its place later is another."""
        with contextlib.suppress(OSError):
            (self.folder / _HERE).write_text("")

    @property
    def folder(self) -> Path:
        """That of this pod."""
        return self._start / str(self._number)

    def _all(self) -> list[list[str]]:
        return [_words(folder / _HERE) for folder in folders(self._start, self._pods)]

    def _endpoint(self) -> list[list[str]]:
        words = _words(self._start / _ENDPOINT)
        return [words if self._token in words else []]

    def _wait_until_written(self, ask: Callable[[], list[list[str]]], look: Callable[[], None]) -> list[list[str]]:
        while not all(answers := ask()):
            look()
            time.sleep(LOOK_SECONDS)
        return answers


def meeting_of(folder: Path, pods: int) -> Meeting | None:
    """Where this pod meets those that train with it, by its environment; None of one alone. Raises SettingsError."""
    if pods == 1:
        return None
    index = os.environ.get(INDEX, "")
    if not index.isdecimal() or int(index) >= pods:
        raise SettingsError(f"{INDEX} names none of {pods} pods", value=index or None, fix="run it by an Indexed Job")
    return Meeting(folder, int(index), pods, os.environ.get(ADDRESS, ""))


def _words(path: Path) -> list[str]:
    """Of a line that is whole; none while the storage does not answer."""
    try:
        text = path.read_text()
    except OSError:
        return []
    return text.split() if text.endswith("\n") else []


def _free_port(address: str) -> int:
    """A port of this pod's that is free now."""
    try:
        family, _, _, _, at = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as free:
            free.bind(at)
            return free.getsockname()[1]
    except OSError as error:
        fix = f"let the manifest give {ADDRESS} by status.podIP"
        raise SettingsError(f"{ADDRESS} is no address of this pod: {error}", value=address or None, fix=fix) from None
