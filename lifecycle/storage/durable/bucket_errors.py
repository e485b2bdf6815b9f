"""What a store of objects or the way there says, as the error that a file would have raised."""

from __future__ import annotations

import errno
import re

# What was asked for, for how long, how often again, and what it met; each error names the object anyway.
_ASKED = re.compile(r"performing ([A-Z]+) \S+ in (\S+), after (\d+) retries,.* - (.+)")
_CODE, _STATUS = re.compile(r"<Code>(\w+)</Code>"), re.compile(r"status code: (\d{3})")
_REFUSED = {
    "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "AllAccessDisabled",
    "AccountProblem", "Forbidden",
}  # fmt: skip
_FULL = {"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "InsufficientCapacity"}
# What answers where no credentials are named: a machine's own address for its role.
_ROLE = "169.254."
# What is said where one of the two is named.
_HALF = ("Missing AccessKeyId", "Missing SecretAccessKey")


class NoObjectError(FileNotFoundError):
    """The bucket is there, and the object is not."""


def error_of(words: str, where: str) -> OSError:
    """What the store or the way there said, as the error that a file would have raised."""
    code = match[1] if (match := _CODE.search(words)) else ""
    status = int(match[1]) if (match := _STATUS.search(words)) else 0
    said = f"{status} {code}".strip() if status else words.partition("\n")[0]
    if (asked := _ASKED.search(words.partition("\n")[0])) is not None:
        tries = "1 try" if asked[3] == "0" else f"{int(asked[3]) + 1} tries"
        said = f"{asked[1]}, {tries} in {asked[2]}: {said if status else asked[4]}"
    if code == "RequestTimeTooSkewed":
        return PermissionError(errno.EACCES, "this machine's clock is not the store's: set it", where)
    if code == "NoSuchBucket":
        return FileNotFoundError(errno.ENOENT, "there is no such bucket: make it, or correct its name", where)
    # An answer to HEAD has no body, and so no code; any other 404 without one is of a proxy that knows no store.
    if code == "NoSuchKey" or (status == 404 and not code and "performing HEAD " in words):
        return NoObjectError(errno.ENOENT, "there is no such object", where)
    if _ROLE in words or any(missing in words for missing in _HALF):
        problem = (
            "no credentials are named: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role"
        )
        return PermissionError(errno.EACCES, problem, where)
    if code in _REFUSED or status in (401, 403):
        problem = f"the store refuses ({said}): its credentials need GetObject, PutObject, DeleteObject and ListBucket"
        return PermissionError(errno.EACCES, problem, where)
    if code in _FULL or status == 507:
        return OSError(errno.ENOSPC, f"the store is full ({said})", where)
    if status in (0, 404, 408, 429) or status >= 500:
        return TimeoutError(errno.ETIMEDOUT, f"the store does not answer ({said})", where)
    return OSError(errno.EIO, f"the store says {said}", where)
