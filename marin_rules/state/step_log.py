"""What a step prints: every line goes to the log beside its data and, labelled, to the terminal.

The log (`.executor_log`) grows while the step runs, so it can be read and followed, and keeps earlier attempts.
A progress bar redraws its line many times; such redraws reach log and terminal at most once a second.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import IO

from marin_rules.state.status import LOG_FILE
from marin_rules.storage.files import explained_errors, make_directory, read_part
from marin_rules.storage.objects.growing import GrowingObject
from marin_rules.storage.regular_files import open_to_append
from marin_rules.urls import is_url

_REDRAW_SECONDS = 1.0
_LINE_END = re.compile(rb"\r\n|\n|\r")
_MAX_WAITING_BYTES = 1 << 20
_MAX_LINE_BYTES = 1 << 16
"""A longer line without an end is passed on in pieces: memory stays bounded."""

_TAIL_BYTES = 1 << 17
_SHOWN_CHARACTERS = 1000
"""How much of a log is read to show its end, and how much of a line is shown: a log can be larger than memory."""

CLEAR_LINE = b"\r\x1b[2K"
"""Wipes the live progress line of a terminal before a line of output is written over it."""


def log_path(output_path: str) -> str:
    return os.path.join(output_path, LOG_FILE)


def attempt_line(moment: str, attempt: int, worker_id: str) -> bytes:
    """The header in the log before the output of an attempt."""
    return f"--- {moment} attempt {attempt} by {worker_id}\n".encode()


_ATTEMPT_LINE = re.compile(r"--- \S+ attempt \d+ by ")


def last_attempt(text: str) -> list[str]:
    """The lines of a log from its last attempt on."""
    lines = text.splitlines()
    begun = [number for number, line in enumerate(lines) if _ATTEMPT_LINE.match(line)]
    return lines[begun[-1] :] if begun else lines


def last_lines(output_path: str, most: int) -> list[str]:
    """The end of the output of a step's last attempt, however large its log is; nothing if there is no log."""
    tail = read_part(log_path(output_path), -_TAIL_BYTES, _TAIL_BYTES) or b""
    if len(tail) == _TAIL_BYTES:
        tail = tail.partition(b"\n")[2] or tail  # The first line has lost its beginning.
    lines = last_attempt(tail.decode(errors="replace"))[-most:]
    return [line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]} ..." for line in lines]


class StepLog:
    """The log file of a step, or of one of its tasks. On an object store it is kept locally, and additions are
    published in pieces."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._published = GrowingObject(self.path) if is_url(self.path) else None
        self._publishing = threading.Lock()
        self._broken = False
        self._file: IO[bytes]
        if self._published is not None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        else:
            make_directory(os.path.dirname(path))
            with explained_errors("write", self.path):
                self._file = os.fdopen(open_to_append(self.path), "ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Append to the log. A full disk costs log lines, not the step: its own writes decide about that."""
        try:
            self._file.write(data)
        except OSError as error:
            if not self._broken:
                self._broken = True
                Terminal(2).write_line(f"{self.path}: the log is incomplete: {error.strerror}".encode())

    def link_from(self, path: str) -> None:
        """Make a link of this name to the log, if the log is a local file. A mere convenience: it may fail."""
        if path and self._published is None:
            with contextlib.suppress(OSError):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                os.symlink(os.path.abspath(self.path), path)

    def flush(self, check: Callable[[], bool] = lambda: True) -> bool:
        """Make what was written so far visible to readers. Any thread may do so while another one writes.

        `check` is called before each piece of an object: it says whether to continue, and raises when the step is no
        longer this worker's. False when there is more to publish.
        """
        if self._published is None:
            return True
        with self._publishing:
            return self._published.publish(self._file.fileno(), check)

    def close(self) -> None:
        """Close the file. Call `flush` first: only the holder of the step's lease may publish its log."""
        self._file.close()


class Terminal:
    """Standard output or error of this process, written without ever waiting for its reader.

    A terminal that is halted (or a pager that waits) must not keep the lease from being refreshed. What does not go
    out now is kept and sent later; beyond a limit the oldest is dropped, since the log has it all.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._clear = CLEAR_LINE if os.isatty(descriptor) else b""
        self._waiting: deque[bytes] = deque()
        self._one_at_a_time = threading.RLock()  # The heartbeat occasionally prints something, too.
        self._bytes = 0

    @property
    def is_behind(self) -> bool:
        return bool(self._waiting)

    def write_line(self, line: bytes) -> None:
        with self._one_at_a_time:
            self._waiting.append(self._clear + line + b"\n")
            self._bytes += len(self._waiting[-1])
            while self._bytes > _MAX_WAITING_BYTES and len(self._waiting) > 1:
                self._bytes -= len(self._waiting.popleft())
            self.flush()

    def flush(self, seconds: float = 0.0) -> None:
        """Send what can be sent at once, or within a given time."""
        with self._one_at_a_time:
            self._flush(seconds)

    def _flush(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        give_up = time.monotonic() + seconds
        while self._waiting:
            left = max(0.0, give_up - time.monotonic())
            events = poll.poll(left * 1000)
            if not events:
                return
            data = self._waiting[0]
            try:
                # Up to this size a pipe that is ready accepts all of it, and lines of other steps do not mix with it.
                written = os.write(self._descriptor, data[: select.PIPE_BUF])
            except OSError:  # The reader is gone, which is no reason for a step to fail.
                self._waiting.clear()
                self._bytes = 0
                return
            self._bytes -= written
            if written == len(data):
                self._waiting.popleft()
            else:
                self._waiting[0] = data[written:]


class OutputStream:
    """One of a step's two output streams, cut into lines."""

    def __init__(self, label: str, terminal: Terminal, log: StepLog) -> None:
        self._label = f"[{label}] ".encode()
        self._terminal = terminal
        self._log = log
        self._rest = b""
        self._last_redraw = 0.0

    def feed(self, data: bytes) -> None:
        self._rest += data
        start = 0
        for end in _LINE_END.finditer(self._rest):
            if end.group() == b"\r" and end.end() == len(self._rest):
                break  # It may be the first half of a Windows line ending.
            self._line(self._rest[start : end.start()], redraw=end.group() == b"\r")
            start = end.end()
        self._rest = self._rest[start:]
        if len(self._rest) > _MAX_LINE_BYTES:
            self._line(self._rest, redraw=False)
            self._rest = b""

    def end(self) -> None:
        if self._rest:
            self._line(self._rest.rstrip(b"\r"), redraw=False)
            self._rest = b""

    def _line(self, line: bytes, *, redraw: bool) -> None:
        if redraw:
            now = time.monotonic()
            if not line or now - self._last_redraw < _REDRAW_SECONDS:
                return
            self._last_redraw = now
        self._log.write(line + b"\n")
        self._terminal.write_line(self._label + line)
