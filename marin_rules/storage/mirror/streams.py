"""Copies whose bytes pass through this machine: to a local disk, or from one kind of store to another.

A copy has its final name only when it is complete, of the right size and, if the source has one, with the right
checksum. On a disk it is written beside its place, flushed, and linked to it; an upload to a store is committed at its
end. What is at the target already is kept on a disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator, Sequence

from marin_rules.storage.explain import StorageError, explained_store_errors
from marin_rules.storage.files import explained_errors
from marin_rules.storage.guard import already_charged
from marin_rules.storage.mirror.checksums import Checksum, identity
from marin_rules.storage.mirror.concurrency import each
from marin_rules.storage.mirror.paths import temporary_prefix
from marin_rules.storage.mirror.places import Place
from marin_rules.storage.mirror.rewrites import Watch, changed
from marin_rules.storage.mirror.search import Found

_FILES_AT_ONCE = 8
_PIECE = 8 * 2**20
_PIECES_AT_ONCE = 4
"""So a file takes 32 MB of memory while it is copied; eight of them 256 MB."""


def stream_all(batch: Sequence[Found], target: Place, watch: Watch) -> None:
    """Copy files of one source, several at once."""
    stream = _to_store if target.scheme else _to_disk

    def one(found: Found) -> None:
        watch.check()
        stream(found, target, watch)
        watch.finish(found)

    each(batch, one, at_once=_FILES_AT_ONCE)


def remove_leftovers(batch: Sequence[Found], target: Place) -> None:
    """Remove what killed copies of these files have left behind. Only for the holder of the right to copy."""
    if target.scheme:
        # An upload that was not committed leaves nothing that has a name.
        return
    directories: dict[str, list[str]] = {}
    for found in batch:
        directories.setdefault(os.path.dirname(target.key(found.path)), []).append(temporary_prefix(found.path))
    for directory, prefixes in directories.items():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for name in os.listdir(directory):
                if name.startswith(tuple(prefixes)):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(directory, name))


def _pieces(found: Found, watch: Watch) -> Iterator[bytes]:
    filesystem, key = found.place.filesystem(), found.key
    for window in range(0, found.size, _PIECE * _PIECES_AT_ONCE):
        watch.check()
        starts = list(range(window, min(window + _PIECE * _PIECES_AT_ONCE, found.size), _PIECE))
        ends = [min(start + _PIECE, found.size) for start in starts]
        with already_charged(), explained_store_errors("copy", found.url):
            try:
                answers = filesystem.cat_ranges([key] * len(starts), starts, ends, on_error="return")
                for answer in answers:
                    if isinstance(answer, BaseException):
                        raise answer
            except FileNotFoundError as error:
                raise changed(found) from error
        for answer in answers:
            watch.advance(len(answer))
            yield answer


def _checked_pieces(found: Found, watch: Watch) -> Iterator[bytes]:
    """The content of a file; an error at the end if it is not what the source announced."""
    checksum = Checksum(found.details)
    for piece in _pieces(found, watch):
        checksum.update(piece)
        yield piece
    fits = checksum.size == found.size and checksum.fits()
    if fits is True:
        return
    with explained_store_errors("look at", found.url):
        try:
            now = found.place.filesystem().info(found.key)
        except FileNotFoundError as error:
            raise changed(found) from error
    if identity(now) != identity(found.details):
        raise changed(found)
    if fits is False:
        raise StorageError(
            errno.EIO,
            f"cannot copy {found.url}: {checksum.size} of {found.size} bytes came, or their checksum is wrong. Nothing"
            " was kept. Try again; if it happens again, look at the object's content encoding.",
            found.url,
        )


def _to_disk(found: Found, target: Place, watch: Watch) -> None:
    path = target.key(found.path)
    directory = os.path.dirname(path)
    temporary = os.path.join(directory, f"{temporary_prefix(found.path)}{secrets.token_hex(8)}.tmp")
    with explained_errors("write", path):
        os.makedirs(directory, exist_ok=True)
        try:
            with open(temporary, "xb") as file:
                for piece in _checked_pieces(found, watch):
                    file.write(piece)
                file.flush()
                # A name must not survive a power cut that its content does not survive.
                os.fsync(file.fileno())
            watch.check()
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _to_store(found: Found, target: Place, watch: Watch) -> None:
    url = target.url(found.path)
    file = target.filesystem().open(target.key(found.path), "wb", autocommit=False)
    try:
        for piece in _checked_pieces(found, watch):
            with explained_store_errors("write", url):
                file.write(piece)
        with explained_store_errors("write", url):
            file.close()
            watch.check()
            file.commit()
    except BaseException:
        # Otherwise its end would be written when it is garbage-collected.
        file.closed = True
        with contextlib.suppress(Exception):
            file.discard()
        raise
