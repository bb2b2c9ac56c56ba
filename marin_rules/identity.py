"""Identity: from a step to the six digits of its output path. Pure; Marin's, byte for byte.

    version = {"name", "config", "dependencies"[, "pseudo_dependencies"]}    as JSON with sorted keys
    output path = <prefix>/<name>-<md5(version)[:6]>

A dependency enters the version as its own version while it is at most four levels above the sources,
beyond that as the string `<name>-<hash>`. Function, description, resources, prefix and override never enter.

The text of a version is never built twice: a dependent refers to the text of its dependency, so wide graphs
cost the hashing of their bytes and little memory. Graphs are walked with a stack, never by recursion.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

from marin_rules.configs import Dependencies, below_prefix, collect_dependencies_and_version, join
from marin_rules.errors import PlanError
from marin_rules.steps import ExecutorStep

logger = logging.getLogger(__name__)

type Step = ExecutorStep[Any]
type Text = bytes | tuple[Text, ...]

HASH_DIGITS = 6
MAX_INLINE_DEPTH = 4
"""A dependency deeper than this enters its dependents' versions as `<name>-<hash>`."""

_JOIN_BELOW_BYTES = 1 << 16
"""Texts up to this size are kept as one string. Larger ones refer to the texts of their dependencies; they often
begin alike, and the beginning is hashed once."""

_JOIN_EACH_LEVELS = 64
_JOIN_LARGE_BELOW_BYTES = 4 << 20
"""A long row of references would become a text of many small pieces, so pieces are joined occasionally."""

MAX_VERSION_BYTES = 1 << 30
"""Chains of non-blocking references double the version at each level; Marin would run out of memory."""


class VersionError(PlanError, TypeError):
    """A versioned value has no JSON; Marin raises what the JSON encoder raises."""


@dataclass(slots=True, eq=False)
class Identity:
    """What one step is, apart from where it is put. Never changed; not frozen, because frozen objects are slow to
    create."""

    name: str
    hash: str
    """The digits in the output path."""

    digest: str
    """The whole md5: tells apart two versions whose six digits are the same."""

    depth: int
    """Levels of blocking dependencies below the step."""

    size: int
    """Bytes of the version's text."""

    nesting: int
    """Levels of versions written into each other."""

    text: Text
    """The version as JSON, sharing the texts of the dependencies."""

    version: dict[str, Any]
    """The version as a structure, sharing the versions of the dependencies."""

    mention: Text
    """How the step appears in the versions of its dependents: its own version, or the JSON of `<name>-<hash>`."""

    @property
    def name_and_hash(self) -> str:
        return f"{self.name}-{self.hash}"

    def version_string(self) -> str:
        """The text that is hashed, in one piece. It can be large: see `size`."""
        return b"".join(_pieces(self.text)).decode()

    def output_path(self, prefix: str, override: str | None = None) -> str:
        if override is not None:
            return below_prefix(prefix, override)
        return join(prefix, self.name_and_hash)


def identify(
    name: str,
    collected: Dependencies,
    identities: Mapping[Step, Identity],
    heads: dict[Any, Any],
) -> Identity:
    """The identity of a step whose dependencies have theirs. `heads` keeps hashes that steps can share."""
    blocking = [identities[step] for step in collected.dependencies]
    pseudo = [identities[step] for step in collected.pseudo_dependencies]
    config = to_json(collected.version).encode()
    head: list[Text] = [b'{"config": ', config, b', "dependencies": [', *_separated(blocking), b'], "name": ']
    tail: list[Text] = [json.dumps(name).encode()]
    version: dict[str, Any] = {
        "name": name,
        "config": collected.version,
        "dependencies": [_inlined(dependency) for dependency in blocking],
    }
    if pseudo:
        tail += [b', "pseudo_dependencies": [', *_separated(pseudo), b"]"]
        version["pseudo_dependencies"] = [_inlined(dependency) for dependency in pseudo]
    tail.append(b"}")

    text: Text
    own = sum([len(part) for part in (*head, *tail) if isinstance(part, bytes)])
    size = own + sum([item.size for item in (*blocking, *pseudo) if isinstance(item.mention, tuple)])
    nesting = 1 + max([item.nesting for item in (*blocking, *pseudo) if item.depth <= MAX_INLINE_DEPTH], default=0)
    if size <= (_JOIN_LARGE_BELOW_BYTES if nesting % _JOIN_EACH_LEVELS == 0 else _JOIN_BELOW_BYTES):
        text = b"".join(_pieces((*head, *tail)))
        digest = hashlib.md5(text, usedforsecurity=False).hexdigest()
    else:
        text = (*head, *tail)
        _check_size(name, size)
        key = (config, tuple(id(dependency) for dependency in blocking))
        if key not in heads:
            heads[key] = _hashed(hashlib.md5(usedforsecurity=False), head)
        digest = _hashed(heads[key].copy(), tail).hexdigest()
    depth = 1 + max([dependency.depth for dependency in blocking], default=-1)
    name_and_hash = f"{name}-{digest[:HASH_DIGITS]}"
    return Identity(
        name=name,
        hash=digest[:HASH_DIGITS],
        digest=digest,
        depth=depth,
        size=size,
        nesting=nesting,
        text=text,
        version=version,
        mention=text if depth <= MAX_INLINE_DEPTH else json.dumps(name_and_hash).encode(),
    )


def _check_size(name: str, size: int) -> None:
    if size > MAX_VERSION_BYTES:
        raise PlanError(
            f"step {name!r}: its version would be {size / 2**30:.0f} GiB of text, because non-blocking references"
            " are written out in full at every level. Cut the chain: refer to one of the steps by a hard-coded"
            " path (InputName.hardcoded)."
        )


def _inlined(dependency: Identity) -> dict[str, Any] | str:
    return dependency.version if dependency.depth <= MAX_INLINE_DEPTH else dependency.name_and_hash


def _separated(dependencies: list[Identity]) -> list[Text]:
    parts: list[Text] = []
    for dependency in dependencies:
        parts += (b", ", dependency.mention)
    return parts[1:]


def _pieces(text: Text) -> list[bytes]:
    """The strings that a text is made of."""
    pieces: list[bytes] = []
    pending: list[Text] = [text]
    while pending:
        part = pending.pop()
        if isinstance(part, bytes):
            pieces.append(part)
        else:
            pending.extend(reversed(part))
    return pieces


def _hashed(state: Any, parts: list[Text]) -> Any:
    for part in parts:
        for piece in _pieces(part):
            state.update(piece)
    return state


def to_json(value: Any) -> str:
    """JSON as Marin writes it: sorted keys, default separators."""
    return _ENCODER.encode(value)


def _encode(value: Any) -> Any:
    if isinstance(value, timedelta):
        return {"days": value.days, "seconds": value.seconds, "microseconds": value.microseconds}
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if not isinstance(value, os.PathLike):
        logger.debug("no JSON form for %s, its text is used: %s", type(value).__name__, value)
    return str(value)


_ENCODER = json.JSONEncoder(sort_keys=True, default=_encode)


class IdentityGraph:
    """Identities of steps and of all they depend on, computed on demand and kept."""

    def __init__(self) -> None:
        self.collected: dict[Step, Dependencies] = {}
        self.identities: dict[Step, Identity] = {}
        self._heads: dict[Any, Any] = {}

    def add(self, root: Step) -> list[Step]:
        """Identify `root` and what it depends on; returns the newly known steps, dependencies first.

        The order is that of a depth-first walk which visits blocking references before the others.
        """
        if root in self.identities:
            return []
        added: list[Step] = []
        path: dict[Step, Iterator[Step]] = {root: self._references(root)}
        while path:
            step, references = next(reversed(path.items()))
            reference = next((item for item in references if item not in self.identities), None)
            if reference is None:
                self.identities[step] = self._identify(step)
                added.append(step)
                del path[step]
            elif reference in path:
                names = [item.name for item in path]
                loop = [*names[list(path).index(reference) :], reference.name]
                raise PlanError(f"the steps depend on each other in a circle: {' -> '.join(loop)}")
            else:
                path[reference] = self._references(reference)
        return added

    def adopt(self, other: IdentityGraph) -> list[Step]:
        """Take over the identities of another graph; returns the newly known steps, dependencies first."""
        added = [step for step in other.identities if step not in self.identities]
        self.collected |= other.collected
        self.identities |= other.identities
        return added

    def _identify(self, step: Step) -> Identity:
        try:
            return identify(step.name, self.collected[step], self.identities, self._heads)
        except PlanError:
            raise
        except (TypeError, ValueError, RecursionError) as error:
            raise VersionError(f"step {step.name!r}: a versioned value cannot be written as JSON: {error}") from error

    def _references(self, step: Step) -> Iterator[Step]:
        try:
            collected = collect_dependencies_and_version(step.config)
        except ValueError as error:
            raise PlanError(f"step {step.name!r}: {error}") from error
        self.collected[step] = collected
        return iter([*collected.dependencies, *collected.pseudo_dependencies])
