"""Conditional writes, for all of PutObject, CopyObject, CompleteMultipartUpload and DeleteObject alike.

moto knows some of them, and these from one version to the next differently. As Amazon documents them: a failed
condition is a 412; to replace an object that is absent is a 404; to delete one that is absent succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping

from emulators.common.messages import Answer
from emulators.s3.errors import error

HEADERS = ("If-Match", "If-None-Match")


def refusal(headers: Mapping[str, str], etag: str | None, *, deleting: bool) -> Answer | None:
    """What to answer instead of writing; None if the conditions hold. No etag: no object."""
    if headers.get("If-None-Match") == "*" and etag is not None and not deleting:
        return error(412, "If-None-Match")
    wanted = headers.get("If-Match")
    if wanted is None:
        return None
    if etag is None:
        return None if deleting else error(404)
    if wanted == "*" or wanted.strip('"') == etag.strip('"'):
        return None
    return error(412, "If-Match")
