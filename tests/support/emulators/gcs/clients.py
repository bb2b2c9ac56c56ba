"""google-cloud-storage's client as tests need it: one call for one call, no retries unless asked for."""

from __future__ import annotations

from google.auth.credentials import AnonymousCredentials
from google.cloud.storage import Bucket, Client

from support.emulators.gcs.emulator import GcsEmulator


def bucket_of(emulator: GcsEmulator, name: str = "bucket") -> Bucket:
    """A bucket of a client of its own, as another process would have it."""
    client = Client(
        project="emulated", credentials=AnonymousCredentials(), client_options={"api_endpoint": emulator.url}
    )
    # It asks for each bucket's metadata in a thread of its own: a call that would take the fault meant for another.
    client._bucket_metadata_cache = None
    return client.bucket(name)
