"""Whole runs in buckets whose service keeps less than S3's promises: refused in one line, or done as well as it can."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.emulators.s3.emulator import S3Emulator
from support.lab import Lab

IGNORANT = ("ignores If-Match", "ignores If-None-Match", "ignores conditions of DELETE")
CEPH = ("refuses quoted ETags", "ignores conditions of DELETE")
STEPS = ("hello_world/data-d50b06", "hello_world/stats-b5daf3")


@pytest.fixture
def run(s3: S3Emulator, lab: Lab, tmp_path: Path) -> Callable[..., Any]:
    """`run(**variables)` of the tutorial in the bucket."""
    s3.create_bucket("bucket")
    file = lab.repository / "experiments" / "tutorials" / "hello_world.py"

    def start(*, door: str = "snakemake", dry: bool = False, **variables: str) -> Any:
        env = {**s3.environment, "XDG_STATE_HOME": str(tmp_path / "state"), **variables}
        if door == "snakemake":
            return lab.snakemake(*(["-n"] if dry else []), experiment=file, prefix="s3://bucket/x", env=env)
        return lab.python(file, "--prefix", "s3://bucket/x", *(["--dry_run", "true"] if dry else []), env=env)

    return start


def statuses(s3: S3Emulator) -> list[str]:
    return [name for name in s3.names("bucket") if name.endswith("/.executor_status")]


@pytest.mark.parametrize("door", ["snakemake", "python"])
def test_a_bucket_that_ignores_conditions_is_refused_in_one_line(
    door: str, run: Callable[..., Any], s3: S3Emulator
) -> None:
    s3.set_quirks(*IGNORANT)
    dry = run(door=door, dry=True)
    assert dry.code == 0, dry.output
    assert s3.names("bucket") == [], "a dry run asks nothing"

    refused = run(door=door)
    assert refused.code == 1, refused.output
    (line,) = [line for line in refused.output.splitlines() if "cannot keep leases" in line]
    assert line.startswith("error: cannot keep leases in s3://bucket: ")
    assert "it ignores If-None-Match and If-Match" in line
    assert "MARIN_ADVISORY_LEASES=1" in line
    assert "Traceback" not in refused.output
    assert refused.started == []
    left = [name for name in s3.names("bucket") if not name.startswith("x/experiments/.runs/")]
    assert left == [], "neither a step nor a probe"


def test_a_bucket_that_ignores_conditions_is_used_if_asked_to(run: Callable[..., Any], s3: S3Emulator) -> None:
    s3.set_quirks(*IGNORANT)
    asked = run(MARIN_ADVISORY_LEASES="1")
    assert asked.code == 0, asked.output
    assert asked.output.count("leases in s3://bucket are advisory") == 1
    assert len(statuses(s3)) == 2

    cached = run()
    assert cached.code == 0, "what is done needs no lease\n" + cached.output
    assert cached.cached == ["hello_world/data", "hello_world/stats"]


def test_a_bucket_that_refuses_conditions_is_refused_in_any_case(run: Callable[..., Any], s3: S3Emulator) -> None:
    s3.set_quirks("refuses If-Match")
    refused = run(MARIN_ADVISORY_LEASES="1")
    assert refused.code == 1, refused.output
    assert "error: cannot keep leases in s3://bucket: " in refused.output
    assert "MARIN_ADVISORY_LEASES" not in refused.output
    assert statuses(s3) == []


def test_a_bucket_as_ceph_has_them_is_used(run: Callable[..., Any], s3: S3Emulator) -> None:
    s3.set_quirks(*CEPH)
    first = run()
    assert first.code == 0, first.output
    assert len(statuses(s3)) == 2
    for step in STEPS:
        lease = json.loads(s3.history("bucket", f"x/{step}/.executor_status.lock")[-1] or b"")
        assert lease["worker_id"] == "nobody"
    again = run()
    assert again.code == 0, again.output
    assert again.cached == ["hello_world/data", "hello_world/stats"]
