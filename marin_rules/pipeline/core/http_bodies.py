"""The body of a stored HTTP response, as its sender meant it: out of its chunks, and decompressed.

Not every archive keeps a body as it was sent, but most keep its headers: a body that does not begin as they say is used
unchanged. One that begins that way and breaks off, or has an unknown encoding, is bad. The output is limited, since a
few bytes can expand to any number.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Mapping

_CHUNK = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?\n")
_GZIP, _ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_ZSTANDARD_PIECE = 1 << 7
"""Bytes at a time: each can become 30,000."""

_NONE = frozenset({"", "identity", "none", "utf-8", "binary", "7bit", "8bit"})
"""What servers say about bodies that are not encoded, rightly or not."""


class BadBody(Exception):
    """Why there is no telling what the body was."""


def decoded_body(body: bytes, headers: Mapping[str, str], largest: int) -> bytes:
    """At most a byte more than `largest`. Names of headers are in lower case."""
    said = f"{headers.get('content-encoding', '')},{headers.get('transfer-encoding', '')}"
    for name in reversed([name.strip().lower() for name in said.split(",")]):
        if name in _NONE:
            continue
        decode = _DECODERS.get(name)
        if decode is None:
            raise BadBody(f"encoded as {name[:50]!r}")
        body = decode(body, largest + 1)
    return body


def _unchunked(body: bytes, most: int) -> bytes:
    pieces: list[bytes] = []
    place = 0
    while found := _CHUNK.match(body, place):
        size, start = int(found[1], 16), found.end()
        if size == 0:
            return b"".join(pieces)
        if start + size > len(body):
            raise BadBody("ends in the middle of a chunk")
        pieces.append(body[start : start + size])
        place = start + size
        place += 2 if body[place : place + 2] == b"\r\n" else body[place : place + 1] == b"\n"
    if pieces:
        raise BadBody("its chunks break off")
    return body


def _gunzipped(body: bytes, most: int) -> bytes:
    return _inflated(body, most, 31) if body.startswith(_GZIP) else body


def _deflated(body: bytes, most: int) -> bytes:
    """With the head that the standard asks for, or without, as many servers send it."""
    for bits in (15, -15):
        try:
            return _inflated(body, most, bits)
        except BadBody as error:
            bad = error
    if body.lstrip()[:1] == b"<":
        return body
    raise bad


def _inflated(body: bytes, most: int, bits: int) -> bytes:
    made = io.BytesIO()
    while body and made.tell() < most:
        one = zlib.decompressobj(wbits=bits)
        try:
            made.write(one.decompress(body, most - made.tell()))
        except zlib.error as error:
            raise BadBody(str(error)) from None
        if not one.eof and made.tell() < most:
            raise BadBody("ends in the middle of its compressed data")
        body = one.unused_data if one.unused_data.startswith(_GZIP) else b""
    return made.getvalue()


def _from_brotli(body: bytes, most: int) -> bytes:
    import brotli  # fastwarc brings it.

    if body.lstrip()[:1] == b"<":
        return body
    one = brotli.Decompressor()
    try:
        made = one.process(body, output_buffer_limit=most)
        while len(made) < most and not one.is_finished():
            more = one.process(b"", output_buffer_limit=most - len(made))
            if not more:
                raise BadBody("ends in the middle of its compressed data")
            made += more
    except brotli.error as error:
        raise BadBody(str(error)) from None
    return bytes(made[:most])


def _from_zstandard(body: bytes, most: int) -> bytes:
    import zstandard

    if not body.startswith(_ZSTANDARD):
        return body
    made = io.BytesIO()
    one = zstandard.ZstdDecompressor().decompressobj()  # Its readers mistake a body that breaks off for a shorter one.
    for start in range(0, len(body), _ZSTANDARD_PIECE):
        try:
            made.write(one.decompress(body[start : start + _ZSTANDARD_PIECE]))
        except zstandard.ZstdError as error:
            raise BadBody(str(error)) from None
        if one.eof or made.tell() >= most:
            return made.getvalue()[:most]
    raise BadBody("ends in the middle of its compressed data")


_DECODERS: Mapping[str, Callable[[bytes, int], bytes]] = {
    "chunked": _unchunked,
    "gzip": _gunzipped,
    "x-gzip": _gunzipped,
    "deflate": _deflated,
    "br": _from_brotli,
    "zstd": _from_zstandard,
}
