"""Buckets and objects as the JSON documents that Google sends."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

from support.emulators.gcs.store import Bucket, StoredObject

_MULTI_REGIONS = frozenset({"US", "EU", "ASIA"})
_DUAL_REGIONS = frozenset({"NAM4", "EUR4", "EUR5", "EUR7", "EUR8", "ASIA1"})


def timestamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03d}Z"


def location_type(location: str) -> str:
    if location in _MULTI_REGIONS:
        return "multi-region"
    return "dual-region" if location in _DUAL_REGIONS else "region"


def bucket_document(bucket: Bucket) -> dict[str, Any]:
    return {
        "kind": "storage#bucket",
        "storageClass": "STANDARD",
        **bucket.fields,
        "id": bucket.name,
        "name": bucket.name,
        "projectNumber": "1",
        "location": bucket.location,
        "locationType": location_type(bucket.location),
        "metageneration": str(bucket.metageneration),
        "etag": str(bucket.metageneration),
        "timeCreated": timestamp(bucket.created),
        "updated": timestamp(bucket.created),
    }


def storage_layout_document(bucket: Bucket) -> dict[str, Any]:
    return {
        "kind": "storage#storageLayout",
        "bucket": bucket.name,
        "location": bucket.location,
        "locationType": location_type(bucket.location),
        "hierarchicalNamespace": {"enabled": False},
    }


def object_document(found: StoredObject, url: str) -> dict[str, Any]:
    path = f"b/{found.bucket}/o/{quote(found.name, safe='')}"
    document = {
        "kind": "storage#object",
        "storageClass": "STANDARD",
        **found.fields,
        "id": f"{found.bucket}/{found.name}/{found.generation}",
        "selfLink": f"{url}/storage/v1/{path}",
        "mediaLink": f"{url}/download/storage/v1/{path}?generation={found.generation}&alt=media",
        "name": found.name,
        "bucket": found.bucket,
        "generation": str(found.generation),
        "metageneration": str(found.metageneration),
        "size": str(len(found.data)),
        "crc32c": found.crc32c,
        "etag": f"{found.generation}/{found.metageneration}",
        "timeCreated": timestamp(found.created),
        "updated": timestamp(found.updated),
        "timeStorageClassUpdated": timestamp(found.created),
    }
    if found.components is None:
        return document | {"md5Hash": found.md5}
    return document | {"componentCount": found.components}
