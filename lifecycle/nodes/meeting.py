"""Where the agents of several nodes meet: a store of torch in the first one's process, which the others ask.

Before any rank starts they agree: on the job, on the storage, and that each has what its ranks need. While ranks train
each shows that it lives, and tells when its ranks have ended. torch's own rendezvous uses the same store afterwards.
The store takes no password. It listens at the endpoint's address alone, on a network whose machines are trusted.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.nodes.node import ENDPOINT_FIX, Node

# Between two looks at the store, by whoever waits for a word in it.
POLL_SECONDS = 0.2
# So long the first waits until the others have heard that nothing is begun.
HEARD_SECONDS = 10.0
Message = dict[str, Any]


class FirstIsGoneError(Exception):
    """The store does not answer any more, and so the agent that had it has ended."""


class Meeting:
    """This node among the others; making it waits at most so many `seconds` for the first node.

    Raises SettingsError if the first cannot listen at the endpoint, or another does not find it there.
    """

    def __init__(self, node: Node, seconds: float) -> None:
        from torch.distributed import PrefixStore, TCPStore  # pyright: ignore[reportPrivateImportUsage]

        self.node = node
        self._beats, self._last_beats = 0, dict[int, tuple[bytes, float]]()
        settings: dict[str, Any] = {"wait_for_workers": False, "timeout": timedelta(seconds=seconds)}
        if node.first:
            # torch listens at all addresses of a machine otherwise. Its rendezvous takes the server that is there.
            settings |= {"multi_tenant": True, "master_listen_fd": _listening(node)}
        try:
            store = TCPStore(node.host, node.port, is_master=node.first, **settings)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0][:200]
            problem = f"node {node.number} finds no first node at {node.endpoint}: {reason}"
            fix = "start the agent of node 0, and let the port be reached from here; it listens as long as it waits"
            raise SettingsError(problem, value=node.endpoint, fix=fix) from None
        # Apart from the keys of torch.
        self._store = PrefixStore("trainworthy", store)

    def tell(self, what: str, message: Message) -> None:
        """Write a word of this node's. Raises FirstIsGoneError."""
        with _first_is_there():
            self._store.set(what, json.dumps(message))

    def heard(self, what: str) -> Message | None:
        """A word, if it is told. Raises FirstIsGoneError."""
        with _first_is_there():
            return json.loads(self._store.get(what)) if self._store.check([what]) else None

    def wait_for(self, what: str, seconds: float | None = None) -> Message | None:
        """A word, once it is told; None if that takes longer. Raises FirstIsGoneError."""
        until = None if seconds is None else time.monotonic() + seconds
        while (message := self.heard(what)) is None:
            if until is not None and time.monotonic() > until:
                return None
            time.sleep(POLL_SECONDS)
        return message

    def gather(self, message: Message, seconds: float) -> dict[int, Message]:
        """Of the first: tell the others what it is about, and wait for their answers; of those that come in time."""
        self.tell("about", message)
        until = time.monotonic() + seconds
        answers = {
            number: self.wait_for(f"answer/{number}", max(0.0, until - time.monotonic())) for number in self.node.others
        }
        return {number: answer for number, answer in answers.items() if answer is not None}

    def decide(self, decision: Message, answered: dict[int, Message]) -> None:
        """Of the first: say what follows; if that is nothing, wait until those that answered have heard it."""
        self.tell("decision", decision)
        if decision.get("told") is not None:
            until = time.monotonic() + HEARD_SECONDS
            for number in answered:
                self.wait_for(f"heard/{number}", max(0.0, until - time.monotonic()))

    def answer(self, about: Callable[[Message], Message]) -> Message:
        """Of another: answer what it is about, and hear what follows. Raises FirstIsGoneError."""
        message = self.wait_for("about")
        assert message is not None
        self.tell(f"answer/{self.node.number}", about(message))
        decided = self.wait_for("decision")
        assert decided is not None
        self.tell(f"heard/{self.node.number}", {})
        return decided

    def beat(self) -> None:
        """Show that this node lives. Raises FirstIsGoneError."""
        self._beats += 1
        self.tell(f"beat/{self.node.number}", {"beat": self._beats})

    def silent_seconds(self, number: int) -> float:
        """How long another node has shown nothing, from the first look on. Raises FirstIsGoneError."""
        with _first_is_there():
            key = f"beat/{number}"
            shown = self._store.get(key) if self._store.check([key]) else b""
        before, since = self._last_beats.get(number, (None, 0.0))
        if shown != before:
            since = time.monotonic()
            self._last_beats[number] = (shown, since)
        return time.monotonic() - since

    def over(self, how: str) -> None:
        """All ranks of this node have ended: `well`, in a `hang`, or `badly`. Raises FirstIsGoneError."""
        self.tell(f"over/{self.node.number}", {"how": how})

    def how(self, number: int) -> str:
        """How the ranks of a node have ended; "" as long as they have not. Raises FirstIsGoneError."""
        return (self.heard(f"over/{number}") or {"how": ""})["how"]


def _listening(node: Node) -> int:
    """Descriptor of a socket that listens at the endpoint's address and no other. Raises SettingsError."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(node.host, node.port, type=socket.SOCK_STREAM)[0]
        with contextlib.ExitStack() as opened:
            listening = opened.enter_context(socket.socket(family, kind))
            # The port of an agent that has just ended.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(128)
            return listening.detach()
    except OSError as error:
        problem = f"the first node cannot listen at the endpoint: {error.strerror}"
        raise SettingsError(problem, value=node.endpoint, fix=ENDPOINT_FIX) from None


@contextlib.contextmanager
def _first_is_there() -> Iterator[None]:
    """Raises FirstIsGoneError for what torch says of a store that does not answer."""
    try:
        yield
    except RuntimeError as error:
        raise FirstIsGoneError(str(error).partition("\n")[0]) from None
