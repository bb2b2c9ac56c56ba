"""The filesystem behind `mirror://`.

- Reads look at the prefix first, and cost nothing more than a read there if the file is there. Otherwise the file is
  copied from the nearest region that has it, then read here.
- `exists`, `info`, `ls`, `find`, `glob`, `du` see the prefix and all sources as one, and copy nothing.
- Writes go to the prefix, and `rm` removes there: no source is ever changed.
- `prefetch`, and reads of many files (`get`, `cat`, `cat_ranges`), copy concurrently.

An instance has no state, so that threads and forked processes may share it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractFileSystem

from marin_rules.storage.files import local_path, make_directory
from marin_rules.storage.mirror import search
from marin_rules.storage.mirror.copies import bring, copy_many
from marin_rules.storage.mirror.paths import SCHEME, file_path, relative_path
from marin_rules.storage.mirror.places import Place, all_roots, home

type _Paths = str | list[str]


class MirrorFileSystem(AbstractFileSystem):  # type: ignore[misc, unused-ignore]
    """Data of all regions below one name, copied here when it is read."""

    protocol = "mirror"
    root_marker = ""

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return relative_path(os.fspath(path), all_roots())

    # Looking: nothing is copied.

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if not path:
            return {"name": "", "size": 0, "type": "directory"}
        return search.look_up(path).info

    def exists(self, path: str, **kwargs: Any) -> bool:
        # Not fsspec's own, which treats every error as "no".
        try:
            self.info(path)
            return True
        except FileNotFoundError:
            return False

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """What is there; nothing at a path that no region has, as in Marin."""
        try:
            found = search.list_directory(self._strip_protocol(path))
        except FileNotFoundError:
            return []
        return [entry.info for entry in found.values()] if detail else list(found)

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **kwargs: Any
    ) -> Any:
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        found = search.find(self._strip_protocol(path), maxdepth=maxdepth, withdirs=withdirs)
        return {name: entry.info for name, entry in found.items()} if detail else list(found)

    def du(
        self, path: str, total: bool = True, maxdepth: int | None = None, withdirs: bool = False, **kwargs: Any
    ) -> Any:
        found = search.find(self._strip_protocol(path), maxdepth=maxdepth, withdirs=withdirs)
        sizes = {name: entry.size for name, entry in found.items()}
        return sum(sizes.values()) if total else sizes

    def created(self, path: str) -> Any:
        found = search.look_up(self._file(path))
        return found.place.filesystem().created(found.key)

    def modified(self, path: str) -> Any:
        found = search.look_up(self._file(path))
        return found.place.filesystem().modified(found.key)

    # Reading: what is not at the prefix is copied first.

    def prefetch(self, path: str | Iterable[str]) -> list[str]:
        """Copy files and whole directories here, and say where they are. What is here already is not copied again."""
        paths = [path] if isinstance(path, str) else list(path)
        here = home()
        files: dict[str, search.Found] = {}
        for one in map(self._file, paths):
            below = search.find(one)
            # If there is nothing, this says where it looked.
            files |= below or {one: search.look_up(one)}
        copy_many(_away(here, files.values()))
        return [here.url(name) for name, entry in files.items() if entry.is_file]

    def materialize(self, path: str) -> str:
        """`prefetch` a file or directory, and say where it is: under Marin's name for it, which Levanter calls."""
        self.prefetch(path)
        return home().url(self._file(path))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> Any:
        path = self._file(path)
        return self._read(path, lambda here: here.filesystem().cat_file(here.key(path), start=start, end=end, **kwargs))

    def cat(self, path: _Paths, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        paths = self.expand_path(path, recursive=recursive)
        if isinstance(path, str) and paths == [self._strip_protocol(path)]:
            return self.cat_file(paths[0], **kwargs)
        self._bring_all(paths, on_error)
        return super().cat(paths, on_error=on_error, **kwargs)

    def cat_ranges(
        self, paths: list[str], starts: Any, ends: Any, max_gap: Any = None, on_error: str = "return", **kwargs: Any
    ) -> Any:
        if not isinstance(paths, list):
            raise TypeError("paths must be a list")
        paths = [self._file(path) for path in paths]
        self._bring_all(paths, on_error)
        here = home()
        keys = [here.key(path) for path in paths]
        return here.filesystem().cat_ranges(keys, starts, ends, max_gap=max_gap, on_error=on_error, **kwargs)

    def get_file(self, rpath: str, lpath: Any, **kwargs: Any) -> None:
        path = self._file(rpath)

        def get(here: Place) -> None:
            filesystem, key = here.filesystem(), here.key(path)
            # Some filesystems make the local file before they look whether there is a remote one.
            details = filesystem.info(key)
            if details["type"] == "directory":
                os.makedirs(lpath, exist_ok=True)
            else:
                filesystem.get_file(key, lpath, **kwargs)

        self._read(path, get)

    def get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        paths = rpath if isinstance(rpath, list) else self.expand_path(rpath, recursive=recursive, maxdepth=maxdepth)
        self._bring_all([self._file(path) for path in paths], "raise")
        here = home()
        options = {"recursive": recursive, "callback": callback, "maxdepth": maxdepth, **kwargs}
        if here.scheme:
            # Concurrently: all of it is there now, under the same names.
            keys = [self._home_url(here, path) for path in rpath] if isinstance(rpath, list) else None
            here.filesystem().get(keys or self._home_url(here, rpath), lpath, **options)
        else:
            super().get(rpath, lpath, **options)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> Any:
        path = self._file(path)

        if block_size is not None:
            # Otherwise each filesystem has a default of its own.
            kwargs["block_size"] = block_size

        def open_here(here: Place) -> Any:
            key = here.key(path)
            return here.filesystem()._open(key, mode=mode, autocommit=autocommit, cache_options=cache_options, **kwargs)

        if "r" in mode:
            return self._read(path, open_here)
        if "a" in mode and self.exists(path):
            self._bring_all([path], "raise")
        return open_here(home())

    # Writing: to the prefix only.

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        here, path = home(), self._file(path)
        here.filesystem().pipe_file(here.key(path), value, mode=mode, **kwargs)

    def put_file(self, lpath: Any, rpath: str, **kwargs: Any) -> None:
        here, path = home(), self._file(rpath)
        if os.path.isdir(lpath):
            return self.makedirs(path, exist_ok=True)
        here.filesystem().put_file(lpath, here.key(path), **kwargs)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        source, target = self._file(path1), self._file(path2)
        if self.isdir(source):
            return self.makedirs(target, exist_ok=True)
        self._read(source, lambda here: here.filesystem().cp_file(here.key(source), here.key(target), **kwargs))

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        self.makedirs(path, exist_ok=False)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        here, path = home(), self._file(path)
        if not exist_ok and not here.scheme and os.path.exists(local_path(here.url(path))):
            raise FileExistsError(SCHEME + path)
        make_directory(here.url(path))

    def rm_file(self, path: str) -> None:
        self.rm(path)

    def rm(self, path: _Paths, recursive: bool = False, maxdepth: int | None = None) -> None:
        here = home()
        for one in [path] if isinstance(path, str) else path:
            relative = self._file(one)
            found = search.look_at(here, relative)
            if found is None:
                raise FileNotFoundError(
                    f"{here.url(relative)} does not exist. Only the copy at the prefix can be removed: what other"
                    " regions have stays there."
                )
            here.filesystem().rm(found.key, recursive=recursive, maxdepth=maxdepth)

    def rmdir(self, path: str) -> None:
        here, path = home(), self._file(path)
        if not here.scheme:
            os.rmdir(here.key(path))

    def invalidate_cache(self, path: str | None = None) -> None:
        """Nothing is kept that could be out of date."""

    def _file(self, path: str) -> str:
        return file_path(self._strip_protocol(path))

    def _home_url(self, here: Place, path: str) -> str:
        # A slash at the end has a meaning to `get`.
        return here.url(self._file(path)) + ("/" if path.endswith("/") else "")

    @staticmethod
    def _read[Result](path: str, read: Callable[[Place], Result]) -> Result:
        """Read at the prefix: at once if that works, otherwise after copying the file."""
        try:
            return read(home())
        except FileNotFoundError:
            bring(path)
        return read(home())

    @staticmethod
    def _bring_all(paths: Iterable[str], on_error: str) -> None:
        try:
            found = search.look_up_many(paths)
        except FileNotFoundError:
            if on_error == "raise":
                raise
            # Then one by one: each gets its own error.
            return
        copy_many(entry for entry in _away(home(), found.values()))


def _away(here: Place, entries: Iterable[search.Found]) -> list[search.Found]:
    return [entry for entry in entries if entry.is_file and entry.place.root != here.root]
