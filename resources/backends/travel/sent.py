"""What was sent of a file, and whether it still stands for it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

# A file is sent whole: one that only grew is sent again once it has grown by that part of it, or after so long.
GROWN, GROWN_SECONDS = 0.1, 60.0


class Signature(NamedTuple):
    """Of a file: while it is equal its bytes are."""

    changed_ns: int
    size: int
    number: int


class Sent(NamedTuple):
    """A file as it was when it was sent last, with the hash of its bytes, and when by the monotonic clock."""

    signature: Signature
    sha256: str
    at: float

    def stands_for(self, signature: Signature) -> bool:
        """True if it still is that, or little more than it, for a while."""
        grew = signature.number == self.signature.number and signature.size > self.signature.size
        little = signature.size < self.signature.size * (1 + GROWN) and time.monotonic() - self.at < GROWN_SECONDS
        return signature == self.signature or (grew and little)


def signature_of(path: Path) -> Signature:
    """Of a file as it is now. Raises OSError."""
    status = path.stat()
    return Signature(status.st_mtime_ns, status.st_size, status.st_ino)
