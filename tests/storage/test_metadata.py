"""The metadata server is asked once, briefly, and may be absent."""

import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from marin_rules.storage import metadata
from marin_rules.storage.metadata import is_google_machine, machine_region, machine_zone
from support.emulators.metadata_server import MetadataServer


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports are used again: what another test learnt from one must not count."""
    monkeypatch.setattr(metadata, "_zones", {})
    monkeypatch.delenv("GCE_METADATA_HOST", raising=False)


def test_zone_and_region(metadata_server: MetadataServer, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata_server.zone = "europe-west4-b"
    monkeypatch.setenv("GCE_METADATA_HOST", metadata_server.host)
    assert machine_zone() == "europe-west4-b"
    assert machine_region() == "europe-west4"


def test_it_is_asked_once(metadata_server: MetadataServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", metadata_server.host)
    threads = [threading.Thread(target=machine_region) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert machine_region() == "us-central1"
    assert metadata_server.calls == 1


def test_a_failure_is_remembered_too(metadata_server: MetadataServer, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata_server.zone = None
    monkeypatch.setenv("GCE_METADATA_HOST", metadata_server.host)
    assert machine_region() is None
    assert machine_region() is None
    assert metadata_server.calls == 1


def test_no_proxy_is_used(metadata_server: MetadataServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", metadata_server.host)
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    assert machine_region() == "us-central1"


def test_a_server_that_hangs_is_left_alone(metadata_server: MetadataServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert metadata.TIMEOUT_SECONDS == 2
    monkeypatch.setattr(metadata, "TIMEOUT_SECONDS", 0.2)
    metadata_server.hanging = True
    monkeypatch.setenv("GCE_METADATA_HOST", metadata_server.host)
    start = time.monotonic()
    assert machine_region() is None
    assert time.monotonic() - start < 1.5


def test_no_server_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{port}")
    assert machine_region() is None


def test_another_web_server_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class LogIn(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"projects/1/zones/us-central1-a")

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), LogIn) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{server.server_port}")
        assert machine_region() is None
        thread.join()


def test_what_is_a_google_machine(tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch) -> None:
    product = os.path.join(tmp_path, "product_name")
    monkeypatch.setattr(metadata, "_PRODUCT_NAME", product)
    assert not is_google_machine()
    with open(product, "w") as file:
        file.write("ThinkPad\n")
    assert not is_google_machine()
    with open(product, "w") as file:
        file.write("Google Compute Engine\n")
    assert is_google_machine()
    os.unlink(product)
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    assert is_google_machine()
