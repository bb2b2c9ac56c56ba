"""The metadata server, by plain HTTP and as google-auth asks it."""

from __future__ import annotations

import time

import pytest
import requests

from support.emulators.metadata_server import MetadataServer

HEADERS = {"Metadata-Flavor": "Google"}


def test_it_tells_the_zone_to_who_asks_properly(metadata_server: MetadataServer) -> None:
    url = f"{metadata_server.url}/computeMetadata/v1/instance/zone"
    answer = requests.get(url, headers=HEADERS, timeout=5)
    assert (answer.status_code, answer.text) == (200, "projects/1/zones/us-central1-a")
    assert answer.headers["Metadata-Flavor"] == "Google"
    metadata_server.zone = "europe-west4-b"
    assert requests.get(url, headers=HEADERS, timeout=5).text == "projects/1/zones/europe-west4-b"
    assert requests.get(url, timeout=5).status_code == 403
    metadata_server.zone = None
    assert requests.get(url, headers=HEADERS, timeout=5).status_code == 404
    assert metadata_server.calls == 4
    assert metadata_server.environment["GCE_METADATA_HOST"] == metadata_server.host


def test_it_can_hang_and_yet_be_closed() -> None:
    server = MetadataServer()
    server.hanging = True
    with pytest.raises(requests.exceptions.ReadTimeout):
        requests.get(f"{server.url}/computeMetadata/v1/instance/zone", headers=HEADERS, timeout=0.2)
    assert server.calls == 1
    started = time.monotonic()
    server.close()
    assert time.monotonic() - started < 2
    with pytest.raises(requests.exceptions.ConnectionError):
        requests.get(server.url, timeout=1)
