"""Buckets: where they are, and the errors about them."""

from __future__ import annotations

import gcsfs
import pytest
from google.api_core.exceptions import Conflict, NotFound, PreconditionFailed
from google.cloud.storage import Client

from support.emulators.gcs.emulator import GcsEmulator


@pytest.fixture(autouse=True)
def takes_what_gcsfs_sends(gcs: GcsEmulator) -> None:
    gcs.set_quirks("takes bare line feeds")


@pytest.fixture
def client(gcs_here: GcsEmulator) -> Client:
    # Through the environment, as code under test finds the emulator: no credentials, no project of its own.
    return Client()


def test_a_bucket_knows_its_location(gcs_here: GcsEmulator, client: Client) -> None:
    gcs_here.create_bucket("anywhere", "us")
    gcs_here.create_bucket("pair", "nam4")
    client.create_bucket("created", location="europe-west4")
    client.create_bucket("default")
    seen = {bucket.name: (bucket.location, bucket.location_type) for bucket in client.list_buckets()}
    assert seen == {
        "anywhere": ("US", "multi-region"),
        "bucket": ("US-CENTRAL1", "region"),
        "created": ("EUROPE-WEST4", "region"),
        "default": ("US", "multi-region"),
        "pair": ("NAM4", "dual-region"),
    }
    assert client.get_bucket("bucket").location == "US-CENTRAL1"
    assert gcsfs.GCSFileSystem().info("anywhere")["location"] == "US"


def test_errors_about_buckets(gcs_here: GcsEmulator, client: Client) -> None:
    with pytest.raises(NotFound):
        client.get_bucket("absent")
    with pytest.raises(NotFound):
        client.bucket("absent").blob("x").upload_from_string("x")
    with pytest.raises(NotFound):
        list(client.list_blobs("absent"))
    with pytest.raises(FileNotFoundError):
        gcsfs.GCSFileSystem().pipe_file("absent/x", b"x")
    with pytest.raises(Conflict):
        client.create_bucket("bucket")
    gcs_here.put("bucket", "x", b"x")
    with pytest.raises(Conflict):
        client.bucket("bucket").delete()
    bucket = client.get_bucket("bucket")
    bucket.labels = {"key": "value"}
    with pytest.raises(PreconditionFailed):
        bucket.patch(if_metageneration_match=7)
    bucket.patch(if_metageneration_match=1)
    assert client.get_bucket("bucket").metageneration == 2
    assert not client.bucket("absent").exists()


def test_a_reset_leaves_nothing(gcs: GcsEmulator) -> None:
    gcs.create_bucket("left")
    gcs.put("left", "x", b"x")
    gcs.inject(503)
    gcs.reset()
    gcs.create_bucket("left")
    assert (gcs.names("left"), gcs.history("left", "x"), gcs.calls()) == ([], [], [])
