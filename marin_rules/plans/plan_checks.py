"""Whether the file of a plan is whole, and written by the user who runs it: checked before anything in it is
executed."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Sequence

from marin_rules.settings.ownership import TRUST_VARIABLE, UntrustedError


def check_writers(path: str, is_ours: bool) -> None:
    """Refuse a plan that others could have written; `is_ours` says that they could not."""
    if not is_ours:
        raise UntrustedError(
            f"the plan {path} is not used: somebody else can have written it (`ls -la {os.path.dirname(path) or '.'}`"
            " shows who). Start the experiment again, with a prefix where files keep their owners and modes; or name"
            f" whom you trust in {TRUST_VARIABLE}."
        )


def digest_of(index: bytes, parts: Sequence[bytes]) -> str:
    """Distinguishes a plan from every other one: nobody can make another with the same digest."""
    digest = hashlib.sha256(index)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def check_part(part: bytes, size: int, checksum: int, what: str) -> None:
    """Refuse a part of a plan that was damaged by accident."""
    if len(part) != size:
        raise ValueError(f"its {what} is cut short")
    if zlib.crc32(part) != checksum:
        raise ValueError(f"its {what} has a wrong checksum")
