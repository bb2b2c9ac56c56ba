"""The handle on an emulated S3."""

from __future__ import annotations

from support.emulators.common.emulator import Emulator


class S3Emulator(Emulator):
    """Locations are Amazon's regions."""

    module = "support.emulators.s3"
    default_location = "us-east-1"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_ACCESS_KEY_ID": "emulated",
            "AWS_SECRET_ACCESS_KEY": "emulated",
            "AWS_DEFAULT_REGION": self.default_location,
            "AWS_EC2_METADATA_DISABLED": "true",
            # A developer's own profile must not change what clients do here.
            "AWS_CONFIG_FILE": "/nonexistent/aws/config",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/aws/credentials",
        }
