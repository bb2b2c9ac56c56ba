"""Builds the image of a Dockerfile as a folder, without Docker: its steps run in a bare Debian that debootstrap made.

What stands for what: the base image is Debian's smallest system of the same release; a step runs with the folder as its
root, as the user that the Dockerfile has named by then; of the project only what `COPY` names is there. An instruction
that is not known here is an error, and so is a step that fails.
"""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_RELEASES = {"13": "trixie"}
_BASE = re.compile(r"debian:(?P<release>\d+)\.\d+-slim")
_STEP_SECONDS = 300.0

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""As Debian's images set it."""

_SYSTEM_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_TRUSTED = "/etc/trusted-here.crt"
_CERTIFICATES = dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE"), _TRUSTED)
"""The network of the steps is that of this machine, which may go through a proxy with a certificate of its own."""


@dataclass(frozen=True)
class Instruction:
    """One of a Dockerfile: `RUN` and what follows it."""

    word: str
    rest: str


def read_instructions(text: str) -> list[Instruction]:
    """The instructions of a Dockerfile, without comments and with continued lines as one."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Instruction(*line.split(maxsplit=1)) for line in whole.splitlines()]


@dataclass
class Image:
    """A folder that is an image, or becomes one."""

    root: Path
    user: str = "root"
    folder: str = "/"
    variables: dict[str, str] = field(default_factory=lambda: {"PATH": _PATH})

    def run(
        self, words: Sequence[str], *, variables: Mapping[str, str] | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in it. What it starts ends with it."""
        inside = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--init-groups", *words]
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--root={self.root}", f"--wd={self.folder}",
             "--mount-proc", *inside],
            env={**_CERTIFICATES, **self.variables, "HOME": self._home(), **(variables or {})},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_STEP_SECONDS,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise AssertionError(f"{words} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def path(self, inside: str) -> Path:
        """A file of it, as it is seen from outside."""
        return self.root / inside.lstrip("/")

    def _home(self) -> str:
        rows = [line.split(":") for line in self.path("/etc/passwd").read_text().splitlines()]
        return next(row[5] for row in rows if row[0] == self.user)


@contextmanager
def built(dockerfile: Path, context: Path, root: Path, kept: Path) -> Iterator[Image]:
    """The image in the folder `root`, in memory; bare systems are kept in the folder `kept`, for the next time."""
    root.mkdir()
    _command("mount", "-t", "tmpfs", "tmpfs", str(root))  # Else half of the time goes into writing and deleting it.
    try:
        yield _build(dockerfile, context, Image(root), kept)
    finally:
        _command("umount", "--lazy", str(root))


def _build(dockerfile: Path, context: Path, image: Image, kept: Path) -> Image:
    for instruction in read_instructions(dockerfile.read_text()):
        match instruction.word, instruction.rest:
            case "FROM", base:
                _unpack_base(base, image.root, kept)
                shutil.copy(ssl.get_default_verify_paths().cafile or _SYSTEM_CERTIFICATES, image.path(_TRUSTED))
            case "RUN", command:
                image.run(["/bin/sh", "-c", command])
            case "COPY", names:
                *sources, target = names.split()
                _copy(context, sources, image.path(target))
            case "ENV", assignment:
                name, _, value = assignment.partition("=")
                image.variables[name] = value
            case "USER", user:
                image.user = user
            case "WORKDIR", folder:
                image.folder = folder
            case word, _:
                raise ValueError(f"{dockerfile}: {word} is not known here")
    return image


def _copy(context: Path, sources: Sequence[str], target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for source in sources:
        shutil.copy(context / source, target)


def _unpack_base(base: str, root: Path, kept: Path) -> None:
    match = _BASE.fullmatch(base)
    if match is None:
        raise ValueError(f"{base} is no slim Debian with its whole version")
    archive = kept / f"debian-{match['release']}.tar"
    if not archive.exists():
        _debootstrap(_RELEASES[match["release"]], root)
        # Under its name once it is whole: other tests may look for it at this moment.
        unfinished = kept / f"{archive.name}.{os.getpid()}"
        _command("tar", "-C", str(root), "-cf", str(unfinished), ".")
        unfinished.rename(archive)
    else:
        _command("tar", "-C", str(root), "-xf", str(archive))


def _debootstrap(release: str, root: Path) -> None:
    _command("debootstrap", "--variant=minbase", release, str(root))


def _command(*words: str) -> None:
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=_STEP_SECONDS, env={**os.environ, "PATH": path}
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
