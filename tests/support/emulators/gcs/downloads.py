"""An object's content, whole or a range of it."""

from __future__ import annotations

import re

from support.emulators.common.messages import Answer, Request
from support.emulators.gcs.errors import GcsError
from support.emulators.gcs.store import StoredObject


def download(found: StoredObject, request: Request) -> Answer:
    hashes = [f"crc32c={found.crc32c}"] + ([f"md5={found.md5}"] if found.components is None else [])
    headers = {
        "Content-Type": found.fields.get("contentType", "application/octet-stream"),
        "Accept-Ranges": "bytes",
        "ETag": f"{found.generation}/{found.metageneration}",
        "X-Goog-Generation": str(found.generation),
        "X-Goog-Metageneration": str(found.metageneration),
        "X-Goog-Hash": ",".join(hashes),
        "X-Goog-Stored-Content-Encoding": found.fields.get("contentEncoding", "identity"),
        "X-Goog-Stored-Content-Length": str(len(found.data)),
    }
    if "contentEncoding" in found.fields:
        headers["Content-Encoding"] = found.fields["contentEncoding"]
    wanted = _range(request.headers.get("Range", ""), len(found.data))
    if wanted is None:
        return Answer(200, found.data, headers)
    first, last = wanted
    headers["Content-Range"] = f"bytes {first}-{last}/{len(found.data)}"
    return Answer(206, found.data[first : last + 1], headers)


def _range(header: str, size: int) -> tuple[int, int] | None:
    """First and last byte; None for all of it. A header that is no byte range is ignored, as the standard asks."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", header)
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        first, last = max(0, size - int(match[2])), size - 1
    else:
        first, last = int(match[1]), min(int(match[2] or size - 1), size - 1)
    if first >= size:
        raise GcsError(416)
    return None if last < first else (first, last)
