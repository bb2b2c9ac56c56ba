"""Many objects at once, through whichever version of fsspec's filesystems is installed."""

from __future__ import annotations

from typing import Any

import pytest
import s3fs

from marin_rules.storage.bulk import read_many
from support.emulators.fixtures import BUCKET
from support.emulators.s3.emulator import S3Emulator


def test_an_s3fs_that_fetches_objects_whole(s3_here: S3Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marin's packages hold it back at versions that do not know how to fetch parts of an object."""
    newer = s3fs.S3FileSystem._cat_file

    async def older(self: Any, path: str, version_id: Any = None, start: Any = None, end: Any = None) -> Any:
        return await newer(self, path, version_id=version_id, start=start, end=end)

    monkeypatch.setattr(s3fs.S3FileSystem, "_cat_file", older)
    s3_here.put(BUCKET, "a", b"found")
    assert read_many([f"s3://{BUCKET}/a", f"s3://{BUCKET}/b"]) == {
        f"s3://{BUCKET}/a": b"found",
        f"s3://{BUCKET}/b": None,
    }
