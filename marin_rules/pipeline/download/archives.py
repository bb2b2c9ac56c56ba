"""Archives unpacked without trusting them: tar, zip (and wheels), and Debian packages.

An archive with a name that leads elsewhere, with two files of one name, or that expands excessively is refused as a
whole. Links and devices are left out and counted; permissions and owners are not kept; archives within archives stay as
they are. Each file is streamed, and appears in its place whole or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from tarfile import EOFHeaderError  # type: ignore[attr-defined]
from typing import IO, Any, NamedTuple, Self

from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.files import into_place, join
from marin_rules.pipeline.download.sources import check_name

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
ZIP_SUFFIXES = (".zip", ".whl")
SUFFIXES = (*TAR_SUFFIXES, *ZIP_SUFFIXES, ".deb")

_CHUNK = 1 << 18
_FREE_BYTES = 1 << 30
"""An archive may always expand to this size."""

_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)


@dataclass(frozen=True)
class UnpackLimits:
    """Against archives that are small here and fill a disk."""

    most_files: int = 10_000_000
    largest_ratio: int = 200
    """Unpacked bytes per byte of the archive, once there are more than 1 GiB. Text is compressed 3 to 30 times."""


@dataclass
class Unpacked:
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name below the output folder -> size and sha256."""

    left_out: Counter[str] = field(default_factory=Counter)


class _Member(NamedTuple):
    name: str
    reader: IO[bytes] | None
    """None for a member that is left out; its kind is the reason."""

    kind: str = ""


class _Entry(tarfile.TarInfo):
    """Notes that the archive's end marker was read. Without one, Python would accept the end of the file."""

    @classmethod
    def fromtarfile(cls, tarfile: _TarFile) -> Self:  # type: ignore[override]
        try:
            return super().fromtarfile(tarfile)
        except EOFHeaderError:
            tarfile.is_whole = True
            raise


class _TarFile(tarfile.TarFile):
    is_whole = False


def is_archive(name: str) -> bool:
    return name.endswith(SUFFIXES)


def folder_of(name: str) -> str:
    """Where the files of an archive go."""
    return name.removesuffix(max((suffix for suffix in SUFFIXES if name.endswith(suffix)), key=len))


def unpack(
    path: str,
    name: str,
    size: int,
    folder: str,
    place_of: Callable[[str], str | None],
    limits: UnpackLimits | None = None,
    *,
    is_verified: bool = False,
) -> Unpacked:
    """Unpack the local archive at `path`, in the format of `name`, into `folder`.

    `place_of` says where below the folder a member goes; None leaves it out. A tar archive without an end marker may
    have been cut between two members: it is refused, unless it has been verified by its digest.
    """
    limits = limits or UnpackLimits()
    unpacked = Unpacked()
    most_bytes = max(_FREE_BYTES, size * limits.largest_ratio)
    taken = 0
    seen: set[str] = set()
    try:
        for member in _members(path, name, is_verified=is_verified):
            if member.reader is None:
                unpacked.left_out[member.kind] += 1
                continue
            check_name(member.name, name)
            if member.name in seen:
                raise DataError(f"{name} has two files named {member.name!r}: refused")
            seen.add(member.name)
            if len(seen) > limits.most_files:
                raise DataError(f"{name} has more than {limits.most_files:,} files: refused")
            place = place_of(member.name)
            if place is None:
                unpacked.left_out["not chosen"] += 1
                continue
            if place in unpacked.files:
                raise DataError(f"{name} has two files that would both be {place!r}: refused")
            digest, length = hashlib.sha256(), 0
            with into_place(join(folder, place)) as file:
                while chunk := member.reader.read(_CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    length += len(chunk)
                    if taken + length > most_bytes:
                        raise DataError(
                            f"{name} has {size:,} bytes and unpacks to more than {most_bytes:,}: refused as a bomb, at"
                            f" {member.name!r}"
                        )
            taken += length
            unpacked.files[place] = {"size": length, "sha256": digest.hexdigest()}
    except _DAMAGE as error:
        raise DataError(f"{name} cannot be unpacked: {error or type(error).__name__}") from error
    except RuntimeError as error:  # zipfile's word for a password.
        raise DataError(f"{name} cannot be unpacked: {error}") from error
    return unpacked


def _members(path: str, name: str, *, is_verified: bool) -> Iterator[_Member]:
    with open(path, "rb") as file:
        if name.endswith(".deb"):
            yield from _debian_members(file, name, is_verified=is_verified)
        elif name.endswith(ZIP_SUFFIXES):
            yield from _zip_members(file)
        else:
            yield from _tar_members(file, name, is_verified=is_verified)


def _zip_members(file: IO[bytes]) -> Iterator[_Member]:
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            kind = (entry.external_attr >> 16) & 0o170000
            if entry.is_dir():
                continue
            if kind not in (0, 0o100000):
                yield _Member(entry.filename, None, "links" if kind == 0o120000 else "devices")
                continue
            with archive.open(entry) as reader:
                yield _Member(entry.filename, reader)


def _tar_members(file: IO[bytes], name: str, *, is_verified: bool) -> Iterator[_Member]:
    with contextlib.ExitStack() as stack:
        if name.endswith(".zst"):
            import zstandard

            stream: Any = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
            archive = stack.enter_context(_TarFile.open(fileobj=stream, mode="r|", tarinfo=_Entry))
        else:
            archive = stack.enter_context(_TarFile.open(fileobj=file, mode="r|*", tarinfo=_Entry))
        for entry in archive:
            if entry.isdir():
                continue
            if not entry.isreg():
                yield _Member(entry.name, None, "links" if entry.issym() or entry.islnk() else "devices")
                continue
            yield _Member(_plain(entry.name), archive.extractfile(entry))
        if not archive.is_whole and not is_verified:
            raise DataError(
                f"{name} cannot be unpacked: it has no end marker, so it may have been cut. If it is whole, give"
                " its digest"
            )


def _plain(name: str) -> str:
    """Many archives write `./a` for `a`."""
    return name.removeprefix("./")


def _debian_members(file: IO[bytes], name: str, *, is_verified: bool) -> Iterator[_Member]:
    """A `.deb` is an ar archive, and its files are a tar archive in it."""
    if file.read(8) != b"!<arch>\n":
        raise DataError(f"{name} is not a Debian package")
    while len(header := file.read(60)) == 60:
        inner, length = header[:16].decode("ascii", "replace").strip().rstrip("/"), header[48:58].strip()
        if header[58:] != b"`\n" or not length.isdigit():
            break
        if inner.startswith("data.tar"):
            yield from _tar_members(file, inner, is_verified=is_verified)
            return
        file.seek(int(length) + int(length) % 2, 1)
    raise DataError(f"{name} is not a Debian package, or it is cut: it has no data.tar")
