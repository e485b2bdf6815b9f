"""How machines that a cluster chose become the nodes of one training: which one this is, and where all of them meet.

Each (a pod of a Kubernetes Job, a node of a Ray job) says in the folder of their start where it is, and the first one,
once all have, at which address and port its agent will listen. So no name has to be served by the cluster, no right is
needed to make one, and an agent begins only when all run: however long one of them waits for a machine, that is a wait
for a machine.

The files are there before the nodes, empty: what a file server's clients remember longest is that there was nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.nodes.node import Node

# Given to each pod of an Indexed Job by the cluster, and by the manifest; others are told by arguments.
INDEX, ADDRESS = "JOB_COMPLETION_INDEX", "POD_IP"
# In the folder of a start: a folder for each node by its number, with its address in it; and where they meet.
_HERE, _ENDPOINT = "address", "endpoint"
LOOK_SECONDS = 0.5
Answer = TypeVar("Answer")


def folders(folder: Path, nodes: int) -> list[Path]:
    """Where each node of a start has its signs and its end, by its number."""
    return [folder] if nodes == 1 else [folder / str(number) for number in range(nodes)]


def prepare(folder: Path, nodes: int) -> None:
    """Make the folders of a start, before any node of it."""
    for node_folder in folders(folder, nodes):
        node_folder.mkdir(parents=True)
        if nodes > 1:
            (node_folder / _HERE).touch()
    if nodes > 1:
        (folder / _ENDPOINT).touch()


def absent(folder: Path, nodes: int) -> list[int]:
    """The numbers of those that the nodes of a start wait for; none once the first has said where all meet."""
    here = [_words(place / _HERE) for place in folders(folder, nodes)]
    if all(here) and [words[1] for words in here] == _words(folder / _ENDPOINT)[2:]:
        return []
    return [number for number, words in enumerate(here) if not _answers(words, here[0])] or [0]


class FolderMeeting:
    """Node `number` of so many, at `address` of the cluster's network, in the folder of their start.

    Each writes its address, a token of its own and that of the first node that it sees: what one has left that was
    killed hard, when the cluster took all of them back, answers to none that comes later.
    """

    def __init__(self, folder: Path, number: int, nodes: int, address: str) -> None:
        self._start, self._number, self._nodes, self._address = folder, number, nodes, address
        self._token = uuid.uuid4().hex[:8]

    def node(self, look: Callable[[], None]) -> Node:
        """This node, once all are there; `look` is called meanwhile. Raises SettingsError."""
        # An address that is none is told before the wait.
        _free_port(self._address)
        if self._number == 0:
            return self._meet_here(look)
        host, port_text, *_ = _wait_for(self._endpoint, look)
        return Node(self._number, self._nodes, host, int(port_text))

    def leave(self) -> None:
        """What runs in its place later is another."""
        with contextlib.suppress(OSError):
            (self.folder / _HERE).write_text("")

    @property
    def folder(self) -> Path:
        """That of this node."""
        return self._start / str(self._number)

    def _meet_here(self, look: Callable[[], None]) -> Node:
        """As the first: where all meet, told to those that have answered to it, and to no earlier one."""
        mine = [self._address, self._token]
        _wait_for(lambda: _written(self.folder / _HERE, mine), look)
        tokens = _wait_for(self._tokens, look)
        port = _free_port(self._address)
        _wait_for(lambda: _written(self._start / _ENDPOINT, [self._address, str(port), *tokens]), look)
        return Node(0, self._nodes, self._address, port)

    def _tokens(self) -> list[str]:
        """Of all nodes, once all have answered; none before."""
        here = [_words(folder / _HERE) for folder in folders(self._start, self._nodes)]
        return [words[1] for words in here] if all(_answers(words, here[0]) for words in here) else []

    def _endpoint(self) -> list[str]:
        """What the first has said to this node; nothing before. Answers to the first that is there now."""
        first, mine = _words(self._start / "0" / _HERE)[1:2], self.folder / _HERE
        answer = [self._address, self._token, *first]
        if _words(mine) != answer:
            _written(mine, answer)
        endpoint = _words(self._start / _ENDPOINT)
        return endpoint if self._token in endpoint else []


def meeting_of(folder: Path, nodes: int, number: str = "", address: str = "") -> FolderMeeting | None:
    """Where this node meets those that train with it; None of one alone. Raises SettingsError.

    A pod has what is not given by its environment.
    """
    if nodes == 1:
        return None
    number = number or os.environ.get(INDEX, "")
    if not number.isdecimal() or int(number) >= nodes:
        fix = f"run it by an Indexed Job, which sets {INDEX}, or give --number"
        raise SettingsError(f"this is none of the {nodes} nodes of its job", value=number or None, fix=fix)
    return FolderMeeting(folder, int(number), nodes, address or os.environ.get(ADDRESS, ""))


def _wait_for(ask: Callable[[], Answer], look: Callable[[], None]) -> Answer:
    """What is not empty of what is asked for again and again."""
    while not (answer := ask()):
        look()
        time.sleep(LOOK_SECONDS)
    return answer


def _answers(words: list[str], first: list[str]) -> bool:
    """True where a node has answered to the first one; that by itself does."""
    return bool(words and first) and words[-1] == first[1]


def _written(path: Path, words: list[str]) -> bool:
    """Write a line; False while the storage does not answer."""
    try:
        path.write_text(f"{' '.join(words)}\n")
    except OSError:
        return False
    return True


def _words(path: Path) -> list[str]:
    """Of a line that is whole; none while the storage does not answer."""
    try:
        text = path.read_text()
    except OSError:
        return []
    return text.split() if text.endswith("\n") else []


def _free_port(address: str) -> int:
    """A port at this node's address that is free now."""
    try:
        family, _, _, _, at = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as free:
            free.bind(at)
            return free.getsockname()[1]
    except OSError as error:
        fix = f"let a pod have {ADDRESS} by status.podIP, and a node of Ray its own --node-ip-address"
        raise SettingsError(
            f"a node has another address than it is told: {error}", value=address or None, fix=fix
        ) from None
