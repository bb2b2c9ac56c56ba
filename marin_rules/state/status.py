"""The state of a step: one token in `<output path>/.executor_status`.

The format is Marin's, so that a bucket that Marin has filled is read as it is. Its older executors wrote a
log instead, a JSON object a line; there the last event counts. They knew two more states, which are read as `RUNNING`,
because such a step has not ended.

A file that is neither is never "done" and never "absent": it is a `CorruptStatusError`, because only a person can say
whether the data beside it is complete. This module only reads. Statuses are written through
`marin_rules.storage.leases.lease.Lease.commit`, by the worker that holds the lease.
"""

import json
import os
import secrets
from collections.abc import Sequence
from enum import StrEnum

from marin_rules.errors import MarinRulesError
from marin_rules.storage.files import read_bytes
from marin_rules.urls import is_url

STATUS_FILE = ".executor_status"
INFO_FILE = ".executor_info"
ARTIFACT_FILE = ".artifact.json"
AGAIN_FILE = ".executor_again"
LOG_FILE = ".executor_log"
LEASE_FILE = ".executor_status.lock"


class Status(StrEnum):
    """The outcome of a step. The values are what the status file holds."""

    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    DEP_FAILED = "DEP_FAILED"
    RUNNING = "RUNNING"
    CANCELLED = "CANCELLED"


STATUS_SUCCESS, STATUS_FAILED = Status.SUCCESS, Status.FAILED
STATUS_DEP_FAILED, STATUS_RUNNING = Status.DEP_FAILED, Status.RUNNING
"""Marin's names for them."""


_NOT_ENDED = frozenset({"WAITING", "UNKNOWN"})
"""In Marin's older statuses: a worker waits for the steps that this one depends on, and did not live to write
`RUNNING`; or it has lost sight of the task that does the step."""


class CorruptStatusError(MarinRulesError, ValueError):
    """A status file whose content we do not know."""


def status_path(output_path: str) -> str:
    """Where the status of the step with this output path is."""
    return os.path.join(output_path, STATUS_FILE)


def parse_status(data: bytes, path: str) -> Status:
    """The status in the bytes of a status file; `path` is for the error."""
    try:
        text = data.decode().rstrip()
        word = _last_event_status(text) if text.startswith("{") else text
        return Status.RUNNING if word in _NOT_ENDED else Status(word)
    except (ValueError, RecursionError) as error:
        directory = os.path.dirname(path) or "."
        raise CorruptStatusError(
            f"the status file {path} holds {_shortened(data)}, which is not a status. Look at the data in "
            f"{directory}: if it is complete, write {Status.SUCCESS} into the file; otherwise delete the "
            "file, and the next run does the step again."
        ) from error


def read_status(output_path: str) -> Status | None:
    """The status of one step, `None` when it has none yet."""
    path = status_path(output_path)
    data = read_bytes(path)
    return None if data is None else parse_status(data, path)


def read_statuses(output_paths: Sequence[str]) -> dict[str, Status | CorruptStatusError | None]:
    """The statuses of many steps. A corrupt file comes back as its error, so that it stops only its own step.

    Local files are read one after the other, which is faster than handing them to threads; objects in one go.
    """
    paths = {output_path: status_path(output_path) for output_path in output_paths}
    urls = [path for path in paths.values() if is_url(path)]
    objects: dict[str, bytes | None] = {}
    if urls:
        from marin_rules.storage.bulk import read_many  # Imported here to spare local runs the wait.

        objects = read_many(urls)
    return {
        output_path: _status_or_error(objects[path] if path in objects else read_bytes(path), path)
        for output_path, path in paths.items()
    }


def status_bytes(status: Status, output_path: str, *, again: bool = False) -> bytes:
    """What to write into a status file.

    On stores whose versions are hashes of the content, two workers' RUNNING would look the same, and one could be
    mistaken for the other. There each status is an event of Marin's older form with a token of its own; except the
    SUCCESS of a step that was not done before, because there is no other. `again` says that there was.
    """
    is_only_one = status is Status.SUCCESS and not again
    if is_only_one or not is_url(output_path) or not _versions_repeat(output_path):
        return status.encode()
    return json.dumps({"status": status, "token": secrets.token_hex(8)}).encode()


def _versions_repeat(output_path: str) -> bool:
    from marin_rules.storage.objects.open import open_objects

    return open_objects(output_path).repeats_versions


def _status_or_error(data: bytes | None, path: str) -> Status | CorruptStatusError | None:
    try:
        return None if data is None else parse_status(data, path)
    except CorruptStatusError as error:
        return error


def _last_event_status(text: str) -> str:
    """The status of the last event of a legacy log; `ValueError` unless each line is such an event."""
    status = ""
    for line in text.split("\n"):
        event = json.loads(line)
        if not isinstance(event, dict) or not isinstance(event.get("status"), str):
            raise ValueError(f"not an event with a status: {line}")
        status = event["status"]
    return status


def _shortened(data: bytes) -> str:
    if not data.strip():
        return "nothing"
    return repr(data) if len(data) <= 60 else f"{data[:60]!r}..."
