"""gcsfs with a guard: what is read from a bucket of another region is charged first.

- Whole files are charged by their size, ranges by their length. What an open file has in its cache is not read again,
  and not charged again; what it reads ahead is moved, and is charged.
- A read that fails is refunded; one that brought less than asked (a range past the end) is corrected.
- In the same region, or one that the bucket's location covers, nothing is charged and no call is added but one look-up
  for each bucket of unknown location. A bucket that will not say where it is gives one warning, and is not charged.

Imported only when `gs://` is used (see guard.py), because it imports gcsfs.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
from collections.abc import AsyncIterator
from typing import Any

from gcsfs import GCSFileSystem

from marin_rules.geography import bucket_of, common
from marin_rules.settings.cluster_file import CLUSTER_VARIABLE
from marin_rules.storage.budget import BudgetError, Receipt, charge
from marin_rules.storage.guard import already_charged, is_charged
from marin_rules.storage.multipart import well_formed
from marin_rules.storage.prefix import PREFIX_VARIABLE, marin_prefix
from marin_rules.storage.regions import ask_location, here, known_location

logger = logging.getLogger(__name__)

type _Crossing = tuple[str, str]
"""From where to where data would be moved."""

_warned: set[str] = set()
"""What was already reported, by any of the filesystems that fsspec makes."""


class GuardedGCSFileSystem(GCSFileSystem):  # type: ignore[misc, unused-ignore]
    """Reads of other regions' data are charged to the budget, small uploads are well-formed; everything else is
    gcsfs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._crossings: dict[tuple[str | None, ...], asyncio.Future[_Crossing | None]] = {}

    async def _call(self, method: str, path: str, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("uploadType") == "multipart":
            data: Any = kwargs.get("data")
            # Some versions of gcsfs wrap it, in a file that survives being sent a second time.
            body = data.getvalue() if isinstance(data, io.BytesIO) else data
            better = well_formed(body) if isinstance(body, bytes) else None
            if better is not None:
                content_type, mended = better
                kwargs["data"] = type(data)(mended)
                kwargs["headers"] = {**kwargs.get("headers", {}), "Content-Type": content_type}
        return await super()._call(method, path, *args, **kwargs)

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        async with self._paid(path, start, end) as receipt:
            data: bytes = await super()._cat_file(path, start=start, end=end, **kwargs)
            _settle(receipt, data)
            return data

    # Open files read ahead through this one, without `_cat_file`.
    async def _cat_file_concurrent(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        async with self._paid(path, start, end) as receipt:
            data: bytes = await super()._cat_file_concurrent(path, start=start, end=end, **kwargs)
            _settle(receipt, data)
            return data

    async def _get_file(self, rpath: str, lpath: str, *args: Any, **kwargs: Any) -> None:
        # What gcsfs does with a directory, before it reads anything.
        if os.path.isdir(lpath):
            return
        async with self._paid(rpath, None, None):
            await super()._get_file(rpath, lpath, *args, **kwargs)

    @contextlib.asynccontextmanager
    async def _paid(self, path: str, start: int | None, end: int | None) -> AsyncIterator[Receipt | None]:
        """Charge a read before it starts; give it back when it fails."""
        crossing = None if is_charged() else await self._crossing(path)
        if crossing is None:
            yield None
            return
        receipt = await self._charge(path, start, end, crossing)
        try:
            with already_charged():
                yield receipt
        except BaseException:
            receipt.refund()
            raise

    async def _charge(self, path: str, start: int | None, end: int | None, crossing: _Crossing) -> Receipt:
        what = f"gs://{self._strip_protocol(path)}"
        source, target = crossing
        if start is not None and end is not None and start >= 0 and end >= 0:
            try:
                return charge(max(end - start, 0), what=what, source=source, target=target)
            except BudgetError:
                # Perhaps the range goes far beyond the end of the file. Only now is it worth a call to know.
                pass
        size = int((await self._info(path))["size"] or 0)
        first, last, _ = slice(start, end).indices(size)
        return charge(max(last - first, 0), what=what, source=source, target=target)

    async def _crossing(self, path: str) -> _Crossing | None:
        """Whether a read of `path` moves data between regions, and between which."""
        bucket = self.split_path(path)[0]
        key = (bucket, os.environ.get(PREFIX_VARIABLE), os.environ.get(CLUSTER_VARIABLE))
        # One look-up per bucket, even when a hundred reads start at once.
        if key not in self._crossings:
            self._crossings[key] = asyncio.ensure_future(self._find_crossing(bucket))
        # Shielded: a read that is cancelled must not cancel the look-up of the others.
        return await asyncio.shield(self._crossings[key])

    async def _find_crossing(self, bucket: str) -> _Crossing | None:
        # In a thread: these may ask Google, and would hold up all other reads on this loop.
        if bucket_of(await asyncio.to_thread(marin_prefix)) == bucket:
            return None
        target = await asyncio.to_thread(here)
        if target is None:
            return None
        known, source = known_location(bucket)
        if not known:
            source = await ask_location(self, bucket)
        if source is None:
            _warn_once(bucket)
            return None
        return None if common(source, target) else (source, target)


def _settle(receipt: Receipt | None, data: bytes) -> None:
    if receipt is not None:
        receipt.settle(len(data))


def _warn_once(bucket: str) -> None:
    if bucket not in _warned:
        _warned.add(bucket)
        logger.warning(
            "the location of gs://%s is not known: reads from it are not charged to the budget. Ask for permission to"
            " list its objects, or add it to the cluster's region_buckets.",
            bucket,
        )
