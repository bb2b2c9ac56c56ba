"""An HTTP server on loopback whose files can be cut, changed, refused and counted, one request at a time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Answer:
    """What a request is answered with."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    ranges: bool = True
    """Whether a range that is asked for is heeded, if its `If-Range` fits."""

    heed_if_range: bool = True
    cut_after: int | None = None
    """Bytes of the body after which the connection is closed."""

    pause: Callable[[], object] | None = None
    """Called when `cut_after` bytes are sent, before the connection is closed."""

    length: int | None = None
    """Another `Content-Length` than the right one; -1 for none."""


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    time: float = field(default_factory=time.monotonic)


class FileServer:
    """`answers[path]` are given one after the other; the last one stays."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer]] = {}
        self.requests: list[Request] = []
        self.sent: Counter[str] = Counter()
        """Bytes of bodies, by path."""

        self.lock = threading.Lock()
        self.url = ""

    def add(self, path: str, *answers: Answer | bytes) -> str:
        """The URL at which these answers are given."""
        self.answers[path] = [
            answer if isinstance(answer, Answer) else Answer(answer, headers={"ETag": etag_of(answer)})
            for answer in answers
        ]
        return self.url + path

    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    def next_answer(self, request: Request) -> Answer:
        with self.lock:
            self.requests.append(request)
            waiting = self.answers.get(request.path)
            if not waiting:
                return Answer(b"no such file", 404)
            return waiting.pop(0) if len(waiting) > 1 else waiting[0]


def etag_of(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files: ClassVar[FileServer]

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        answer = self.files.next_answer(Request(path, dict(self.headers.items())))
        body, status, headers = answer.body, answer.status, dict(answer.headers)
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        fits = not answer.heed_if_range or self.headers.get("If-Range") in (
            headers.get("ETag"),
            headers.get("Last-Modified"),
        )
        if found and status == 200 and answer.ranges and fits:
            start = int(found[1])
            if start >= len(body):
                status, body, headers = 416, b"", {**headers, "Content-Range": f"bytes */{len(body)}"}
            else:
                headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
                status, body = 206, body[start:]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        length = len(body) if answer.length is None else answer.length
        if length >= 0:
            self.send_header("Content-Length", str(length))
        else:
            self.close_connection = True
        self.end_headers()
        cut = answer.cut_after is not None or length not in (-1, len(body))
        sending = body if answer.cut_after is None else body[: answer.cut_after]
        with self.files.lock:  # Before it is sent: whoever has read the last byte may look at the count.
            self.files.sent[path] += len(sending)
        with contextlib.suppress(OSError):
            self.wfile.write(sending)
            self.wfile.flush()
        if answer.pause is not None:
            answer.pause()
        if cut:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *said: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what tests are about."""


@contextlib.contextmanager
def file_server() -> Iterator[FileServer]:
    files = FileServer()
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"files": files}))
    files.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield files
    finally:
        server.shutdown()
        server.server_close()


def git_sha1(body: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


def add_repository(
    hub: FileServer, storage: FileServer, name: str, files: dict[str, bytes], *, kind: str = "dataset", page: int = 2
) -> None:
    """A repository as the hub shows it: a listing in pages, and files, of which those named `.parquet` are redirected
    to a storage server, with a signature in the address."""
    entries: list[dict[str, Any]] = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "data"}]
    prefix = "/datasets" if kind == "dataset" else ""
    for path, body in files.items():
        entry: dict[str, Any] = {"type": "file", "oid": git_sha1(body), "size": len(body), "path": path}
        resolved = f"{prefix}/{name}/resolve/{COMMIT}/{path}"
        commit = {"X-Repo-Commit": COMMIT}
        if path.endswith(".parquet"):
            digest = hashlib.sha256(body).hexdigest()
            entry |= {"oid": "1" * 40, "lfs": {"oid": digest, "size": len(body), "pointerSize": 134}}
            target = f"{storage.add(f'/objects/{digest}', body)}?Signature=SIGNED"
            linked = {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(body))}
            hub.add(resolved, Answer(status=302, headers={"Location": target, **linked, **commit}))
        else:
            hub.add(resolved, Answer(body, headers={"ETag": etag_of(body), **commit}))
        entries.append(entry)
    pages = [entries[start : start + page] for start in range(0, len(entries), page)]
    tree = f"/api/{kind}s/{name}/tree/{COMMIT}"
    answers = []
    for number, listed in enumerate(pages):
        headers = {"X-Repo-Commit": COMMIT, "Content-Type": "application/json"}
        if number + 1 < len(pages):
            headers["Link"] = f'<{hub.url}{tree}?recursive=true&cursor={number + 1}>; rel="next"'
        answers.append(Answer(json.dumps(listed).encode(), headers=headers))
    hub.answers[tree] = answers * 20
