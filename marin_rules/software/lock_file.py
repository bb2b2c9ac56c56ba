"""Reads lock files, as `marin-rules lock` and `uv pip compile --generate-hashes` write them.

A lock says what is installed and nothing else: pins with hashes. Where packages come from is the machine's business, so
an index address is refused; so is anything that would let in a file without a hash. A universal lock has pins for
several interpreters: markers are decided here, for the running one.

Packages come as wheels. One that has none is built only if the lock says so (`--no-binary NAME`), with the build tools
that the lock pins: others would be fetched in unchosen versions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import NormalizedName, canonicalize_name

from marin_rules.errors import SettingsError
from marin_rules.settings.ownership import check_not_planted
from marin_rules.software.credentials import has_credentials, without_credentials
from marin_rules.software.lock import Lock

_HASH = re.compile(r"--hash[= ](sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})(?=\s|$)")
_COMMENT = re.compile(r"(^|\s)#.*$")
_INDEX_OPTIONS = frozenset(
    {"-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--trusted-host", "--default-index", "--index"}
)
_AGAIN = "Compile it again (docs/environments.md#locks)."


def read_lock(path: Path, *, name: str) -> Lock:
    """The lock in a file; `name` is the file's name for people."""
    check_not_planted(str(path), str(path.parent), "the lock")
    try:
        data = path.read_bytes()
        text = data.decode()
    except FileNotFoundError:
        raise SettingsError(f"the lock {path} does not exist. Compile it (docs/environments.md#locks).") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"the lock {path} cannot be read: {error}") from error
    reading = _Reading(path)
    for line in _logical_lines(text):
        reading.take(line)
    wheels, sources = reading.divided()
    return Lock(name, hashlib.sha256(data).hexdigest(), wheels, sources)


def missing_from(lock: Lock, requirements: Iterable[str]) -> list[str]:
    """The requirements that the lock does not satisfy."""
    pinned = {canonicalize_name(one.name): one for one in map(Requirement, lock.pins)}
    return [text for text in requirements if not _satisfies(pinned, Requirement(text))]


def _satisfies(pinned: Mapping[NormalizedName, Requirement], wanted: Requirement) -> bool:
    pin = pinned.get(canonicalize_name(wanted.name))
    if pin is None:
        return False
    if wanted.url is not None or pin.url is not None:
        return wanted.url == pin.url or not (wanted.url or wanted.specifier)
    (exactly,) = pin.specifier
    return wanted.specifier.contains(exactly.version, prereleases=True)


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments, those that end with a backslash together with the next."""
    held = ""
    for raw in text.splitlines():
        line = _COMMENT.sub("", raw).rstrip()
        if line.endswith("\\"):
            held += line[:-1] + " "
        elif whole := (held + line).strip():
            held = ""
            yield whole
        else:
            held = ""
    if held.strip():
        yield held.strip()


class _Reading:
    """What one file contains so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pins: dict[str, str] = {}
        self._sources: set[str] = set()

    def take(self, line: str) -> None:
        if line.startswith("-"):
            self._take_option(line)
        else:
            self._take_pin(line)

    def divided(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The pins that are for this interpreter: of wheels, and of what is built."""
        if not self._pins:
            raise self._refusal("pins nothing for this Python and platform", _AGAIN)
        named = sorted(self._pins.items())
        return (
            tuple(line for name, line in named if name not in self._sources),
            tuple(line for name, line in named if name in self._sources),
        )

    def _take_option(self, line: str) -> None:
        option, _, value = line.replace("=", " ", 1).partition(" ")
        value = value.strip()
        if option in _INDEX_OPTIONS:
            raise self._refusal(
                f"names a package index ({option})",
                "Where packages come from is up to each machine (UV_DEFAULT_INDEX), and the address may hold a"
                " password. Take the line out, or compile the lock with --no-emit-index-url.",
            )
        if option == "--no-binary" and not value.startswith(":"):
            self._sources.update(canonicalize_name(name.strip()) for name in value.split(","))
        elif (option, value) != ("--only-binary", ":all:"):
            raise self._refusal(
                f"has the line {without_credentials(line)!r}",
                "A lock holds pins with hashes, `--only-binary :all:`, and `--no-binary NAME` for what is built.",
            )

    def _take_pin(self, line: str) -> None:
        text = _HASH.sub("", line).strip()
        shown = without_credentials(text)
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            raise self._refusal(f"has {shown!r}, which is not a pin with sha256 hashes", _AGAIN) from None
        if requirement.url is not None and has_credentials(requirement.url):
            raise self._refusal(
                f"has credentials in the URL of {requirement.name}",
                "Write ${NAME} for the secret, and set that variable where the environment is made.",
            )
        specifiers = list(requirement.specifier)
        is_exact = len(specifiers) == 1 and specifiers[0].operator in ("==", "===") and "*" not in specifiers[0].version
        if requirement.url is None and not is_exact:
            raise self._refusal(f"has {shown!r}, which leaves the version open", _AGAIN)
        hashes = _HASH.findall(line)
        if not hashes:
            raise self._refusal(f"has no hash for {shown!r}", "Compile it again, with --generate-hashes.")
        if requirement.marker is not None and not requirement.marker.evaluate():
            return
        requirement.marker = None
        name = canonicalize_name(requirement.name)
        if name in self._pins:
            raise self._refusal(f"pins {name} twice for this Python and platform", _AGAIN)
        self._pins[name] = " ".join([str(requirement), *(f"--hash={one}" for one in hashes)])

    def _refusal(self, what: str, advice: str) -> SettingsError:
        return SettingsError(f"the lock {self._path} {what}. {advice}")
