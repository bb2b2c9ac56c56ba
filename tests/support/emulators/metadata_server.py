"""The metadata server of a Google virtual machine, on loopback, in a thread of the test's own process.

It knows the zone and the machine's attributes. As the real one it answers no request without the header
`Metadata-Flavor: Google`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_FLAVOR = "Metadata-Flavor"
_PROJECT_NUMBER = 1
_ATTRIBUTES = "/computeMetadata/v1/instance/attributes/"


class MetadataServer:
    """Set `zone` (None: 404) and `hanging`; `calls` counts requests, answered or not."""

    def __init__(self, zone: str | None = "us-central1-a", attributes: Mapping[str, str] | None = None) -> None:
        self.zone = zone
        self.attributes = dict(attributes or {})
        self.calls = 0
        self.hanging = False
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client process needs: google-auth's variable for the server's place."""
        return {"GCE_METADATA_HOST": self.host, "GCE_METADATA_IP": self.host}

    def close(self) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def answer(self, path: str, flavor: str | None) -> tuple[int, str] | None:
        """Status and text; None: close the connection without an answer."""
        with self._lock:
            self.calls += 1
        if self.hanging:
            self._released.wait()
            return None
        if flavor != "Google":
            return 403, "Missing required header: Metadata-Flavor"
        if path == "/computeMetadata/v1/instance/zone" and self.zone is not None:
            return 200, f"projects/{_PROJECT_NUMBER}/zones/{self.zone}"
        if path.startswith(_ATTRIBUTES) and path.removeprefix(_ATTRIBUTES) in self.attributes:
            return 200, self.attributes[path.removeprefix(_ATTRIBUTES)]
        return (200, "") if path == "/" else (404, "Not Found")


class _Server(ThreadingHTTPServer):
    # A hanging call must hold up neither the end of its server nor that of the process.
    daemon_threads = True
    block_on_close = False


def _handler_of(server: MetadataServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = server.answer(self.path.partition("?")[0], self.headers.get(_FLAVOR))
            if answer is None:
                self.close_connection = True
                return
            status, text = answer
            self.send_response(status)
            self.send_header(_FLAVOR, "Google")
            self.send_header("Content-Type", "application/text")
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing: tests read the calls."""

    return Handler
