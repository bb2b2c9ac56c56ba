"""The judge of requests finds what Google's own documents object to, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from support.emulators.rpc.judge import objections

GOOD = {
    "taskGroups": [
        {
            "taskCount": "2",
            "taskSpec": {
                "runnables": [{"script": {"text": "true"}}],
                "maxRetryCount": 1,
                "maxRunDuration": "3600s",
                "environment": {"variables": {"ANY": "name"}},
            },
        }
    ],
    "labels": {"run": "a"},
    "logsPolicy": {"destination": "CLOUD_LOGGING"},
}


def test_a_sound_job_is_taken() -> None:
    assert objections("batch.v1", "Job", GOOD) == []


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"taskgroups": []}, ["Job.taskgroups: unknown field"]),
        ({"uid": "1"}, ["Job.uid: output only"]),
        ({"labels": {"run": 1}}, ["Job.labels.run: 1 is not of type string"]),
        ({"logsPolicy": {"destination": "DISK"}}, ["Job.logsPolicy.destination: 'DISK' is none of"]),
        ({"taskGroups": [{"taskCount": "two"}]}, ["Job.taskGroups[0].taskCount: 'two' is not a whole number"]),
        ({"taskGroups": [{"taskSpec": {"maxRunDuration": "1h"}}]}, ["maxRunDuration: '1h' is no duration"]),
        ({"taskGroups": [{"taskSpec": {"environments": {}}}]}, ["environments: deprecated"]),
        ({"taskGroups": {}}, ["Job.taskGroups: {} is not of type array"]),
    ],
)
def test_what_is_wrong_is_named(document: dict[str, Any], words: list[str]) -> None:
    found = objections("batch.v1", "Job", document)
    assert len(found) == len(words)
    assert all(word in objection for word, objection in zip(words, found, strict=True))
