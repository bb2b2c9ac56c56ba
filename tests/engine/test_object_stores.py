"""The tutorials with a prefix on an object store: the same names, statuses and infos as on the disk, and no step twice.

Real Snakemake, real clients (gcsfs, s3fs, google-cloud-storage, botocore), emulators on loopback.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.emulators.common.emulator import Emulator
from support.lab import Lab

HELLO_WORLD = {"hello_world/data": "hello_world/data-d50b06", "hello_world/stats": "hello_world/stats-b5daf3"}


@pytest.fixture(params=["gs", "s3"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(scheme: str, request: pytest.FixtureRequest) -> Emulator:
    emulator = request.getfixturevalue("gcs" if scheme == "gs" else "s3")
    emulator.create_bucket("bucket")
    return emulator


@pytest.fixture
def run(store: Emulator, scheme: str, lab: Lab) -> Callable[..., Any]:
    """`run(experiment, *arguments)` with a prefix in the bucket."""

    def start(experiment: Path, *arguments: str, **options: Any) -> Any:
        env = {**store.environment, **options.pop("env", {})}
        return lab.snakemake(*arguments, experiment=experiment, prefix=f"{scheme}://bucket/x", env=env, **options)

    return start


def words(store: Emulator, name: str) -> list[str | None]:
    """The history of a status object, in words."""
    found: list[str | None] = []
    for content in store.history("bucket", f"x/{name}/.executor_status"):
        text = None if content is None else content.decode()
        found.append(json.loads(text)["status"] if text and text.startswith("{") else text)
    return found


def test_hello_world_is_in_the_bucket_as_it_is_on_the_disk(
    lab: Lab, store: Emulator, scheme: str, run: Callable[..., Any]
) -> None:
    file = lab.repository / "experiments" / "tutorials" / "hello_world.py"

    dry = run(file, "-n")
    assert dry.code == 0, dry.output
    assert "2 steps: 2 would run" in dry.output
    assert store.names("bucket") == []

    first = run(file)
    assert first.code == 0, first.output
    assert first.started == sorted(HELLO_WORLD)
    assert "[hello_world/data] writing 100 numbers\n" in first.output
    for name, place in HELLO_WORLD.items():
        assert words(store, place) == ["RUNNING", "SUCCESS"]
        assert store.get("bucket", f"x/{place}/.executor_status") == b"SUCCESS"
        assert store.get("bucket", f"x/{place}/.executor_status.lock") is None
        assert f"  {name}  {scheme}://bucket/x/{place}\n" in first.output
    assert json.loads(store.get("bucket", "x/hello_world/stats-b5daf3/stats.json") or b"")["sum"] == 4950
    assert b"writing 100 numbers\n" in (store.get("bucket", "x/hello_world/data-d50b06/.executor_log") or b"")
    assert not [name for name in store.names("bucket") if ".runs" in name], "the run cleans up after itself"

    store.forget_calls()
    again = run(file)
    assert again.code == 0, again.output
    assert again.started == []
    assert again.cached == sorted(HELLO_WORLD)
    asked = Counter(call.object for call in store.calls() if call.object)
    assert all(asked[f"x/{place}/.executor_status"] == 1 for place in HELLO_WORLD.values())
    assert {call.method for call in store.calls()} == {"GET"}

    assert lab.snakemake(experiment=file).code == 0
    on_disk = {str(path.relative_to(lab.prefix)) for path in (lab.prefix / "hello_world").rglob("*") if path.is_file()}
    assert {name.removeprefix("x/") for name in store.names("bucket", "x/hello_world/")} == on_disk
    for place in HELLO_WORLD.values():
        here = json.loads((lab.prefix / place / ".executor_info").read_text())
        there = json.loads(store.get("bucket", f"x/{place}/.executor_info") or b"")
        assert there["version"] == here["version"]
        assert there["version_digest"] == here["version_digest"]
        assert there.keys() == here.keys()


def test_the_sweep_runs_once_and_its_report_has_the_pictures(
    lab: Lab, store: Emulator, run: Callable[..., Any], tmp_path: Path
) -> None:
    file = lab.repository / "experiments" / "tutorials" / "sweep.py"
    first = run(file)
    assert first.code == 0, first.output
    assert len(first.started) == 14
    again = run(file)
    assert again.code == 0, again.output
    assert "14 steps: 14 cached" in again.output
    report = run(file, "--report", "report.html")
    assert report.code == 0, report.output
    assert "losses.svg" in (tmp_path / "report.html").read_text()
    assert "Sweep of fit" in (tmp_path / ".snakemake" / "marin-rules" / "report" / "overview.html").read_text()


EXPERIMENT = """
    import os
    from dataclasses import dataclass
    import fsspec
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, output_path_of, versioned

    @dataclass(frozen=True)
    class Config:
        number: int = versioned(0)
        inputs: tuple = ()
        output_path: str = THIS_OUTPUT_PATH

    def add(config):
        if os.path.exists(f"fail-{config.number}"):
            raise ValueError("asked to fail")
        total = config.number
        for path in config.inputs:
            with fsspec.open(f"{path}/total") as file:
                total += int(file.read())
        with fsspec.open(f"{config.output_path}/total", "w") as file:
            file.write(str(total))
        return total

    one = ExecutorStep("one", add, Config(versioned(1)))
    two = ExecutorStep("two", add, Config(versioned(2), (output_path_of(one),)))
    three = ExecutorStep("three", add, Config(versioned(3), (output_path_of(one), output_path_of(two))))

    if __name__ == "__main__":
        executor_main(steps=[three])
"""


def total(store: Emulator, name: str) -> bytes | None:
    (found,) = (path for path in store.names("bucket", f"x/{name}-") if path.endswith("/total"))
    return store.get("bucket", found)


def folder(store: Emulator, name: str) -> str:
    (found,) = {path.split("/")[1] for path in store.names("bucket", f"x/{name}-")}
    return found


@pytest.mark.parametrize("scheme", ["s3"])  # Where statuses are more than words.
def test_a_failed_step_is_told_and_run_again(
    lab: Lab, store: Emulator, run: Callable[..., Any], tmp_path: Path
) -> None:
    file = lab.experiment(EXPERIMENT)
    (tmp_path / "fail-2").touch()
    failed = run(file)
    assert failed.code != 0
    assert "asked to fail" in failed.output
    assert words(store, folder(store, "one"))[-1] == "SUCCESS"
    assert words(store, folder(store, "two"))[-1] == "FAILED"
    assert words(store, folder(store, "three"))[-1] == "DEP_FAILED"
    assert b"asked to fail" in (store.get("bucket", f"x/{folder(store, 'two')}/.executor_log") or b"")

    (tmp_path / "fail-2").unlink()
    dry = run(file, "-n")
    assert "failed before" in dry.output
    done = run(file)
    assert done.code == 0, done.output
    assert done.started == ["three", "two"]
    assert total(store, "three") == b"7"
    log = store.get("bucket", f"x/{folder(store, 'two')}/.executor_log") or b""
    assert b"attempt 1" in log
    assert b"attempt 2" in log


def test_two_drivers_on_one_bucket_run_each_step_once(lab: Lab, store: Emulator, scheme: str, tmp_path: Path) -> None:
    file = lab.experiment(EXPERIMENT)
    drivers = []
    for name in ("left", "right"):
        (tmp_path / name).mkdir()
        drivers.append(
            lab.start_snakemake(
                experiment=file, prefix=f"{scheme}://bucket/x", cwd=tmp_path / name, env=store.environment
            )
        )
    for driver in drivers:
        result = driver.wait()
        assert result.code == 0, result.output
    assert total(store, "three") == b"7"
    for name in ("one", "two", "three"):
        assert words(store, folder(store, name)) == ["RUNNING", "SUCCESS"]


@pytest.mark.parametrize("scheme", ["s3"])  # Where versions come back.
def test_a_step_on_an_object_store_can_be_forced(lab: Lab, store: Emulator, run: Callable[..., Any]) -> None:
    file = lab.experiment(EXPERIMENT)
    assert run(file).code == 0
    forced = run(file, "--forceall")
    assert forced.code == 0, forced.output
    assert forced.started == ["one", "three", "two"]
    assert words(store, folder(store, "one")) == ["RUNNING", "SUCCESS", "RUNNING", "SUCCESS"]


@pytest.fixture
def one_step(lab: Lab) -> Path:
    return lab.experiment(EXPERIMENT)


def refusal(result: Any) -> str:
    """The line that says what is wrong; there is no traceback around it, and no step has started."""
    assert result.code != 0, result.output
    assert "Traceback" not in result.output, result.output
    assert result.started == []
    return str(next(line for line in result.output.splitlines() if line.startswith("error: ")))


@pytest.mark.parametrize("arguments", [[], ["-n"]], ids=["run", "dry run"])
def test_a_bucket_that_is_not_there(
    one_step: Path, store: Emulator, scheme: str, lab: Lab, arguments: list[str]
) -> None:
    result = lab.snakemake(*arguments, experiment=one_step, prefix=f"{scheme}://nowhere/x", env=store.environment)
    assert f"cannot use {scheme}://nowhere: there is no bucket nowhere." in refusal(result)


def test_no_permission_is_told_before_any_step_runs(one_step: Path, store: Emulator, run: Callable[..., Any]) -> None:
    store.inject(403, methods=["POST", "PUT"])
    message = refusal(run(one_step))
    assert "permission denied" in message
    assert "Ask for read and write access to the bucket bucket" in message


def test_no_credentials_is_told_with_what_to_do(
    one_step: Path, store: Emulator, scheme: str, run: Callable[..., Any]
) -> None:
    store.inject(401)
    message = refusal(run(one_step))
    assert "no valid credentials" in message
    assert {"gs": "gcloud auth application-default login", "s3": "aws configure"}[scheme] in message


@pytest.mark.parametrize(
    ("prefix", "advice"),
    [
        ("gs://bucket/x/", "ends with a slash"),
        ("gs://bucket/a b", "white space"),
        ("gs:///x", "no bucket"),
        ("gss://bucket/x", "Write 'gs://bucket/x'"),
    ],
)
def test_a_prefix_that_cannot_be_right(one_step: Path, lab: Lab, prefix: str, advice: str) -> None:
    message = refusal(lab.snakemake(experiment=one_step, prefix=prefix))
    assert prefix in message
    assert advice in message


def test_an_unknown_cluster_is_named_with_those_there_are(one_step: Path, lab: Lab) -> None:
    message = refusal(lab.snakemake(experiment=one_step, prefix=None, env={"MARIN_CLUSTER": "nowhere"}))
    assert "nowhere" in message
    assert "marin" in message


OVERRIDING = """
    from marin_rules import ExecutorStep, executor_main, versioned

    def nothing(config):
        pass

    steps = [ExecutorStep("plain", nothing, None)]
    steps.append(ExecutorStep("best", nothing, {{"value": versioned({value})}}, override_output_path="best"))
    executor_main(steps=steps)
"""


def test_a_finished_override_of_another_version_is_refused(
    store: Emulator, scheme: str, run: Callable[..., Any], lab: Lab
) -> None:
    result = run(lab.experiment(OVERRIDING.format(value=1)), "-j", "2")
    assert result.code == 0, result.output
    result = run(lab.experiment(OVERRIDING.format(value=2)), "-n")
    assert result.code == 1
    told = f"step 'best': its override_output_path {scheme}://bucket/x/best already holds another version"
    assert told in result.output, result.output
