"""What must hold for a step of the nursery, judged by the bytes in its place and by the place's own history."""

from __future__ import annotations

import json

from support.faults.blobs import BLOB, blob
from support.faults.nursery import Nursery
from support.faults.places import ARTIFACT, INFO, LEASE, STATUS, Place


def assert_nothing_partial_counts(place: Place, nursery: Nursery, step: str) -> None:
    folder = nursery.folder_of(step)
    if place.read(f"{folder}/{STATUS}") == b"SUCCESS":
        assert place.read(f"{folder}/{BLOB}") == _blob_of(step)


def assert_finished(place: Place, nursery: Nursery, step: str) -> None:
    """Committed once, with the right bytes, and given back."""
    folder = nursery.folder_of(step)
    assert place.read(f"{folder}/{STATUS}") == b"SUCCESS"
    history = place.statuses(folder)
    assert history.count(b"SUCCESS") == 1, history
    assert history[-1] == b"SUCCESS", history
    data = place.read(f"{folder}/{BLOB}")
    assert data == _blob_of(step)
    assert json.loads(place.read(f"{folder}/{ARTIFACT}") or b"") == {"bytes": len(data)}
    assert json.loads(place.read(f"{folder}/{INFO}") or b"")["name"] == step
    assert place.read(f"{folder}/{LEASE}") is None


def _blob_of(step: str) -> bytes:
    return blob(int(step.partition("/")[2]))
