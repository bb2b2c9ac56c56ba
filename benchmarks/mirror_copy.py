"""To mirror a tree of another region takes little more time than gcsfs needs to copy it, without leases and budgets."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.emulator import google_storage
from benchmarks.measure import BenchmarkError, Usage, least
from benchmarks.table import Row

_ROUNDS = 7
_OBJECT = bytes(1000)
_CLUSTER = "data:\n  region_buckets: {us-central1: home, europe-west4: far}\n"


def mirror_copy(folder: Path, shrink: int) -> Iterator[Row]:
    size = 200 // shrink
    with _google(folder) as emulator:
        import fsspec

        from marin_rules.storage.mirror.install import install_mirror

        install_mirror()
        for number in range(size):
            emulator.put("far", f"tree/{number:05}", _OBJECT)
        mirror = fsspec.filesystem("mirror")
        peer = fsspec.filesystem("gs", use_listings_cache=False)

        def measured(bucket: str, copy: Callable[..., Any], *arguments: str, **options: bool) -> Usage:
            wall, cpu = time.perf_counter(), time.process_time()
            copy(*arguments, **options)
            usage = Usage(time.perf_counter() - wall, time.process_time() - cpu)
            if len(emulator.names(bucket, "tree/")) != size:
                raise BenchmarkError(f"{bucket} has {len(emulator.names(bucket, 'tree/'))} objects, not {size}")
            peer.rm(f"gs://{bucket}/tree", recursive=True)
            return usage

        def ours() -> Usage:
            return measured("home", mirror.prefetch, "mirror://tree")

        def plain() -> Usage:
            return measured("peer", peer.cp, "gs://far/tree/", "gs://peer/tree/", recursive=True)

        # Clients and connections are made once, by the first to need them: not measured.
        ours()
        plain()
        usages = least(_ROUNDS, ours=ours, plain=plain)
    wall = {side: usage.wall for side, usage in usages.items()}
    yield Row("mirror_copy", f"mirror of {size} objects / gcsfs `cp`", wall["ours"] / wall["plain"], "x", 1.2)
    yield Row("mirror_copy", f"mirror of {size} objects, on a loopback emulator", wall["ours"], "s wall")
    yield Row("mirror_copy", f"gcsfs `cp` of {size} objects, on a loopback emulator", wall["plain"], "s wall")


@contextlib.contextmanager
def _google(folder: Path) -> Iterator[Any]:
    """An emulated Google Cloud Storage, and an environment in which this process mirrors from one bucket to another."""
    clusters = folder / "config" / "clusters"
    clusters.mkdir(parents=True)
    (clusters / "two.yaml").write_text(_CLUSTER)
    environment, directory = dict(os.environ), Path.cwd()
    with google_storage() as emulator:
        try:
            os.chdir(folder)
            os.environ.update(emulator.environment, MARIN_CLUSTER="two", MARIN_PREFIX="gs://home")
            for bucket, region in (("home", "us-central1"), ("far", "europe-west4"), ("peer", "us-central1")):
                emulator.create_bucket(bucket, region)
            yield emulator
        finally:
            os.chdir(directory)
            os.environ.clear()
            os.environ.update(environment)
