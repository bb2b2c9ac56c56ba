"""MIME bodies of several parts: uploads (`multipart/related`) and batches (`multipart/mixed`).

Written by hand because an upload's last part is any bytes at all: the standard library's parser would alter them, and
gcsfs ends lines with a bare line feed where google-cloud-storage uses both characters. In an upload that is refused, as
Google's testbench does, unless a test wants it otherwise: Google's service is said to take it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from support.emulators.gcs.errors import GcsError


@dataclass(frozen=True)
class Part:
    headers: dict[str, str]
    """By lower-case name."""

    body: bytes


def split_parts(content_type: str, body: bytes, *, strict: bool = False) -> list[Part]:
    """The parts of a body; with `strict`, both characters must end each line of it."""
    match = re.search(r"""boundary=["']?([^"';]+)""", content_type)
    if match is None:
        raise GcsError(400, "Missing multipart boundary")
    # The line break before a boundary belongs to the boundary, and the first boundary may lack it.
    end = rb"\r\n" if strict else rb"\r?\n"
    boundary = re.compile(
        rb"(?:^|" + end + rb")--" + re.escape(match[1].encode()) + rb"(?:--)?[ \t]*(?:" + end + rb"|$)"
    )
    pieces = boundary.split(body)
    if len(pieces) < 3 or (strict and any(b"\r\n\r\n" not in piece for piece in pieces[1:-1])):
        raise GcsError(400, "Malformed multipart body")
    return [_part(piece) for piece in pieces[1:-1]]


def _part(piece: bytes) -> Part:
    head, _, body = _partition(piece)
    lines = head.decode().splitlines()
    pairs = (line.partition(":") for line in lines if ":" in line)
    return Part({name.strip().lower(): value.strip() for name, _, value in pairs}, body)


def _partition(piece: bytes) -> tuple[bytes, bytes, bytes]:
    """Headers, the empty line, body."""
    match = re.search(rb"\r?\n\r?\n", piece)
    if match is None:
        return piece, b"", b""
    return piece[: match.start()], match[0], piece[match.end() :]


def split_head(text: bytes) -> tuple[bytes, bytes]:
    head, _, body = _partition(text)
    return head, body
