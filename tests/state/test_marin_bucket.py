"""A bucket that Marin has filled is a warm cache: its statuses, infos, artifacts and leases are used as they are.

tests/golden/marin_bucket holds small files in Marin's formats, its older ones among them.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from marin_rules import Artifact, ExecutorStep, FilesystemArtifactRegistry, PathMetadata, PathsMetadata, StepSpec
from marin_rules.plans.experiment_file import load_experiment
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.prepare import PlanSettings, prepare
from marin_rules.state.assessment import Verdict
from marin_rules.state.info import VersionClashError, check_version, info_bytes, read_info, step_info
from marin_rules.state.status import Status, read_status, read_statuses
from marin_rules.state.step_lease import open_lease, peek
from marin_rules.state.stored_states import assess_stored
from marin_rules.state.written_steps import written_steps
from marin_rules.storage.leases.record import LeaseRecord
from support.emulators.gcs.emulator import GcsEmulator
from support.lease_models.clock import elsewhere

REPOSITORY = Path(__file__).resolve().parents[2]
BUCKET = REPOSITORY / "tests" / "golden" / "marin_bucket"
RAW, CLEAN = "raw/wiki_81fc14a5", "clean/wiki_0dd47b72"


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the bucket, as the prefix of this process."""
    copy = tmp_path / "bucket"
    shutil.copytree(BUCKET, copy)
    monkeypatch.setenv("MARIN_PREFIX", str(copy))
    return copy


def judged(prefix: Path | str, *steps: Any) -> tuple[FrozenPlan, dict[str, Verdict]]:
    plan = prepare(steps, PlanSettings(prefix=str(prefix), caller_path="x.py"))
    found = assess_stored(plan, read_statuses([step.output_path for step in plan.steps]))
    return plan, {verdict.step.name: verdict for verdict in found.verdicts}


def work(path: str) -> None: ...


def wiki(**changes: Any) -> tuple[StepSpec, StepSpec]:
    raw = StepSpec("raw/wiki", hash_attrs={"dump": "20260601"}, fn=work)
    return raw, StepSpec("clean/wiki", hash_attrs={"min_words": 50}, deps=[raw], fn=work, **changes)


def test_what_executor_main_of_marin_has_done_is_done(prefix: Path) -> None:
    """One status is a token, the other a log of Marin's older executors; both infos are of the steps' versions."""
    steps = load_experiment(str(REPOSITORY / "experiments" / "tutorials" / "hello_world.py")).steps
    plan, verdicts = judged(prefix, *steps)
    assert {step.output_path for step in plan.steps} == {
        f"{prefix}/hello_world/data-d50b06",
        f"{prefix}/hello_world/stats-b5daf3",
    }
    assert [verdict.state for verdict in verdicts.values()] == ["cached", "cached"]


def test_what_steprunner_of_marin_has_done_is_done_and_a_running_worker_is_waited_for(prefix: Path) -> None:
    raw, clean = wiki()
    assert (raw.output_path, clean.output_path) == (f"{prefix}/{RAW}", f"{prefix}/{CLEAN}")
    _, verdicts = judged(prefix, clean)
    assert verdicts["raw/wiki"].state == "cached"
    assert verdicts["clean/wiki"].state == "running elsewhere"
    assert verdicts["clean/wiki"].reason.startswith("by ray-worker-7-140234866280128, last heartbeat ")


def test_the_lease_of_a_marin_worker_is_respected(prefix: Path) -> None:
    """Until it has not changed for its lifetime by our own clock; tests/storage/leases has the takeover."""
    lease = open_lease(f"{prefix}/{CLEAN}", elsewhere("node7"))
    holder = lease.try_acquire()
    assert holder is not None
    assert (holder.worker_id, holder.timestamp) == ("ray-worker-7-140234866280128", 1781950272.131415)


def test_a_lease_that_is_just_being_written_is_read_when_it_is_whole(prefix: Path) -> None:
    """On a disk Marin's workers empty the file at each heartbeat and write it anew, under a lock."""
    path = prefix / CLEAN / ".executor_status.lock"
    record = path.read_text()
    emptied, read = threading.Event(), threading.Event()

    def beat() -> None:
        with open(path, "a+") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
            file.truncate(0)
            emptied.set()
            assert read.wait(10)
            file.write(record)

    def when_read(data: bytes, path: str) -> LeaseRecord:
        read.set()
        return parse(data, path)

    parse = LeaseRecord.parse
    with ThreadPoolExecutor() as pool, pytest.MonkeyPatch.context() as patch:
        beating = pool.submit(beat)
        assert emptied.wait(10)
        patch.setattr(LeaseRecord, "parse", when_read)
        holder = peek(f"{prefix}/{CLEAN}")
        beating.result()
    assert holder is not None
    assert holder.worker_id == "ray-worker-7-140234866280128"


def test_a_bucket_on_google_cloud_storage_is_read_as_the_copy_on_a_disk(
    gcs_here: GcsEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in BUCKET.rglob("*"):
        if file.is_file():
            gcs_here.put("bucket", f"x/{file.relative_to(BUCKET)}", file.read_bytes())
    monkeypatch.setenv("MARIN_PREFIX", "gs://bucket/x")
    raw, clean = wiki()
    _, verdicts = judged("gs://bucket/x", clean)
    assert [verdicts[name].state for name in ("raw/wiki", "clean/wiki")] == ["cached", "running elsewhere"]
    assert Artifact.from_path(raw, PathsMetadata).paths == Artifact.from_id("wiki/raw", "2026.06.01")["paths"]
    lease = open_lease(clean.output_path, elsewhere("node7"))
    assert lease.try_acquire() is not None
    ours = open_lease("gs://bucket/x/mine", elsewhere("node7"))
    assert ours.try_acquire() is None
    content = gcs_here.get("bucket", "x/mine/.executor_status.lock") or b""
    assert MarinLease(**json.loads(content)).worker_id.startswith("node7-")
    ours.release()
    assert gcs_here.get("bucket", "x/mine/.executor_status.lock") is None


@dataclass
class MarinLease:
    """What Marin's workers make of a lease file: any other key is a TypeError, with which they stop."""

    worker_id: str
    timestamp: float


def test_a_marin_worker_understands_our_lease_and_status(prefix: Path) -> None:
    folder = prefix / "mine"
    lease = open_lease(str(folder), elsewhere("node7"))
    assert lease.try_acquire() is None
    lease.overwrite(str(folder / ".executor_status"), b"RUNNING")
    read = MarinLease(**json.loads((folder / ".executor_status.lock").read_text()))
    assert read.worker_id.startswith("node7-")
    assert read.timestamp > 1.7e9
    assert (folder / ".executor_status").read_text() == "RUNNING"
    lease.release()
    assert not (folder / ".executor_status.lock").exists()


@pytest.mark.parametrize(
    ("path", "status"),
    [("hello_world/data-d50b06", "SUCCESS"), ("hello_world/stats-b5daf3", "SUCCESS"), (CLEAN, "RUNNING")],
)
def test_both_forms_of_statuses(path: str, status: str) -> None:
    assert read_status(str(BUCKET / path)) is Status(status)


@pytest.mark.parametrize(
    ("path", "artifact"),
    [
        ("hello_world/data-d50b06", None),
        ("hello_world/stats-b5daf3", {"sum": 4950, "min": 0, "max": 99, "mean": 49.5}),
    ],
)
def test_artifacts_under_each_of_their_names(path: str, artifact: Any, prefix: Path) -> None:
    assert Artifact.from_path(path) == artifact
    file = next((prefix / path).glob("*artifact*"))
    file.rename(file.with_name("artifact.json"))
    assert Artifact.from_path(f"{prefix}/{path}") == artifact
    file.with_name("artifact.json").unlink()
    assert Artifact.from_path(path) == PathMetadata(f"{prefix}/{path}")


def test_typed_artifacts_by_path_step_and_name(prefix: Path) -> None:
    raw, clean = wiki()
    expected = PathsMetadata(f"gs://marin-us-central2/{RAW}", [f"data-0000{i}-of-00002.jsonl.gz" for i in (0, 1)])
    assert Artifact.from_path(raw, PathsMetadata) == expected
    assert Artifact.from_path(RAW, PathsMetadata) == expected
    registry = FilesystemArtifactRegistry(f"{prefix}/artifact_registry")
    assert Artifact.from_id("wiki/raw", "2026.06.01", PathsMetadata, registry=registry) == expected
    assert Artifact.from_id("wiki/raw", "2026.06.01")["paths"] == expected.paths
    with pytest.raises(FileNotFoundError, match="is RUNNING, not SUCCESS: run it first"):
        Artifact.from_path(clean)


def test_an_override_with_other_attributes_is_refused(prefix: Path) -> None:
    """StepRunner writes no version; the attributes in its info tell."""
    same = StepSpec("raw/wiki", hash_attrs={"dump": "20260601"}, override_output_path=RAW, fn=work)
    other = StepSpec("raw/wiki", hash_attrs={"dump": "20260701"}, override_output_path=RAW, fn=work)
    assert judged(prefix, same)[1]["raw/wiki"].state == "cached"
    with pytest.raises(VersionClashError, match="already holds another version"):
        judged(prefix, other)


def test_an_info_without_a_version_is_believed(prefix: Path) -> None:
    step = ExecutorStep("raw/wiki", work, None, override_output_path=RAW)
    assert judged(prefix, step)[1]["raw/wiki"].state == "cached"


def test_infos_and_experiments_are_listed(prefix: Path) -> None:
    assert (read_info(f"{prefix}/{RAW}") or {})["config"] == {"dump": "20260601"}
    found = {step.name: step for step in written_steps(str(prefix))}
    assert found["hello_world/stats"].output_path == f"{prefix}/hello_world/stats-b5daf3"
    assert found["hello_world/stats"].dependencies == (f"{prefix}/hello_world/data-d50b06",)


def test_what_we_write_down_of_a_spec_is_read_by_both(prefix: Path) -> None:
    raw, clean = wiki()
    plan, _ = judged(prefix, clean)
    step = plan.steps[1]
    written = json.loads(info_bytes(step_info(plan, step)))
    assert written["config"] == {"min_words": 50}
    assert written["dependencies"] == [raw.output_path]
    assert written["version"]["config"] == {"attrs": {"min_words": 50}, "deps.[0]": "DEP[0]"}
    check_version(plan, step, info_bytes(written))
