"""Several calls in one request. Each succeeds or fails by itself."""

from __future__ import annotations

import re
from collections.abc import Callable

from multidict import CIMultiDict

from support.emulators.common.messages import Answer, Request
from support.emulators.gcs.errors import GcsError
from support.emulators.gcs.multipart import split_head, split_parts

_BOUNDARY = "batch_of_the_emulator"


def batch(request: Request, answer: Callable[[Request], Answer]) -> Answer:
    pieces = []
    for part in split_parts(request.headers.get("Content-Type", ""), request.body):
        inner = answer(_inner_request(part.body, request))
        identity = part.headers.get("content-id", "").strip("<>")
        content_type = inner.headers.get("Content-Type", "application/json; charset=UTF-8")
        pieces.append(
            f"--{_BOUNDARY}\r\nContent-Type: application/http\r\nContent-ID: <response-{identity}>\r\n\r\n"
            f"HTTP/1.1 {inner.status} Status\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(inner.body)}\r\n\r\n".encode()
            + inner.body
            + b"\r\n"
        )
    body = b"".join(pieces) + f"--{_BOUNDARY}--\r\n".encode()
    return Answer(200, body, {"Content-Type": f'multipart/mixed; boundary="{_BOUNDARY}"'})


def _inner_request(text: bytes, outer: Request) -> Request:
    head, body = split_head(text)
    first, *lines = head.decode().strip().splitlines()
    match = re.fullmatch(r"([A-Z]+) (\S+)(?: HTTP/\S+)?", first.strip())
    if match is None:
        raise GcsError(400, f"Malformed request in a batch: {first}")
    pairs = (line.partition(":") for line in lines)
    headers = CIMultiDict({name.strip(): value.strip() for name, _, value in pairs})
    headers.setdefault("Host", outer.headers.get("Host", ""))
    return Request(match[1], re.sub(r"^https?://[^/]+", "", match[2]), headers, body.strip())
