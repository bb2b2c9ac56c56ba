"""Deletes the folder of one step, and nothing else.

The step's lease is taken first, and those of its running tasks (on a cluster nobody else then has the step), so that
nobody works there. Then the folder is renamed, which hides it from every run at once, as a whole, with the lease in it;
its contents are removed after that. Nothing is done if the path to the folder leads through a symbolic link, or if
another step's folder is inside.
"""

from __future__ import annotations

import os
import secrets
import time

from marin_rules.errors import MarinRulesError
from marin_rules.state.status import STATUS_FILE
from marin_rules.state.step_lease import open_lease
from marin_rules.state.task_records import RoundsLeft, TaskHeldError, read_layout, read_records
from marin_rules.storage.files import remove_tree
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import describe
from marin_rules.urls import is_url


def check_deletable(path: str, prefix: str) -> None:
    """Refuse a folder that is not a step's own, below its prefix."""
    if is_url(path):
        raise MarinRulesError(
            f"{path} is in a bucket, where `delete` cannot do it in one piece: remove it with the store's own tools,"
            " when `marin-rules jobs list` shows nobody using it"
        )
    base = prefix if not is_url(prefix) and _is_below(path, prefix) else os.sep
    expected = os.path.join(os.path.realpath(base), os.path.relpath(path, base))
    real = os.path.realpath(path)
    if real != expected:
        raise MarinRulesError(
            f"{path} leads through a symbolic link to {real}; delete it there, if that is what you mean"
        )
    for folder, folders, files in os.walk(path):
        if folder != path and STATUS_FILE in files:
            raise MarinRulesError(f"{path} holds the folder of another step, {folder}: delete or move that first")
        folders.sort()


def _is_below(path: str, prefix: str) -> bool:
    return os.path.abspath(path).startswith(os.path.abspath(prefix).rstrip(os.sep) + os.sep)


def size_of(path: str) -> tuple[int, int]:
    """How many files a folder holds, and how many bytes."""
    count = size = 0
    for folder, _, files in os.walk(path):
        for name in files:
            count += 1
            size += os.lstat(os.path.join(folder, name)).st_size
    return count, size


def delete_step(path: str, prefix: str) -> None:
    """Delete a step's folder; refused while somebody works on it."""
    check_deletable(path, prefix)
    owner = Owner.current()
    lease = open_lease(path, owner)
    holder = lease.try_acquire()
    if holder is not None:
        raise MarinRulesError(_in_use(path, f"held by {describe(holder, time.time())}"))
    aside = f"{path}.deleted-{secrets.token_hex(4)}"
    try:
        _take_tasks(path, owner)
        os.rename(path, aside)
    except MarinRulesError:
        lease.release()
        raise
    except OSError as error:
        lease.release()
        raise MarinRulesError(f"cannot delete {path}: {error.strerror}") from error
    remove_tree(aside)


def _take_tasks(path: str, owner: Owner) -> None:
    """Take the leases of the running tasks; refused if somebody has one."""
    try:
        layout = read_layout(path)
    except MarinRulesError:
        return  # It is damaged, and no task continues without it: the error elsewhere says to delete the folder.
    if layout is None:
        return
    try:
        RoundsLeft(owner).take(path, layout.round, read_records(path, layout.round, range(layout.tasks)))
    except TaskHeldError as error:
        raise MarinRulesError(_in_use(path, str(error))) from error


def _in_use(path: str, by: str) -> str:
    return f"{path} is in use: {by}. `marin-rules jobs stop {path}` ends it"
