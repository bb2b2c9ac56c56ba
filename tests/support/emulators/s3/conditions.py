"""Conditional writes, for all of PutObject, CopyObject, CompleteMultipartUpload and DeleteObject alike.

moto knows some of them, and these from one version to the next differently. As Amazon documents them: a failed
condition is a 412; to replace an object that is absent is a 404; to delete one that is absent succeeds.

Other services have quirks, which a test can switch on: `QUIRKS`.
"""

from __future__ import annotations

from collections.abc import Mapping

from support.emulators.common.messages import Answer
from support.emulators.s3.errors import error

HEADERS = ("If-Match", "If-None-Match")

QUIRKS = frozenset(
    {
        "refuses quoted ETags",
        "ignores conditions of DELETE",
        "ignores If-Match",
        "ignores If-None-Match",
        "refuses If-Match",
    }
)
"""Ceph's radosgw 16.2 has the first two, s3rver 3.7 the next two; the last is made up."""


def refusal(
    headers: Mapping[str, str], etag: str | None, *, deleting: bool, quirks: frozenset[str] = frozenset()
) -> Answer | None:
    """What to answer instead of writing; None if the conditions hold. No etag: no object."""
    if deleting and "ignores conditions of DELETE" in quirks:
        return None
    if headers.get("If-None-Match") == "*" and etag is not None and not deleting:
        return None if "ignores If-None-Match" in quirks else error(412, "If-None-Match")
    wanted = headers.get("If-Match")
    if wanted is None or "ignores If-Match" in quirks:
        return None
    if etag is None:
        return None if deleting else error(404)
    if "refuses If-Match" in quirks or (wanted.startswith('"') and "refuses quoted ETags" in quirks):
        return error(412, "If-Match")
    if wanted == "*" or wanted.strip('"') == etag.strip('"'):
        return None
    return error(412, "If-Match")
