"""Files that only their user should have written: read together with whether that is so."""

from __future__ import annotations

import contextlib
import os

from marin_rules.settings.ownership import Circle, objection
from marin_rules.storage.files import explained_errors, local_path, read_all, read_bytes
from marin_rules.storage.regular_files import open_regular
from marin_rules.urls import is_url


def read_within(folder: str, name: str) -> tuple[bytes | None, bool]:
    """A file below a private folder, None when there is none; and whether only trusted people can have written it.

    For a bucket, there is no telling who has written to it.
    """
    if is_url(folder):
        return read_bytes(os.path.join(folder, name)), False
    folder = local_path(folder) or "."
    path = os.path.join(folder, name)
    with explained_errors("read", path):
        descriptors = []
        try:
            descriptors.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
            descriptors.append(open_regular(name, os.O_RDONLY | os.O_NOFOLLOW, folder=descriptors[0]))
            circle = Circle.of()
            is_ours = all(objection(os.fstat(one), circle) is None for one in descriptors)
            return read_all(descriptors[1]), is_ours
        except (FileNotFoundError, NotADirectoryError):
            return None, False
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def make_private_folder(path: str) -> None:
    """Make a folder that only this user can enter, whatever the umask, unless one is there."""
    if is_url(path):
        return
    path = local_path(path).rstrip("/") or "/"
    with explained_errors("make the directory", path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)  # As it is written: `new/../out` needs `new`.
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
