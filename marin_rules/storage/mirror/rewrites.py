"""Copies that the store makes itself, without the bytes passing through this machine: GCS to GCS, S3 to S3.

Such a copy appears only when it is complete, at its final name. The source is pinned: one that changes is refused by
the store (`SourceChangedError`). What is at the target already is kept on GCS, and overwritten by equal bytes on S3.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from marin_rules.storage.explain import StorageError, explain, http_code
from marin_rules.storage.mirror.checksums import SourceChangedError, identity
from marin_rules.storage.mirror.places import Place
from marin_rules.storage.mirror.search import Found

_AT_ONCE = 100
"""Requests at a time. More do not make it faster, and some stores answer 429."""

LARGEST_SINGLE_COPY = 5 * 2**30
PART_SIZE = 512 * 2**20
"""S3 copies more than 5 GB in parts only, at most 10,000 of them."""


class Watch(Protocol):
    """Receives the progress of a copy."""

    def check(self) -> None:
        """Raises when the copy has to stop."""

    def advance(self, size: int) -> None:
        """This many more bytes have arrived."""

    def finish(self, found: Found) -> None:
        """This file is complete."""


def can_rewrite(source: Place, target: Place) -> bool:
    """Whether one store holds both places."""
    return source.scheme == target.scheme and source.scheme in _WAYS


def rewrite_all(batch: Sequence[Found], target: Place, watch: Watch) -> None:
    """Copy files of one source, concurrently. The first error stops the rest, but not what was started."""
    from fsspec.asyn import sync

    filesystem = target.filesystem()
    rewrite = _WAYS[target.scheme]
    turns = asyncio.Semaphore(_AT_ONCE)
    failures: list[BaseException] = []

    async def one(found: Found) -> None:
        async with turns:
            if failures:
                return
            try:
                await rewrite(filesystem, found, target, watch)
                watch.finish(found)
            except Exception as error:
                failures.append(explain(error, "copy", found.url) or error if _is_foreign(error) else error)

    async def all_of_them() -> None:
        await asyncio.gather(*map(one, batch))

    try:
        sync(filesystem.loop, all_of_them)
    except BaseException as error:
        # Interrupted: the loop is another thread's, and must not begin more.
        failures.append(error)
        raise
    if failures:
        raise failures[0]


def _is_foreign(error: Exception) -> bool:
    from marin_rules.errors import MarinRulesError

    return not isinstance(error, MarinRulesError)


async def _rewrite_gcs(filesystem: Any, found: Found, target: Place, watch: Watch) -> None:
    source_bucket, source_key, _ = filesystem.split_path(found.key)
    bucket, key, _ = filesystem.split_path(target.key(found.path))
    options: dict[str, Any] = {"ifSourceGenerationMatch": found.details["generation"], "ifGenerationMatch": "0"}
    written = 0
    while True:
        watch.check()
        try:
            answer = await filesystem._call(
                "POST",
                "b/{}/o/{}/rewriteTo/b/{}/o/{}",
                source_bucket,
                source_key,
                bucket,
                key,
                headers={"Content-Type": "application/json"},
                json_out=True,
                **options,
            )
        except FileNotFoundError as error:
            raise await _what_is_missing(filesystem, found, target, error) from error
        except FileExistsError as error:
            # One of the two conditions is not met: either the copy is there (perhaps ours, whose answer was lost), or
            # the source is not what it was.
            if await _is_there(filesystem, target.key(found.path)):
                watch.advance(found.size - written)
                return
            raise changed(found) from error
        watch.advance(int(answer["totalBytesRewritten"]) - written)
        written = int(answer["totalBytesRewritten"])
        if answer["done"]:
            return
        options["rewriteToken"] = answer["rewriteToken"]


async def _what_is_missing(filesystem: Any, found: Found, target: Place, error: BaseException) -> Exception:
    try:
        now = await filesystem._info(found.key)
    except FileNotFoundError:
        return changed(found)
    if identity(now) != identity(found.details):
        return changed(found)
    return StorageError(
        errno.ENOENT,
        f"cannot copy {found.url} to {target.url(found.path)}: there is no such bucket ({error}). Make it, or choose"
        " another prefix.",
        found.url,
    )


async def _is_there(filesystem: Any, key: str) -> bool:
    try:
        return bool((await filesystem._info(key))["type"] == "file")
    except FileNotFoundError:
        return False


async def _rewrite_s3(filesystem: Any, found: Found, target: Place, watch: Watch) -> None:
    source_bucket, source_key, _ = filesystem.split_path(found.key)
    bucket, key, _ = filesystem.split_path(target.key(found.path))
    place = {"Bucket": bucket, "Key": key}
    source = {"CopySource": {"Bucket": source_bucket, "Key": source_key}, "CopySourceIfMatch": found.details["ETag"]}
    watch.check()
    try:
        if found.size <= LARGEST_SINGLE_COPY:
            await filesystem._call_s3("copy_object", **place, **source)
            watch.advance(found.size)
        else:
            await _copy_parts(filesystem, found, place, source, watch)
    except Exception as error:
        if http_code(error) == 412 or isinstance(error, FileNotFoundError):
            raise changed(found) from error
        raise


async def _copy_parts(
    filesystem: Any, found: Found, place: dict[str, str], source: dict[str, Any], watch: Watch
) -> None:
    upload = await filesystem._call_s3("create_multipart_upload", **place)
    place = {**place, "UploadId": upload["UploadId"]}
    parts = []
    try:
        for number, start in enumerate(range(0, found.size, PART_SIZE), start=1):
            watch.check()
            end = min(start + PART_SIZE, found.size)
            copied = await filesystem._call_s3(
                "upload_part_copy", **place, **source, PartNumber=number, CopySourceRange=f"bytes={start}-{end - 1}"
            )
            parts.append({"PartNumber": number, "ETag": copied["CopyPartResult"]["ETag"]})
            watch.advance(end - start)
        await filesystem._call_s3("complete_multipart_upload", **place, MultipartUpload={"Parts": parts})
    except BaseException:
        # Parts that are never assembled are billed like objects.
        await filesystem._call_s3("abort_multipart_upload", **place)
        raise


def changed(found: Found) -> SourceChangedError:
    """The error for a source that has changed since the copy began."""
    return SourceChangedError(
        errno.ESTALE,
        f"cannot copy {found.url}: it was changed or removed while it was being copied. Nothing was kept, and nothing"
        " is charged. Read it again when nobody is writing it.",
        found.url,
    )


type _Way = Callable[[Any, Found, Place, Watch], Awaitable[None]]
_WAYS: dict[str, _Way] = {"gs": _rewrite_gcs, "s3": _rewrite_s3}
