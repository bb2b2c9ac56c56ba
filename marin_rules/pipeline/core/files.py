"""Files below a local folder or a URL that fsspec knows: listed, read, and written whole or not at all.

Nobody ever sees half a file under its final name. A local file is written beside it and renamed; what goes to a URL is
written to a temporary file here and uploaded in one piece, because fsspec's own files commit what they have when an
error closes them.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from marin_rules.pipeline.core.errors import DataError

_PART = ".part"
_MARK = 4
"""Random bytes in the name of an unfinished file, written as hexadecimal digits."""


def is_url(path: str) -> bool:
    return "://" in path


def join(folder: str, *names: str) -> str:
    return "/".join([folder.rstrip("/"), *names])


def at_hand(path: str) -> str:
    """Where a library that does not read through fsspec finds a file or folder: what `mirror://` has is copied here."""
    if not path.startswith("mirror://"):
        return path
    import fsspec

    where: str = fsspec.core.url_to_fs(path)[0].materialize(path)
    return where


def open_to_read(path: str) -> IO[bytes]:
    """Anything other than a file is refused by name: opening a named pipe would wait forever."""
    if not is_url(path):
        return open(path, "rb", opener=_open_regular)
    import fsspec

    file: IO[bytes] = fsspec.core.url_to_fs(path)[0].open(path, "rb")
    return file


def open_to_append(path: str) -> IO[bytes]:
    """A local file. Through a link the text would end up in another file of the user who runs the step."""
    return open(path, "ab", opener=lambda path, flags: _open_regular(path, flags | os.O_NOFOLLOW))


def _open_regular(path: str, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
    except OSError as error:
        # A symbolic link, and a pipe without a reader or a socket.
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise DataError(f"{path} is {_kind(os.lstat(path))}: remove it, and run the step again") from error
        raise
    facts = os.fstat(descriptor)
    if stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode):  # Python refuses a folder by name.
        return descriptor
    os.close(descriptor)
    raise DataError(f"{path} is {_kind(facts)}: remove it, and run the step again")


def _kind(facts: os.stat_result) -> str:
    kinds = {stat.S_IFIFO: "a named pipe", stat.S_IFLNK: "a symbolic link"}
    return kinds.get(stat.S_IFMT(facts.st_mode), "a socket or a device") + ", not a file"


def folders_in(folder: str, *, links: bool = True) -> list[str]:
    """The names of the folders right below a folder, and of links to folders."""
    if is_url(folder):
        import fsspec

        filesystem, root = fsspec.core.url_to_fs(folder)
        try:  # In a bucket this lists one level: below it there may be a million parts of checkpoints.
            entries = filesystem.ls(root, detail=True, refresh=True)
        except FileNotFoundError:
            return []
        return sorted(_last_word(entry["name"]) for entry in entries if entry["type"] == "directory")
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=links))
    except FileNotFoundError:
        return []


def _last_word(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def sizes_below(folder: str, *, is_data: bool = False) -> dict[str, int]:
    """The files below a folder, by their relative names; without hidden ones, nor any in hidden folders.

    A name that is not UTF-8 is refused: no file of ours could say it. Links to folders are not followed. Below a folder
    of data they are refused, because their contents would be missing unnoticed.
    """
    found = {}
    if is_url(folder):
        import fsspec

        filesystem, root = fsspec.core.url_to_fs(folder)
        for path, facts in filesystem.find(root, detail=True).items():
            found[path.removeprefix(root).lstrip("/")] = facts["size"]
    else:
        for above, below, names in os.walk(folder):
            below[:] = [name for name in below if not name.startswith(".")]
            for link in (os.path.join(above, name) for name in below if is_data):
                if os.path.islink(link):
                    raise DataError(
                        f"{link} is a link to a folder, which is not followed: give the folder that it leads to, or"
                        " put that in its place"
                    )
            for name in names:
                path = os.path.join(above, name)
                found[os.path.relpath(path, folder).replace(os.sep, "/")] = os.path.getsize(path)
    for name in found:
        if not is_unicode(name):
            raise DataError(f"below {folder} is a file whose name is not UTF-8, {name!a}: rename it")
    return {name: found[name] for name in sorted(found) if name and not f"/{name}".count("/.")}


def is_unicode(text: str) -> bool:
    """Not so for a name of a file that was not UTF-8, or for JSON with half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def remove_folder(folder: str) -> None:
    """With all its contents, if it exists. For a link to a folder only the link: its target may be somebody else's."""
    if not is_url(folder):
        if os.path.islink(folder):
            os.unlink(folder)
        elif os.path.lexists(folder):
            shutil.rmtree(folder)
        return
    import fsspec

    filesystem, root = fsspec.core.url_to_fs(folder)
    if sizes_below(folder):
        filesystem.rm(root, recursive=True)


def remove_file(path: str) -> None:
    """If it is there."""
    with contextlib.suppress(FileNotFoundError):
        if not is_url(path):
            os.unlink(path)
            return
        import fsspec

        fsspec.core.url_to_fs(path)[0].rm_file(path)


def size_of(path: str) -> int | None:
    """None if there is no such file."""
    try:
        if not is_url(path):
            return os.path.getsize(path)
        import fsspec

        size: int = fsspec.core.url_to_fs(path)[0].size(path)
        return size
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def into_place(path: str) -> Iterator[IO[bytes]]:
    """A file to write, which appears at `path` once the block has succeeded."""
    if is_url(path):
        with tempfile.TemporaryDirectory() as folder:
            part = os.path.join(folder, "part")
            with open(part, "wb") as file:
                yield file
            put_into_place(part, path)
        return
    folder, name = os.path.split(path)
    os.makedirs(folder or ".", exist_ok=True)
    # From an attempt that was killed. If its process is still running, its rename fails, which does no harm.
    mark = "[0-9a-f]" * 2 * _MARK  # A `*` would also fit the unfinished `.a.jsonl.gz` of somebody else.
    for left in glob.glob(os.path.join(glob.escape(folder), f".{glob.escape(name)}.{mark}{_PART}")):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(left)
    part = os.path.join(folder, f".{name}.{secrets.token_hex(_MARK)}{_PART}")
    try:
        with open(part, "wb") as file:
            yield file
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        raise


def put_into_place(part: str, path: str) -> None:
    """Move a finished local file to `path`, which for a folder must be on the same file system."""
    if is_url(path):
        import fsspec

        filesystem = fsspec.core.url_to_fs(path)[0]
        filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
        filesystem.put_file(part, path)
        os.unlink(part)
        return
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    os.replace(part, path)


def sync(path: str) -> None:
    """Flush a local file, or the names in a folder, to disk, so that they survive a machine that goes down. What a
    store has accepted survives anyway."""
    if is_url(path):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: str, value: Any) -> None:
    """Sorted and indented: the same value is the same bytes."""
    with into_place(path) as file:
        file.write(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n")


def read_json(path: str) -> Any:
    """None if there is no such file, or no JSON in it: its writer will write it again."""
    try:
        with open_to_read(path) as file:
            return json.load(file)
    except (FileNotFoundError, ValueError):
        return None
