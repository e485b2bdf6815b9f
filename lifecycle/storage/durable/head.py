"""One small object of a bucket that says who writes: changed only as it was read, its token rising with each holder."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from typing import Literal, TypeVar

from pydantic import ValidationError

from trainworthy.lifecycle.spec.frozen import Frozen
from trainworthy.lifecycle.storage.durable.bucket import Bucket, ObjectChangedError
from trainworthy.lifecycle.storage.durable.holder import Name

# Two write it at most: a lease that is renewed and what its holder commits, or two machines for a moment.
TRIES = 20


class LeaseHead(Frozen):
    """Who holds it; `owner` is "" where nobody does. `renewal` rises with each write, so that no two are equal."""

    form: Literal[1] = 1
    token: int = 0
    owner: str = ""
    host: str = ""
    renewal: int = 0

    @property
    def holder(self) -> Name | None:
        """The holder's name."""
        return Name(self.owner, self.host, self.renewal) if self.owner else None


HeadT = TypeVar("HeadT", bound=LeaseHead)


def read_object(bucket: Bucket, name: str, kind: type[HeadT]) -> tuple[HeadT, str | None]:
    """The object and its version, an empty one where there is none. Raises OSError, also if it is none of ours."""
    stored = bucket.read(name)
    if stored is None:
        return kind(), None
    try:
        return kind.model_validate_json(stored[0]), stored[1]
    except ValidationError:
        raise OSError(errno.EIO, "what lies there was not written by Trainworthy", f"{bucket.address}/{name}") from None


def change_object(bucket: Bucket, name: str, kind: type[HeadT], change: Callable[[HeadT], HeadT]) -> HeadT:
    """Write what `change` makes of it, anew as long as others write between; whatever it raises, raises."""
    for _ in range(TRIES):
        head, version = read_object(bucket, name, kind)
        changed = change(head).model_copy(update={"renewal": head.renewal + 1})
        with contextlib.suppress(ObjectChangedError):
            bucket.write(name, changed.model_dump_json().encode(), version)
            return changed
    raise TimeoutError(errno.ETIMEDOUT, f"others wrote it between, {TRIES} times in a row", f"{bucket.address}/{name}")
