"""The identity of a StepSpec: from its name, attributes and dependencies to the eight digits of its path. Pure.

    content = {"name", "attrs", "deps": sorted(<name>_<hash> of each dependency)}    as JSON with sorted keys
    output path = <prefix>/<name>_<sha256(content)[:8]>

Marin's, byte for byte. Unlike the version of an ExecutorStep (see `identity`), it covers dependencies by their names
and hashes alone, in no order, and accepts no value that JSON does not have.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SPEC_HASH_DIGITS = 8


@dataclass(frozen=True, slots=True)
class SpecIdentity:
    """What one StepSpec is, apart from where it is put."""

    name: str

    digest: str
    """The whole sha256: tells apart two StepSpecs whose eight digits are the same."""

    @property
    def hash_id(self) -> str:
        return self.digest[:SPEC_HASH_DIGITS]

    @property
    def name_with_hash(self) -> str:
        return spec_label(self.name, self.digest)


def spec_label(name: str, digest: str) -> str:
    """`<name>_<hash>`, the end of the path of a StepSpec with this digest."""
    return f"{name}_{digest[:SPEC_HASH_DIGITS]}"


def identify_spec(name: str, attrs: Mapping[str, Any], dependency_names: Iterable[str]) -> SpecIdentity:
    """The identity of a StepSpec; `TypeError` for an attribute that JSON does not have, as in Marin."""
    try:
        content = json.dumps({"name": name, "attrs": attrs, "deps": sorted(dependency_names)}, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"StepSpec {name!r}: hash_attrs cannot be written as JSON ({error}). Give names, numbers, lists and dicts"
            " with keys of one kind, such as str(path) for a path."
        ) from error
    return SpecIdentity(name, hashlib.sha256(content.encode()).hexdigest())
