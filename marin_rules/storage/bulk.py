"""Many small objects at once, for the driver: concurrently, through fsspec's asynchronous filesystems.

Only the driver does this. A worker must not: these filesystems run a thread, and a worker forks.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Iterable
from functools import partial
from typing import Any

from marin_rules.storage.explain import UnansweredError, explain, explained_store_errors, http_code
from marin_rules.storage.filesystems import open_filesystem
from marin_rules.storage.patience import patiently
from marin_rules.urls import bucket_root, split_url

# It logs every error with a stack trace. Our callers explain theirs.
logging.getLogger("gcsfs").addFilter(lambda record: record.levelno < logging.ERROR)

_OBJECTS = "b/{}/o"

_AT_ONCE = 128
"""Requests at a time. More do not make it faster, and some stores answer 429."""


def read_many(urls: Iterable[str]) -> dict[str, bytes | None]:
    """The contents of objects, `None` for absent ones. One request an object; fails if any of them fails."""
    by_bucket: dict[str, list[str]] = {}
    for url in urls:
        by_bucket.setdefault(bucket_root(url), []).append(url)
    found: dict[str, bytes | None] = {}
    for group in by_bucket.values():
        filesystem, _ = open_filesystem(group[0])
        missing = {filesystem._strip_protocol(url): url for url in group}
        patiently(partial(_read_missing, filesystem, missing, found))
    return found


def _read_missing(filesystem: Any, missing: dict[str, str], found: dict[str, bytes | None]) -> None:
    """Move what was answered from `missing` to `found`; another call requests only the rest."""
    with explained_store_errors("read", next(iter(missing.values()))):
        answers = _cat(filesystem, list(missing))
    unanswered: UnansweredError | None = None
    for key, answer in answers.items():
        try:
            found[missing[key]] = _content(answer, missing[key])
            del missing[key]
        except UnansweredError as error:
            unanswered = error
    if unanswered is not None:
        raise unanswered


def check_bucket(url: str) -> None:
    """Refuse a bucket that is not there, or that these credentials may not list: one request."""
    filesystem, _ = open_filesystem(url)
    scheme, bucket, _ = split_url(url)
    with explained_store_errors("use", url):
        try:
            if scheme in ("gs", "gcs"):
                _list_google_bucket(filesystem, bucket)
            elif scheme == "s3":
                filesystem.call_s3("list_objects_v2", Bucket=bucket, MaxKeys=1)
            # No such request is known for other stores.
        except FileNotFoundError as error:
            raise _NoBucketError() from error


def _list_google_bucket(filesystem: Any, bucket: str) -> None:
    """At first without gcsfs's patience: it retries bad credentials and a missing network for most of a minute."""
    from fsspec.asyn import sync

    request = inspect.unwrap(type(filesystem)._request)
    try:
        sync(filesystem.loop, request, filesystem, "GET", _OBJECTS, bucket, maxResults=1)
    except Exception as error:
        if http_code(error) == 401 or type(error).__name__.startswith("ClientConnector"):
            raise
        filesystem.call("GET", _OBJECTS, bucket, maxResults=1, json_out=True)


class _NoBucketError(Exception):
    code = 404


def _cat(filesystem: Any, keys: list[str]) -> dict[str, Any]:
    """Contents or exceptions by key. Not fsspec's own `cat`, because that treats some names as patterns."""
    if not getattr(filesystem, "async_impl", False):
        return {key: _one(filesystem, key) for key in keys}
    from fsspec.asyn import sync

    # Newer versions of s3fs would otherwise ask for each object's size first, to fetch parts of it in parallel.
    options = {name: 1 for name in inspect.signature(filesystem._cat_file).parameters if name == "max_concurrency"}

    async def all_of_them() -> list[Any]:
        turns = asyncio.Semaphore(_AT_ONCE)

        async def one(key: str) -> Any:
            async with turns:
                return await filesystem._cat_file(key, **options)

        return await asyncio.gather(*map(one, keys), return_exceptions=True)

    return dict(zip(keys, sync(filesystem.loop, all_of_them), strict=True))


def _one(filesystem: Any, key: str) -> Any:
    try:
        return filesystem.cat_file(key)
    except OSError as error:
        return error


def _content(answer: Any, url: str) -> bytes | None:
    if isinstance(answer, FileNotFoundError):
        return None
    if isinstance(answer, BaseException):
        raise explain(answer, "read", url) or answer
    return bytes(answer)
