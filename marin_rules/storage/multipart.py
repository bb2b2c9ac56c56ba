"""The body of a small upload to Google Cloud Storage, made well-formed.

gcsfs ends its lines with a bare line feed, which strict servers refuse (Google's own testbench does), and separates the
parts by a boundary that never changes: data with that boundary in it would be cut there.
"""

from __future__ import annotations

import re
import secrets

_BOUNDARY = b"==0=="
_HEAD = re.compile(
    rb"--" + _BOUNDARY + rb"\nContent-Type: ([^\n]+)\n\n([^\n]*)\n--" + _BOUNDARY + rb"\nContent-Type: ([^\n]+)\n\n"
)
_TAIL = b"\n--" + _BOUNDARY + b"--"


def well_formed(body: bytes) -> tuple[str, bytes] | None:
    """The content type and the body to send in place of gcsfs's; `None` for a body that gcsfs formats differently."""
    head = _HEAD.match(body)
    if head is None or not body.endswith(_TAIL):
        return None
    data = memoryview(body)[head.end() : len(body) - len(_TAIL)]
    boundary = _boundary_for(body)
    parts = (
        b"--%s\r\nContent-Type: %s\r\n\r\n%s\r\n" % (boundary, head[1], head[2]),
        b"--%s\r\nContent-Type: %s\r\n\r\n" % (boundary, head[3]),
        data,
        b"\r\n--%s--\r\n" % boundary,
    )
    return f'multipart/related; boundary="{boundary.decode()}"', b"".join(parts)


def _boundary_for(body: bytes) -> bytes:
    while (boundary := secrets.token_hex(16).encode()) in body:
        pass
    return boundary
