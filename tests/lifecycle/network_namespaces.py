"""Two machines as far as their network goes: namespaces of this one's kernel, with a cable between them.

Each has addresses and ports of its own, and the processes in it reach the other by the cable alone. The files, the
clock and the process numbers are this machine's.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from socket import gethostname

import pytest


@dataclass(frozen=True)
class Machine:
    """A namespace: its name, its address and the device that has it."""

    name: str
    address: str
    device: str

    @property
    def etc(self) -> Path:
        """What `ip netns exec` shows as files of /etc there."""
        return Path("/etc/netns") / self.name

    def listening(self, pid: int) -> set[str]:
        """Addresses at which anybody listens there, by one of its processes: nothing else runs there than a test's."""
        found = set()
        for version, length in (("tcp", 8), ("tcp6", 32)):
            for line in Path(f"/proc/{pid}/net/{version}").read_text().splitlines()[1:]:
                _, local, _, state, *_ = line.split()
                address = bytes.fromhex(local[:length])
                # Each four bytes are a number of this machine's order.
                parts = [address[at : at + 4][::-1] for at in range(0, len(address), 4)]
                found |= {str(ip_address(b"".join(parts)))} if state == "0A" else set()
        return found

    def command(self, *command: str) -> list[str]:
        """A command as it is run there."""
        return ["ip", "netns", "exec", self.name, *command]


def ip(*given: str) -> None:
    subprocess.run(["ip", *given], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Made for the test and removed after it, which is skipped where that is not allowed.

    On CI it fails there, where iproute2 and the right are at hand.
    """
    machines = tuple(Machine(f"tw{os.getpid()}-{end}", f"10.213.77.{end}", f"tw{end}") for end in (1, 2))
    first, second = machines
    try:
        try:
            for machine in machines:
                ip("netns", "add", machine.name)
                # torch asks for the names of addresses, and waits for a server that nobody reaches from there.
                machine.etc.mkdir(parents=True)
                names = [("127.0.0.1", "localhost"), ("127.0.0.1", gethostname())]
                names += [(one.address, one.name) for one in machines]
                (machine.etc / "hosts").write_text("".join(f"{address} {name}\n" for address, name in names))
                ip("-n", machine.name, "link", "set", "lo", "up")
            ip("-n", first.name, "link", "add", first.device, "type", "veth", "peer", "name", second.device)
            ip("-n", first.name, "link", "set", second.device, "netns", second.name)
            for machine in machines:
                ip("-n", machine.name, "address", "add", f"{machine.address}/24", "dev", machine.device)
                ip("-n", machine.name, "link", "set", machine.device, "up")
        except (OSError, subprocess.CalledProcessError) as error:
            if os.environ.get("CI") == "true" and shutil.which("ip") and os.geteuid() == 0:
                raise
            pytest.skip(f"no network namespaces can be made here: {getattr(error, 'stderr', '') or error}".strip())
        yield first, second
    finally:
        for machine in machines:
            with contextlib.suppress(OSError):
                subprocess.run(["ip", "netns", "delete", machine.name], check=False, capture_output=True)
            shutil.rmtree(machine.etc, ignore_errors=True)
