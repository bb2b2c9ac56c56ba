"""Warm workers: local jobs are run by processes that have everything imported.

Starting Python and importing costs more than all the bookkeeping of a step. The driver therefore starts a server
(`marin_rules.worker.warm.server`), to which it hands steps itself (`marin_rules.worker.warm.dispatcher`). Jobs
(`run-step`) hand their arguments to it and wait for the exit code. Without the server, or if it dies, jobs start a
Python themselves.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

WARM_VARIABLE = "MARIN_RULES_WARM"
"""Tells jobs the server's folder."""

REQUESTS = "requests"
REPLY = "reply"
TAKEN = "taken"
PROCESS_ID = "pid"
"""What is in that folder: a pipe for requests, pipes for replies and who has them, and the server's process."""

ANSWERS = "answers"
QUIET = "quiet"
"""And for the driver: a pipe for all answers to its own requests, and one that is never written to."""

DRIVER = "driver."
"""The beginning of what the driver's requests have in place of the number of a reply pipe."""

STOP = "stop"
"""Instead of a request: all steps that the driver asked for must end."""

_PREPARED_REPLIES = 32
"""Pipes made in advance; a job that finds no free one makes its own."""

_READY_SECONDS = 10.0


class WarmServer:
    """The driver's handle of the server. `OSError` if the temporary folder has no room for its pipes.

    The server imports all that workers need while the driver is still busy, and serves once it knows the plan.
    """

    def __init__(self) -> None:
        self.folder = _make_folder()
        # A session of its own: an interrupt in the terminal reaches the jobs, and these pass it on.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "marin_rules.worker.warm.server", self.folder],
            stdin=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        # Collected as soon as it ends: a job that looks for the server must not find a dead one.
        self._ended = threading.Thread(target=self._process.wait, daemon=True)
        self._ended.start()
        self._is_ready = False

    def serve(self, plan_path: str, digest: str) -> None:
        """Let the server take requests for the steps of a plan, with the variables that this process has by now."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([plan_path, digest, dict(os.environ)]).encode() + b"\n")
        os.environ[WARM_VARIABLE] = self.folder
        # Otherwise the first jobs would each start a Python of their own, which takes longer than this.
        give_up = time.monotonic() + _READY_SECONDS
        announced = os.path.join(self.folder, PROCESS_ID)
        while not os.path.exists(announced) and self._ended.is_alive() and time.monotonic() < give_up:
            time.sleep(0.01)
        self._is_ready = os.path.exists(announced)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_ready(self) -> bool:
        """Whether the server takes requests."""
        return self._is_ready and self._ended.is_alive()

    def stop(self) -> None:
        """Let the server end; it does so once its steps have ended, and removes its folder."""
        os.environ.pop(WARM_VARIABLE, None)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._ended.join()
        shutil.rmtree(self.folder, ignore_errors=True)  # A server that was killed has left it.


def _make_folder() -> str:
    folder = tempfile.mkdtemp(prefix="marin-rules-")
    try:
        for name in (REQUESTS, ANSWERS, QUIET, *(f"{REPLY}.{slot}" for slot in range(_PREPARED_REPLIES))):
            os.mkfifo(os.path.join(folder, name), 0o600)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder
