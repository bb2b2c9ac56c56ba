"""Whether a step made progress: did its last attempt write anything besides its own records?

A step that is stopped by a time limit after it wrote checkpoints continues from them in the next job. One that wrote
nothing would only be stopped again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from marin_rules.state.info import read_info
from marin_rules.state.recorded_job import recorded_job
from marin_rules.state.status import Status, read_status
from marin_rules.storage.files import modified_time
from marin_rules.units import parse_timestamp
from marin_rules.urls import is_url

_BOOKKEEPING = ".executor"


def made_progress(output_path: str) -> bool:
    """Whether data below the output path changed since the step's last attempt began."""
    started = (read_info(output_path) or {}).get("run", {}).get("started")
    if not isinstance(started, str):
        return False
    began = parse_timestamp(started)
    return any((changed or 0.0) >= began for changed in _changes(output_path))


def was_stopped_in(output_path: str, job_id: str) -> bool:
    """Whether the last attempt was in this job of a cluster, and a stop signal ended it."""
    if read_status(output_path) is not Status.CANCELLED:
        return False
    job = recorded_job((read_info(output_path) or {}).get("run", {}))
    return job is not None and job.id == job_id


def _changes(output_path: str) -> Iterator[float | None]:
    if is_url(output_path):
        import fsspec

        filesystem, root = fsspec.core.url_to_fs(output_path)
        for path in filesystem.find(root):
            if not any(part.startswith(_BOOKKEEPING) for part in path.removeprefix(root).split("/")):
                yield filesystem.modified(path).timestamp()
        return
    for folder, below, names in os.walk(output_path):
        below[:] = [name for name in below if not name.startswith(_BOOKKEEPING)]
        for name in names:
            if not name.startswith(_BOOKKEEPING):
                yield modified_time(os.path.join(folder, name))
