"""What jobs on Google Batch print: the lines that Cloud Logging has of them.

Batch labels each line with the job (`job_uid`) and the task (`task_id`) that printed it. Lines arrive some seconds
late, and a project may ask for them about once a second: they are for people who investigate a failure, not for
following a step, whose own log is beside its data.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any

from marin_rules.clusters.gcp.calls import Calls, open_client

EMULATOR_VARIABLE = "LOGGING_EMULATOR_HOST"
"""Where Cloud Logging is emulated, as `host:port`."""

_PATIENCE_SECONDS = 5.0
"""How long a read is retried: the run waits meanwhile, and does not need it."""

_LOG = "batch_task_logs"
_MOST_PAGES = 20
"""Cloud Logging may answer with an empty page and keep searching; at some point there is nothing to find."""


class TaskLogs:
    """The lines of all tasks of a project. Its client is created on first use."""

    def __init__(self, project: str, calls: Calls) -> None:
        self._project = project
        self._call = replace(calls, retry_seconds=min(calls.retry_seconds, _PATIENCE_SECONDS), roles="logging.viewer")
        self._lock = threading.Lock()
        self._client: Any = None

    def last_lines(self, uid: str, task: int | None, since: datetime | None, count: int) -> list[str]:
        """The last lines of the job with this uid that was created at this time, or of one of its tasks."""
        from google.cloud.logging_v2.types import ListLogEntriesRequest

        request = ListLogEntriesRequest(
            resource_names=[f"projects/{self._project}"],
            filter=lines_filter(self._project, uid, task, since),
            order_by="timestamp desc",
            page_size=count,
        )
        pages = self._call.pages(f"read the log of job {uid}", self._opened().list_log_entries, request)
        lines: list[str] = []
        for page in islice(pages, _MOST_PAGES):
            for entry in page.entries:
                lines += reversed(entry.text_payload.removesuffix("\n").split("\n"))
            if len(lines) >= count:
                break
        return lines[:count][::-1]

    def close(self) -> None:
        if self._client is not None:
            self._client.transport.close()

    def _opened(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = open_logging_client()
            return self._client


def lines_filter(project: str, uid: str, task: int | None, since: datetime | None) -> str:
    """In Cloud Logging's own language: the lines of a job, or of one task of it."""
    parts = [f'logName="projects/{project}/logs/{_LOG}"', f'labels.job_uid="{uid}"']
    if task is not None:
        # Batch was seen to write `task/<uid>-group0-<index>/<retry>/<runnable>`, and also `<uid>-group0-<index>`.
        parts.append(f'labels.task_id=~"{uid}-group0-{task}(/|$)"')
    if since is not None:
        parts.append(f'timestamp>="{since.isoformat()}"')
    return " AND ".join(parts)


def open_logging_client() -> Any:
    """Google's client for Cloud Logging, over gRPC. Imported here, because it takes half a second."""

    def make() -> Any:
        from google.cloud.logging_v2.services.logging_service_v2 import LoggingServiceV2Client
        from google.cloud.logging_v2.services.logging_service_v2.transports import LoggingServiceV2GrpcTransport

        address = os.environ.get(EMULATOR_VARIABLE)
        if not address:
            return LoggingServiceV2Client()
        import grpc

        return LoggingServiceV2Client(transport=LoggingServiceV2GrpcTransport(channel=grpc.insecure_channel(address)))

    return open_client(make)
