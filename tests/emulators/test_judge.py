"""The judge of requests finds what Google's own documents object to, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from support.emulators.rpc.judge import objections, objections_to_call

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


_BATCH, _TPU = "google.cloud.batch.v1.BatchService", "google.cloud.tpu.v2.Tpu"
REGION = "projects/p/locations/us-central1"


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        (f"{_BATCH}/CreateJob", {"parent": REGION, "jobId": "a", "requestId": "1", "job": GOOD}),
        (f"{_BATCH}/CancelJob", {"name": f"{REGION}/jobs/a", "requestId": "1"}),
        (f"{_BATCH}/ListJobs", {"parent": "projects/p/locations/-", "pageSize": 5, "filter": "x"}),
        (f"{_TPU}/DeleteQueuedResource", {"name": f"{REGION}/queuedResources/a", "force": True}),
    ],
)
def test_a_sound_call_is_taken(method: str, request_: dict[str, Any]) -> None:
    assert objections_to_call(method, request_) == []


@pytest.mark.parametrize(
    ("method", "request_", "words"),
    [
        (f"{_BATCH}/EndJob", {}, "no such method"),
        (f"{_BATCH}/CreateJob", {"job": GOOD}, "parent: None does not match ^projects/"),
        (f"{_BATCH}/CreateJob", {"parent": REGION, "job": {"uid": "1"}}, "Job.uid: output only"),
        (f"{_BATCH}/CreateJob", {"parent": REGION, "job": GOOD, "body": {}}, "body: unknown field"),
        (f"{_BATCH}/CancelJob", {"name": f"{REGION}/jobs/a", "force": True}, "force: unknown field"),
        (f"{_BATCH}/ListJobs", {"parent": REGION, "pageSize": "5"}, "pageSize: '5' is not of type integer"),
        (f"{_TPU}/ListQueuedResources", {"parent": REGION, "filter": "x"}, "filter: unknown field"),
        (f"{_TPU}/GetQueuedResource", {"name": f"{REGION}/nodes/a"}, "does not match ^projects/"),
    ],
)
def test_what_is_wrong_with_a_call_is_named(method: str, request_: dict[str, Any], words: str) -> None:
    (objection,) = objections_to_call(method, request_)
    assert words in objection
