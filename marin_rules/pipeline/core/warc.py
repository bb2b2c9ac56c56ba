"""Web pages in WARC files (`.warc`, `.warc.gz`, `.warc.zst`), streamed.

Every record is counted: a page is yielded, any other kind of record is dropped with its kind as the reason. fastwarc
mistakes a file that ends too early for a shorter one, so decompression and the end of the file are checked here. So are
the bodies of pages: one that fastwarc cannot decode may be the last record that it finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple, cast

from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DamagedShard
from marin_rules.pipeline.core.http_bodies import BadBody, decoded_body
from marin_rules.pipeline.core.shard_files import chunks_of

WARC_SUFFIXES = (".warc", ".warc.gz", ".warc.zst")

_END = b"\r\n\r\n"
"""Of each record, and so of the file."""

_HTML = ("text/html", "application/xhtml+xml")


class Page(NamedTuple):
    number: int
    """The record's place in the file, from 1."""

    id: str
    url: str
    date: str
    charset: str | None
    """As the server said."""

    body: bytes


def read_pages(path: str, name: str, account: Account, largest: int) -> Iterator[Page]:
    """The HTML pages of a file that were answered with 200; those that are too large are rejected."""
    from fastwarc.warc import WarcRecordType

    for number, (record, body) in enumerate(_whole_records(path, name, largest, WarcRecordType.response), 1):
        account.read += 1
        account.bytes_read += len(body)
        if record.record_type != WarcRecordType.response:
            account.drop(f"a WARC record of another kind ({record.record_type})")
            continue
        if record.http_headers is None or record.http_headers.status_code != 200:
            account.drop("not answered with 200")
            continue
        if (record.http_content_type or "").lower() not in _HTML:  # Servers write types in any case.
            account.drop("not HTML")
            continue
        headers = {name.lower(): value for name, value in record.http_headers.items()}
        try:
            body = decoded_body(body, headers, largest) if len(body) <= largest else body
        except BadBody as error:
            account.reject(number, "a body that cannot be decoded", id=_id_of(record), detail=str(error))
            continue
        if page := _page(number, record, record.http_charset, body, account, largest):
            yield page


def read_texts(path: str, name: str, account: Account, largest: int) -> Iterator[Page]:
    """The texts of a WET file, which are UTF-8: its records of the kind `conversion`."""
    from fastwarc.warc import WarcRecordType

    for number, (record, body) in enumerate(_whole_records(path, name, largest, WarcRecordType.conversion), 1):
        account.read += 1
        account.bytes_read += len(body)
        if record.record_type != WarcRecordType.conversion:
            account.drop(f"a WARC record of another kind ({record.record_type})")
        elif page := _page(number, record, "utf-8", body, account, largest):
            yield page


def _page(number: int, record: Any, charset: str | None, body: bytes, account: Account, largest: int) -> Page | None:
    id = _id_of(record)
    url = record.headers.get("WARC-Target-URI") or ""
    if len(body) > largest:
        account.reject(number, "too large", id=id, detail=f"{url}: more than {largest} bytes")
        return None
    return Page(number, id, url, record.headers.get("WARC-Date") or "", charset, body)


def _id_of(record: Any) -> str:
    id: str = record.record_id.removeprefix("<urn:uuid:").removesuffix(">")
    return id


def _whole_records(path: str, name: str, largest: int, kind: Any) -> Iterator[tuple[Any, bytes]]:
    """The records, those of one kind with up to a byte too many of their contents. Only the next one, or a good end of
    the file, shows that a record is whole."""
    from fastwarc.warc import ArchiveIterator

    stream = _Stream(path, name)
    last: tuple[Any, bytes] | None = None
    try:
        for record in ArchiveIterator(cast(BinaryIO, stream), auto_decode="none"):
            if last is not None:
                yield last
            last = record, record.reader.read(largest + 1) if record.record_type == kind else b""
            if record.record_type == kind and len(last[1]) < min(record.content_length, largest + 1):
                raise DamagedShard(f"{path} is cut: its last record has fewer bytes than it says")
    except OSError as error:
        stream.check()
        raise DamagedShard(f"{path} is damaged: {error}") from error
    stream.check_end()
    if last is not None:
        yield last


class _Stream:
    """What fastwarc reads from: the decompressed bytes of a file. Errors are kept for `check`, because fastwarc is no
    place to raise them: an error of the disk or the network would look like damage, or like the end."""

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._chunks = chunks_of(path, name)
        self._rest = b""
        self._place = 0
        self._last = _END
        self._is_at_end = False
        self._error: Exception | None = None

    def read(self, size: int = -1) -> bytes:
        pieces, length = [self._rest], len(self._rest)
        while not self._is_at_end and (size < 0 or length < size):
            chunk = self._next()
            pieces.append(chunk)
            length += len(chunk)
        data = b"".join(pieces)
        given, self._rest = (data, b"") if size < 0 else (data[:size], data[size:])
        self._place += len(given)
        return given

    def tell(self) -> int:
        return self._place

    def check(self) -> None:
        """Raise what has gone wrong so far."""
        if self._error is not None:
            raise self._error
        if self._is_at_end and self._last != _END:
            raise DamagedShard(f"{self._path} is cut: it ends in the middle of a record")

    def check_end(self) -> None:
        """Raise what has gone wrong, once fastwarc finds nothing more."""
        if not self._is_at_end and (self._rest.strip() or self._next()):
            raise DamagedShard(f"{self._path} is damaged: there is more in it than can be found")
        self.check()

    def _next(self) -> bytes:
        try:
            chunk = next(self._chunks, None)
        except Exception as error:
            self._error, chunk = error, None
        if chunk is None:
            self._is_at_end = True
            return b""
        self._last = (self._last + chunk)[-len(_END) :]
        return chunk
