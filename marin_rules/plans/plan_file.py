"""The file of a frozen plan.

    magic line | lengths of the next two | index (JSON) | what is known last (JSON): forced and resumed steps, conda
    definitions | sources | for each step: its record | for each step: its call

Each part carries a checksum; a plan that is truncated or damaged is refused with a named error.

Jobs execute what they find in the file, so it must be the driver's work: the driver gives them the plan's digest, which
covers everything but what is known last. A plan without a digest, or with conda environments, must be in a file and a
folder that only the user can write to.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from marin_rules.errors import MarinRulesError
from marin_rules.plans.conda import CondaEnvironment
from marin_rules.plans.frozen import FrozenPlan, step_from_row
from marin_rules.plans.plan_checks import check_part, check_writers, digest_of
from marin_rules.plans.run import Run
from marin_rules.software.environment import Environment
from marin_rules.storage.files import write_atomic
from marin_rules.storage.private_files import make_private_folder, read_within
from marin_rules.urls import is_url

_MAGIC = b"marin-rules plan 6\n"
_LENGTHS = struct.Struct("<QIQI")
"""Length and checksum of the index, and of what is known last."""


class PlanFileError(MarinRulesError):
    """The frozen plan is missing or damaged."""


def write_plan(plan: FrozenPlan, path: str) -> None:
    """Write the plan, for this user's eyes only, into a folder of the same kind."""
    conda = {str(index): environment.to_fields() for index, environment in plan.conda.items()}
    known = {"forced": plan.forced, "anew": plan.anew, "conda": conda, "resumed": plan.resumed}
    last = json.dumps(known).encode()
    lengths = _LENGTHS.pack(len(plan.index), zlib.crc32(plan.index), len(last), zlib.crc32(last))
    make_private_folder(os.path.dirname(path) or ".")
    write_atomic(path, b"".join([_MAGIC, lengths, plan.index, last, *plan.parts()]), mode=0o600)


def read_plan(path: str, digest: str | None = None) -> FrozenPlan:
    """The plan at `path`: the one with this digest, or else one that this user has written."""
    data, is_ours = read_within(*os.path.split(path))
    if data is None:
        raise PlanFileError(
            f"the plan {path} is gone: the run it belongs to was cleaned up. Start the experiment again."
        )
    with _damage_named(path):
        index, content, parts = _content(data)
        has_conda = bool(content["conda"])
    # Conda environments are known last, and no digest covers them. In a bucket nobody could vouch for them either; they
    # are folders of this machine anyway.
    if digest is None or (has_conda and not is_url(path)):
        check_writers(path, is_ours)
    if digest not in (None, digest_of(index, parts)):
        raise PlanFileError(
            f"the plan {path} is not the one that this run wrote: somebody has put another in its place. Nothing"
            f" was run from it. See who can write to {os.path.dirname(path)}, and start the experiment again."
        )
    with _damage_named(path):
        return _plan(content, parts)


@contextmanager
def _damage_named(path: str) -> Iterator[None]:
    """Turn anything wrong in the file at `path` into one kind of error."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error) as error:
        raise PlanFileError(
            f"the plan {path} is damaged ({error}). Nothing was run from it; start the experiment again to write a new"
            " one."
        ) from error


def _content(data: bytes) -> tuple[bytes, dict[str, Any], list[bytes]]:
    """The index as it was written, what it and the end of the index say, and the parts; all undamaged."""
    start = len(_MAGIC) + _LENGTHS.size
    if not data.startswith(_MAGIC):
        raise ValueError("it does not start like a plan of this version of marin-rules")
    length, checksum, last_length, last_checksum = _LENGTHS.unpack_from(data, len(_MAGIC))
    index = data[start : start + length]
    check_part(index, length, checksum, "index")
    base = start + length + last_length
    last = data[start + length : base]
    check_part(last, last_length, last_checksum, "index")
    content = json.loads(index) | json.loads(last)
    parts = []
    for offset, size, part_checksum in content["parts"]:
        part = data[base + offset : base + offset + size]
        check_part(part, size, part_checksum, "content")
        parts.append(part)
    return index, content, parts


def _plan(content: Mapping[str, Any], parts: Sequence[bytes]) -> FrozenPlan:
    run = content["run"] | {key: tuple(content["run"][key]) for key in ("python_path", "rule_files")}
    count = len(content["steps"])
    return FrozenPlan(
        run=Run(**run),
        steps=[step_from_row(index, row) for index, row in enumerate(content["steps"])],
        software=[Environment.from_fields(fields) for fields in content["software"]],
        warnings=tuple(content["warnings"]),
        forced=tuple(content["forced"]),
        anew=tuple(content["anew"]),
        conda={int(index): CondaEnvironment.from_fields(fields) for index, fields in content["conda"].items()},
        resumed={int(index): attempts for index, attempts in content["resumed"].items()},
        definitions=parts[0],
        sources=parts[1],
        records=list(parts[2 : count + 2]),
        calls=list(parts[count + 2 :]),
    )
