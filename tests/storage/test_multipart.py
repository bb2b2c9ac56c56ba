"""Small uploads to Google Cloud Storage: whole and well-formed, whatever is in them."""

import io
from typing import Any

import fsspec
import gcsfs
import pytest

from marin_rules.storage.guard import install_guard
from marin_rules.storage.guarded_gcs import GuardedGCSFileSystem
from marin_rules.storage.multipart import well_formed
from support.emulators.gcs.emulator import GcsEmulator

CONTENTS = [
    b"",
    b"plain",
    b"\n",
    b"a line\n--==0==--",
    b"in the middle\n--==0==\nContent-Type: text/plain\n\nof it\n--==0==--\nand on",
    b"\r\n--==0==--\r\n",
    bytes(range(256)) * 100,
]


@pytest.fixture(autouse=True)
def guarded() -> None:
    install_guard()


@pytest.mark.parametrize("content", CONTENTS)
def test_what_is_sent_is_what_is_stored(gcs_here: GcsEmulator, content: bytes) -> None:
    filesystem = fsspec.filesystem("gs")
    filesystem.pipe_file("bucket/piped", content)
    with fsspec.open("gs://bucket/opened", "wb") as file:
        file.write(content)
    assert gcs_here.get("bucket", "piped") == content
    assert gcs_here.get("bucket", "opened") == content
    with pytest.raises(FileExistsError):
        filesystem.pipe_file("bucket/piped", b"again", mode="create")


def test_what_gcsfs_sends_by_itself_is_refused_as_by_googles_testbench(gcs_here: GcsEmulator) -> None:
    with pytest.raises(gcsfs.retry.HttpError, match="Malformed multipart body"):
        gcsfs.GCSFileSystem().pipe_file("bucket/x", b"x")
    assert gcs_here.get("bucket", "x") is None


def test_a_body_in_a_file_is_mended_too(gcs_here: GcsEmulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """As gcsfs 2026.2 sends it, which environments with Levanter have."""
    send = GuardedGCSFileSystem._call

    async def wrapped(self: Any, method: str, path: str, *args: Any, **kwargs: Any) -> Any:
        if isinstance(kwargs.get("data"), bytes):
            kwargs["data"] = io.BytesIO(kwargs["data"])
        return await send(self, method, path, *args, **kwargs)

    monkeypatch.setattr(GuardedGCSFileSystem, "_call", wrapped)
    fsspec.filesystem("gs").pipe_file("bucket/piped", CONTENTS[-1])
    assert gcs_here.get("bucket", "piped") == CONTENTS[-1]


@pytest.mark.parametrize("body", [b"", b"--==0==\n", b"--other\r\nContent-Type: a\r\n\r\n{}\r\n--other--"])
def test_bodies_of_another_form_are_left_as_they_are(body: bytes) -> None:
    assert well_formed(body) is None
