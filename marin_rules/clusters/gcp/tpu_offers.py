"""What Cloud TPU offers in a zone: accelerator types and runtime versions."""

from __future__ import annotations

from marin_rules.clusters.gcp.calls import Calls
from marin_rules.clusters.gcp.slices import open_tpu_client


class TpuOffers:
    """Of the zones of a project."""

    def __init__(self, project: str, calls: Calls) -> None:
        self._project = project
        self._call = calls
        self._client = open_tpu_client()

    def accelerator_types(self, zone: str) -> list[str]:
        """`v4-8`, `v4-16` and so on."""
        from google.cloud import tpu_v2

        request = tpu_v2.ListAcceleratorTypesRequest(parent=self._place(zone))
        pages = self._call.pages(f"list the TPUs of {zone}", self._client.list_accelerator_types, request)
        return [kind.type_ for page in pages for kind in page.accelerator_types]

    def runtime_versions(self, zone: str) -> list[str]:
        """`tpu-ubuntu2204-base` and its like."""
        from google.cloud import tpu_v2

        request = tpu_v2.ListRuntimeVersionsRequest(parent=self._place(zone))
        pages = self._call.pages(f"list the runtime versions of {zone}", self._client.list_runtime_versions, request)
        return [version.version for page in pages for version in page.runtime_versions]

    def close(self) -> None:
        self._client.transport.close()

    def _place(self, zone: str) -> str:
        return f"projects/{self._project}/locations/{zone}"
