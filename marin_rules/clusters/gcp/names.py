"""The names of jobs on Google Cloud, and the labels by which they are found again: pure.

A label holds 63 characters of a small alphabet, and a tag is any text: so it is spread over as many labels as it needs,
in an alphabet that labels have. In addition there are labels that people can read and lists can be filtered by.
"""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Mapping

from marin_rules.clusters.protocol import JobTag

OURS, OWNER, RUN, STEP, JOB, ARRAY = (f"marin-{word}" for word in ("rules", "owner", "run", "step", "job", "array"))
"""Labels of all our jobs: that it is one, whose, of which run and step, its own id, and whether it is an array."""

ACCELERATOR = "marin-accelerator"
"""A label of jobs whose workers have TPU slices, and of the nodes of these: the type of the slice."""

SLICE, REQUEST = "marin-slice", "marin-request"
"""Labels of the nodes of TPU slices, beside those of their job: for which step the slice is, and a digest of all that
was asked for."""

_TAG = "marin-tag"
_LONGEST = 63
"""Characters of a job's id, and of a label's value."""

_DIGEST_CHARACTERS = 10
_NAME_CHARACTERS = 40
_NAMESPACE = uuid.UUID("6f9a1d0e-5d0a-4f0e-9a55-0d4c5b1f2f6e")


def job_id(name: str, identity: str, number: int) -> str:
    """The id of the job that is the `number`th for the same thing: `train-3f2a9c01b7-1`.

    The same arguments give the same id: a job that exists already is found by it.
    """
    words = _slug(name)[:_NAME_CHARACTERS].strip("-") or "job"
    if not words[0].isalpha():
        words = f"j-{words}"
    return f"{words}-{digest(identity)}-{number}"


def request_id(job: str) -> str:
    """Tells Batch that a request to create this job repeats the previous one, whose answer was lost."""
    return str(uuid.uuid5(_NAMESPACE, job))


def label_value(text: str) -> str:
    """A text as the value of a label: unchanged if possible, otherwise what is left of it with a digest of the
    whole."""
    if re.fullmatch(r"[a-z0-9_-]{1,63}", text):
        return text
    words = _slug(text)[: _LONGEST - _DIGEST_CHARACTERS - 1].strip("-")
    return f"{words}-{digest(text)}".lstrip("-")


def tag_labels(tag: JobTag) -> dict[str, str]:
    """The labels that hold a tag."""
    text = base64.b32encode(str(tag).encode()).decode().rstrip("=").lower()
    parts = [text[start : start + _LONGEST] for start in range(0, len(text), _LONGEST)]
    readable = {RUN: label_value(tag.run), STEP: label_value(tag.step)}
    return readable | {f"{_TAG}-{number:02d}": part for number, part in enumerate(parts)}


def tag_of(labels: Mapping[str, str]) -> JobTag | None:
    """The tag in a job's labels; None if there is none of ours."""
    text = "".join(labels[key] for key in sorted(key for key in labels if key.startswith(f"{_TAG}-"))).upper()
    try:
        return JobTag.parse(base64.b32decode(text + "=" * (-len(text) % 8)).decode())
    except ValueError:  # Somebody else's label.
        return None


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def digest(text: str) -> str:
    """A few characters that distinguish a text from others."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]
