"""A step that says what it finds in the image that it runs in. Its source travels with the plan."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from typing import Any

CLIENTS = (
    "cloudpickle",
    "fsspec",
    "gcsfs",
    "google.cloud.batch_v1",
    "google.cloud.logging_v2",
    "google.cloud.storage",
    "google.cloud.tpu_v2",
    "snakemake",
    "yaml",
)


def look_around(config: Any) -> dict[str, Any]:
    return {
        "uid": os.getuid(),
        "home": os.path.expanduser("~"),
        "python": sys.executable,
        "uv": shutil.which("uv"),
        "imported": [importlib.import_module(name).__name__ for name in CLIENTS],
    }
