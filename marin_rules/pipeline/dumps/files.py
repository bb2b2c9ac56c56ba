"""Files that are a record each: pages or texts in a folder, and ar5iv's articles in a zip archive.

A file's id is its name; that of an article is its name without folders and suffix, which is its number on arXiv.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence

from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DamagedShard
from marin_rules.pipeline.core.files import join, open_to_read
from marin_rules.pipeline.core.records import Record

HTML_SUFFIXES = (".html", ".htm", ".xhtml")


def read_files(folder: str, names: Sequence[str], account: Account, field: str, largest: int) -> Iterator[Record]:
    """Files of a folder as records whose `field`, html or text, is their contents."""
    for number, name in enumerate(names, 1):
        account.read += 1
        with open_to_read(join(folder, name)) as file:
            body = file.read(largest + 1)
        if (text := _text_of(body, number, name, account, field, largest)) is not None:
            yield {"id": name, field: text}


def read_ar5iv(path: str, part: int, parts: int, account: Account, largest: int) -> Iterator[Record]:
    """The articles of one part of an archive."""
    seen: set[str] = set()
    with open_to_read(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                entries = sorted(
                    (entry for entry in archive.infolist() if not entry.is_dir()), key=lambda one: one.filename
                )
                for number, entry in enumerate(entries[part::parts], 1):
                    account.read += 1
                    if not entry.filename.endswith(HTML_SUFFIXES):
                        account.drop("not HTML")
                        continue
                    id = entry.filename.rpartition("/")[2].rpartition(".")[0]
                    if id in seen:
                        account.reject(number, "the id was there before", id=id)
                        continue
                    seen.add(id)
                    with archive.open(entry) as reader:
                        body = reader.read(largest + 1)
                    if (html := _text_of(body, number, id, account, "html", largest)) is not None:
                        yield {"id": id, "html": html}
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise DamagedShard(f"{path} is damaged: {error or 'it ends too early'}") from error


def _text_of(body: bytes, number: int, id: str, account: Account, field: str, largest: int) -> str | None:
    if len(body) > largest:
        account.reject(number, "too large", id=id, detail=f"more than {largest} bytes")
        return None
    account.bytes_read += len(body)
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if field == "html":
            return _decoded_page(body)
        account.reject(number, "not UTF-8", id=id, detail=str(error), content=body[:400].decode(errors="replace"))
        return None


def _decoded_page(body: bytes) -> str:
    """By the declared or detected encoding."""
    from resiliparse.parse.encoding import bytes_to_str, detect_encoding

    decoded: str = bytes_to_str(body, detect_encoding(body, from_html_meta=True))
    return decoded
