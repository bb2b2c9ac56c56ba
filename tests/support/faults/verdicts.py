"""What must hold for a step of the nursery, judged by the bytes in its place and by the place's own history."""

from __future__ import annotations

import json

from support.faults.blobs import BLOB, blob, part_number
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


def assert_array_finished(place: Place, nursery: Nursery, step: str, tasks: int) -> None:
    """Each task was recorded as done once, the step after all of them and once, with the right bytes."""
    folder, number = nursery.folder_of(step), int(step.partition("/")[2])
    assert place.read(f"{folder}/{STATUS}") == b"SUCCESS"
    history = place.statuses(folder)
    assert history.count(b"SUCCESS") == 1, history
    assert history[-1] == b"SUCCESS", history
    for task in range(tasks):
        records = place.history(f"{folder}/.executor_tasks/round-1/{task}.json")
        words = [json.loads(data)["status"] for data in records]
        assert words.count("SUCCESS") == 1, words
        assert words[-1] == "SUCCESS", words
        assert place.read(f"{folder}/{BLOB}-{task}") == blob(part_number(number, task))
    artifact = json.loads(place.read(f"{folder}/{ARTIFACT}") or b"")
    assert artifact == [{"task": task} for task in range(tasks)]
    assert json.loads(place.read(f"{folder}/{INFO}") or b"")["name"] == step
    assert place.read(f"{folder}/{LEASE}") is None


def assert_array_is_not_done_too_early(place: Place, nursery: Nursery, step: str, tasks: int) -> None:
    folder = nursery.folder_of(step)
    if place.read(f"{folder}/{STATUS}") == b"SUCCESS":
        records = [place.read(f"{folder}/.executor_tasks/round-1/{task}.json") for task in range(tasks)]
        assert all(json.loads(data or b"{}").get("status") == "SUCCESS" for data in records), records


def _blob_of(step: str) -> bytes:
    return blob(int(step.partition("/")[2]))
