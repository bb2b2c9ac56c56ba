"""The handle on an emulated Google Cloud Storage."""

from __future__ import annotations

from support.emulators.common.emulator import Emulator


class GcsEmulator(Emulator):
    """Locations are Google's: `us-central1`, or `US` for a multi-region."""

    module = "support.emulators.gcs"
    default_location = "us-central1"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "STORAGE_EMULATOR_HOST": self.url,
            # Read when gcsfs is imported: with it, each first look at a bucket stalls for a minute on gRPC.
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
            # gcsfs looks for credentials even for an emulator: for a file, for gcloud's folder, for the metadata
            # server, in this order, and only then goes on without.
            "GOOGLE_APPLICATION_CREDENTIALS": "",
            "CLOUDSDK_CONFIG": "/nonexistent/gcloud",
            "NO_GCE_CHECK": "true",
            "GOOGLE_CLOUD_PROJECT": "emulated",
        }
