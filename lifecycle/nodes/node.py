"""One of the machines whose ranks train one model: its number, and where all of them meet."""

from __future__ import annotations

import argparse
import contextlib
import socket
from dataclasses import dataclass

from trainworthy.lifecycle.errors import SettingsError
from trainworthy.lifecycle.protocol.ranks import ranks_of

ENDPOINT_FIX = "name an address of the first node by which the others reach it, and a free port of it: 10.0.0.5:29400"


@dataclass(frozen=True)
class Node:
    """Node `number` of so many `nodes`, 0 the first, which meet at `host` and `port` of the first.

    `interface` is the network device by which ranks talk, "" for the one by which the endpoint is reached. A node that
    is alone has no endpoint.
    """

    number: int = 0
    nodes: int = 1
    host: str = ""
    port: int = 0
    interface: str = ""

    @property
    def first(self) -> bool:
        return self.number == 0

    @property
    def endpoint(self) -> str:
        """As an address with its port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def others(self) -> tuple[int, ...]:
        """The numbers of all nodes but this one."""
        return tuple(number for number in range(self.nodes) if number != self.number)

    @property
    def arguments(self) -> list[str]:
        """What its agent is told; nothing of a node that is alone."""
        if self.nodes == 1:
            return []
        device = ["--interface", self.interface] if self.interface else []
        return [
            "--nodes", str(self.nodes), "--node-rank", str(self.number), "--endpoint", self.endpoint, *device,
        ]  # fmt: skip

    def ranks(self, processes: int) -> range:
        """The ranks of so many that are this node's."""
        return ranks_of(self.number, self.nodes, processes)


ALONE = Node()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the agent of a node is told about it."""
    parser.add_argument("--nodes", type=int, default=1, help="machines that train together")
    parser.add_argument("--node-rank", type=int, default=0, help="number of this one, 0 the first, which decides")
    parser.add_argument("--endpoint", default="", help="HOST:PORT of the first, where several meet")
    parser.add_argument("--interface", default="", help="network device for the ranks' messages")


def node_of(options: argparse.Namespace) -> Node:
    """The node that the arguments name. Raises SettingsError if they name none."""
    if options.nodes < 1 or not 0 <= options.node_rank < options.nodes:
        value = f"--nodes {options.nodes} --node-rank {options.node_rank}"
        raise SettingsError("there is no such node", value=value, fix="count nodes from 0 to one less than --nodes")
    if options.nodes == 1:
        return ALONE
    host, _, port = options.endpoint.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise SettingsError("several nodes need an endpoint", value=options.endpoint or None, fix=ENDPOINT_FIX)
    return Node(options.node_rank, options.nodes, host.strip("[]"), int(port), options.interface)


def interface_of(node: Node) -> str:
    """Name of the device by which its ranks talk. Raises SettingsError if there is no such device, or no way there."""
    import psutil

    devices = psutil.net_if_addrs()
    if node.interface:
        if node.interface not in devices:
            fix = f"name one of {', '.join(sorted(devices))}"
            raise SettingsError("this machine has no such network device", value=node.interface, fix=fix)
        return node.interface
    own = own_address(node.host, node.port)
    for name, addresses in devices.items():
        if any(address.address.partition("%")[0] == own for address in addresses):
            return name
    raise SettingsError(
        "no network device has the address by which the endpoint is reached", value=own, fix="--interface"
    )


def own_address(host: str, port: int) -> str:
    """The address of this machine by which it reaches another. Nothing is sent. Raises SettingsError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with contextlib.closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0]).partition("%")[0]
    except OSError as error:
        raise SettingsError(f"there is no way to {host}: {error.strerror}", value=host, fix=ENDPOINT_FIX) from None
