"""The first thing that a job runs on a machine without the driver's files: it fetches marin_rules, and starts it.

    python -I - ARCHIVE DIGEST VERSION SCRATCH MODULE [ARGUMENT ...] < bootstrap.py

It fetches ARCHIVE (a path or URL, see `code_archive`), refuses it unless its SHA-256 is DIGEST, and unpacks it below
SCRATCH, once for all jobs of this user on this machine. Then it becomes `python -m MODULE ARGUMENT ...`, with what it
unpacked on the path. VERSION is the Python that the run was planned with: no other can read its functions.

This file is the job's script, and nothing of marin_rules is there yet: it needs only Python's own library, and fsspec
with the client of the store. It must be able to report errors in any Python 3, hence the old-fashioned syntax. Errors
go to standard error, the job's log, and into the exit code, which the driver explains.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import pwd
import shutil
import stat
import sys
import tempfile
import time
import zipfile

EXIT_DAMAGED = 65
EXIT_UNREACHABLE = 69
EXIT_NOT_OURS = 77
EXIT_WRONG_PYTHON = 78
"""EX_DATAERR, EX_UNAVAILABLE, EX_NOPERM and EX_CONFIG."""

_TRIES = 2
_PAUSE_SECONDS = 2.0
"""For a folder on a network, or a client that gives up at once. Others are patient themselves, for half a minute."""

_NAMES = ".names"
"""The file that lists all others of an archive that was unpacked; written last."""


class Refusal(Exception):
    """Why the job cannot start."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def main(archive: str, digest: str, version: str, scratch: str, module: str, *arguments: str) -> None:
    """Become the module, with the archive on the path."""
    check_python(version)
    name_the_user()
    folder = os.path.join(own_folder(scratch), "code-" + digest)
    if not is_whole(folder):
        unpack(fetch(archive, digest), folder)
    os.environ["PYTHONPATH"] = folder
    os.chdir(own_folder(scratch))
    # Standard input was this file: what comes next must not read the rest of it.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *arguments])


def check_python(version: str) -> None:
    """Refuse any Python but the driver's."""
    found = "%d.%d" % sys.version_info[:2]  # noqa: UP031
    if found != version:
        raise Refusal(
            EXIT_WRONG_PYTHON,
            f"this machine's Python is {found} ({sys.executable}), but the run was planned with {version}: neither"
            f" reads the other's functions. Name a Python {version} in `jobs: python:` of the cluster's file, or start"
            f" the run with Python {found}.",
        )


def name_the_user() -> None:
    """Some clusters start a job without the variables that a login sets."""
    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError:  # As in containers.
        return
    for name, value in (("HOME", user.pw_dir), ("USER", user.pw_name), ("LOGNAME", user.pw_name)):
        os.environ.setdefault(name, value)


def own_folder(scratch: str) -> str:
    """This user's folder below the scratch folder, where anybody may already have created one of that name."""
    path = os.path.join(scratch, "marin-rules-%d" % os.getuid())  # noqa: UP031
    try:
        os.makedirs(path, 0o700, exist_ok=True)
        found, above = os.lstat(path), os.stat(scratch)
    except OSError as error:
        raise Refusal(
            EXIT_UNREACHABLE,
            f"cannot make {path}: {error.strerror}. Name a folder that all nodes have in `jobs: scratch:` of the"
            " cluster's file.",
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise Refusal(
            EXIT_NOT_OURS,
            f"{path} is not this user's own folder: others could put their code there. Remove it, or name another"
            " folder in `jobs: scratch:` of the cluster's file.",
        )
    if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        raise Refusal(
            EXIT_NOT_OURS,
            f"everyone can write to {scratch} and rename what is in it, {path} too: others could put their code in its"
            f" place. Have its sticky bit set (chmod +t {scratch}), or name another folder in `jobs: scratch:` of the"
            " cluster's file.",
        )
    return path


def fetch(archive: str, digest: str) -> bytes:
    """The bytes of the archive, if they are those that the driver sent."""
    data = patiently_read(archive)
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        raise Refusal(
            EXIT_DAMAGED,
            f"{archive} is not the code that this run has sent: its SHA-256 is {found}. It is damaged, or somebody has"
            " put another in its place; none of it was run. See who can write there, and start the run again: that"
            " replaces it.",
        )
    return data


def patiently_read(archive: str) -> bytes:
    """The file or object; one that does not arrive is requested again."""
    for left in reversed(range(_TRIES)):
        try:
            if "://" not in archive:
                with open(archive, "rb") as file:
                    return file.read()
            import fsspec

            logging.disable()  # Clients log each attempt with a traceback; the error is reported below.
            with fsspec.open(archive, "rb") as file:
                return bytes(file.read())
        except ImportError as error:
            raise Refusal(
                EXIT_WRONG_PYTHON,
                f"{sys.executable} cannot read {archive}: {error}. Install what the worker needs there (cloudpickle,"
                " fsspec, pyyaml and the store's client), or leave `jobs: python:` out of the cluster's file, and uv"
                " makes a Python that has it.",
            ) from error
        except Exception as error:  # Whatever the client of a store raises.
            if not left:
                raise Refusal(
                    EXIT_UNREACHABLE,
                    f"cannot fetch {archive}: {type(error).__name__}: {error}. This machine must reach the prefix, and"
                    " have the right to read it: look at proxies and credentials, which jobs get by the names of"
                    " docs/slurm.md.",
                ) from error
        time.sleep(_PAUSE_SECONDS)
    raise AssertionError


def is_whole(folder: str) -> bool:
    """Whether everything that was unpacked is still there.

    Machines remove what nobody has read for days from folders like /tmp, file by file; and where there is a compiled
    file, Python does not read the source.
    """
    try:
        with open(os.path.join(folder, _NAMES), encoding="utf-8") as file:
            return all(os.path.exists(os.path.join(folder, name)) for name in file.read().split("\n"))
    except OSError:
        return False


def unpack(data: bytes, folder: str) -> None:
    """Unpack the archive, for all jobs that need it: each file is there as a whole, or not at all.

    Other jobs may do the same at this moment, or already run what is there: nothing that they use is removed.
    """
    temporary = tempfile.mkdtemp(prefix=".unpacking-", dir=os.path.dirname(folder))
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            archive.extractall(temporary)
            names = archive.namelist()
        with open(os.path.join(temporary, _NAMES), "w", encoding="utf-8") as file:
            file.write("\n".join(names))
        try:
            os.rename(temporary, folder)
        except OSError:
            if not os.path.isdir(folder):
                raise
            for name in [*names, _NAMES]:
                os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
                os.replace(os.path.join(temporary, name), os.path.join(folder, name))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Refusal as refusal:
        sys.stderr.write(f"marin-rules: nothing was started: {refusal}\n")
        sys.exit(refusal.code)
