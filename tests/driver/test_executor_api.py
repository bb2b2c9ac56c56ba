"""What an `Executor` tells about steps, and what `executor_main` does with them in a script."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from marin_rules import (
    THIS_OUTPUT_PATH,
    Executor,
    ExecutorMainConfig,
    ExecutorStep,
    InputName,
    PlanError,
    SettingsError,
    compute_output_path,
    executor_main,
    materialize,
    mirrored,
    output_path_of,
    resolve_local_placeholders,
    this_output_path,
    versioned,
)
from marin_rules.driver.main import asks_for_dry_run

REPOSITORY = Path(__file__).resolve().parents[2]


def run(config: Any) -> None:
    """A step's function; never called here."""


def step(name: str, config: Any = None, **details: Any) -> ExecutorStep[Any]:
    return ExecutorStep(name=name, fn=run, config=config, **details)


@dataclass(frozen=True)
class Config:
    value: Any
    output_path: str = THIS_OUTPUT_PATH


def python(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)} | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


# --- the executor


def family() -> dict[str, ExecutorStep[Any]]:
    raw = step("raw", Config(versioned(1)))
    twin = step("raw", Config(versioned(1)))
    old = step("old", Config(raw / "x"))
    top = step("top", Config([twin / "y", output_path_of(old).nonblocking()]), description="The top.")
    moved = step("moved", Config([top]), override_output_path="elsewhere/moved")
    return {"raw": raw, "twin": twin, "old": old, "top": top, "moved": moved}


def computed(steps: dict[str, ExecutorStep[Any]], prefix: str = "/p", **details: Any) -> Executor:
    executor = Executor(prefix, f"{prefix}/experiments", **details)
    executor.compute_version(steps["moved"], is_pseudo_dep=False)
    return executor


def test_what_an_executor_knows() -> None:
    steps = family()
    raw, twin, old, top, moved = steps.values()
    executor = computed(steps)
    raw_version = {"name": "raw", "config": {"value": 1}, "dependencies": []}
    old_version = {"name": "old", "config": {"value": "DEP[0]/x"}, "dependencies": [raw_version]}
    top_version = {
        "name": "top",
        "config": {"value.[0]": "DEP[0]/y", "value.[1]": "DEP[1]"},
        "dependencies": [raw_version],
        "pseudo_dependencies": [old_version],
    }
    moved_version = {"name": "moved", "config": {"value.[0]": "DEP[0]"}, "dependencies": [top_version]}
    assert executor.versions == {
        raw: raw_version,
        twin: raw_version,
        old: old_version,
        top: top_version,
        moved: moved_version,
    }
    # The twin was met first, so it stands for both.
    assert executor.steps == [twin, old, top, moved]
    assert {item: executor.canonicalize(item) for item in steps.values()} == {
        raw: twin,
        twin: twin,
        old: old,
        top: top,
        moved: moved,
    }
    assert executor.dependencies == {raw: [], twin: [], old: [twin], top: [twin], moved: [top]}
    assert executor.is_pseudo_dep == {raw: True, twin: False, old: True, top: False, moved: False}
    texts = {item: json.dumps(version, sort_keys=True) for item, version in executor.versions.items()}
    assert executor.hashed_versions == {
        item: hashlib.md5(text.encode()).hexdigest()[:6] for item, text in texts.items()
    }
    raw_path, old_path, top_path = (executor.output_paths[item] for item in (raw, old, top))
    assert executor.output_paths[twin] == raw_path == f"/p/raw-{executor.hashed_versions[raw]}"
    assert executor.output_paths[moved] == "/p/elsewhere/moved"
    assert executor.configs == {
        raw: Config(1, raw_path),
        twin: Config(1, raw_path),
        old: Config(f"{raw_path}/x", old_path),
        top: Config([f"{raw_path}/y", old_path], top_path),
        moved: Config([top_path], "/p/elsewhere/moved"),
    }


def test_versions_as_text_and_back() -> None:
    steps = family()
    executor = computed(steps)
    assert isinstance(executor.version_strs, Mapping)
    assert set(executor.version_strs) == set(steps.values())
    for item, text in executor.version_strs.items():
        assert text == json.dumps(executor.versions[item], sort_keys=True)
        assert executor.version_str_to_step[text] is executor.canonicalize(item)
    assert len(executor.version_str_to_step) == 4
    assert list(executor.version_str_to_step.values()) == executor.steps
    assert "{}" not in executor.version_str_to_step
    with pytest.raises(KeyError):
        executor.version_str_to_step["{}"]


def test_computing_twice_changes_nothing() -> None:
    steps = family()
    executor = computed(steps)
    before = (list(executor.steps), dict(executor.versions), dict(executor.output_paths))
    executor.compute_version(steps["moved"], is_pseudo_dep=False)
    executor.compute_version(steps["raw"], is_pseudo_dep=True)
    assert (executor.steps, executor.versions, executor.output_paths) == before
    executor.compute_version(steps["old"], is_pseudo_dep=False)
    assert executor.is_pseudo_dep[steps["old"]] is False


def test_infos() -> None:
    steps = family()
    executor = computed(steps, description="All of it.")
    executor.get_infos()
    assert [info.name for info in executor.step_infos] == ["raw", "old", "top", "moved"]
    top, moved = executor.step_infos[2:]
    assert top.fn_name == f"{__name__}.run"
    assert top.description == "The top."
    assert top.config == executor.configs[steps["top"]]
    assert top.version == executor.versions[steps["top"]]
    assert top.dependencies == [executor.output_paths[steps["raw"]]]
    assert top.output_path == executor.output_paths[steps["top"]]
    assert (top.override_output_path, moved.override_output_path) == (None, "elsewhere/moved")
    info = executor.executor_info
    assert info is not None
    assert info.steps is executor.step_infos
    assert (info.prefix, info.description) == ("/p", "All of it.")
    assert str(os.getpid()) in info.worker_id


def test_the_infos_of_an_experiment_are_written(tmp_path: Path) -> None:
    steps = family()
    executor = computed(steps, prefix=str(tmp_path), description="All of it.")
    executor.write_infos()
    (path,) = (tmp_path / "experiments").iterdir()
    assert executor.executor_info_path == str(path)
    assert list(tmp_path.iterdir()) == [path.parent], "nothing else is written"
    written = json.loads(path.read_text())
    assert set(written) >= {
        "worker_id",
        "git_commit",
        "caller_path",
        "created_date",
        "user",
        "prefix",
        "description",
        "steps",
    }
    assert (written["prefix"], written["description"]) == (str(tmp_path), "All of it.")
    assert [item["name"] for item in written["steps"]] == ["raw", "old", "top", "moved"]
    for item, original in zip(written["steps"], executor.steps, strict=True):
        assert item["fn_name"] == f"{__name__}.run"
        assert item["version"] == executor.versions[original]
        assert item["output_path"] == executor.output_paths[original]
        assert item["dependencies"] == [executor.output_paths[below] for below in executor.dependencies[original]]
        assert item["config"]["output_path"] == item["output_path"]
        assert item["description"] == original.description
        assert item["override_output_path"] == original.override_output_path


SCRIPT = """
import sys
from marin_rules import *

def compute(config):
    pass

steps = [ExecutorStep("data", compute, {"x": versioned(1)}), ExecutorStep("lambda", lambda config: None, [])]
executor = Executor(sys.argv[1], sys.argv[1] + "/experiments")
for step in steps:
    executor.compute_version(step, is_pseudo_dep=False)
executor.write_infos()
print(executor.executor_info_path)
"""


@pytest.mark.processes
def test_the_infos_of_an_experiment_have_one_name(tmp_path: Path) -> None:
    script = tmp_path / "my_experiment.py"
    script.write_text(SCRIPT)
    out = tmp_path / "out"
    said = [python(str(script), str(out), cwd=tmp_path, PYTHONHASHSEED=str(seed)).stdout.strip() for seed in (1, 2)]
    assert said[0] == said[1]
    (path,) = (out / "experiments").iterdir()
    assert str(path) == said[0]
    name, _, digest = path.stem.rpartition("-")
    assert (name, path.suffix) == ("my_experiment", ".json")
    assert len(digest) == 6
    script.write_text(SCRIPT.replace("versioned(1)", "versioned(2)"))
    assert python(str(script), str(out), cwd=tmp_path).stdout.strip() != said[0]


def test_the_address_of_an_experiment() -> None:
    steps = family()
    executor = computed(steps, prefix="gs://bucket/x")
    address = executor.get_experiment_url()
    assert address.startswith("https://storage.cloud.google.com/bucket/x/experiments/")
    assert address.endswith(".json")
    assert computed(steps, prefix="s3://bucket").get_experiment_url().startswith("s3://bucket/experiments/")


@pytest.mark.parametrize("folder", ["plain", "with space", "run#1", "100%", "ü?"])
def test_the_address_of_a_local_experiment_leads_to_its_file(tmp_path: Path, folder: str) -> None:
    executor = computed(family(), prefix=str(tmp_path / folder))
    executor.write_infos()
    address = urlsplit(executor.get_experiment_url())
    assert address.scheme == "file"
    assert unquote(address.path) == executor.executor_info_path


def test_a_run_needs_a_place_for_its_steps() -> None:
    with pytest.raises(ValueError, match="max_concurrent must be at least 1, not 0"):
        Executor("/p", "/p/experiments").run([step("a")], max_concurrent=0)


def test_a_run_refuses_what_a_plan_refuses_before_anything_is_written(tmp_path: Path) -> None:
    executor = Executor(str(tmp_path), str(tmp_path / "experiments"))
    with pytest.raises(PlanError, match=r"step '\.\./x'"):
        executor.run([step("../x")])
    assert list(tmp_path.iterdir()) == []


# --- functions beside it


def test_compute_output_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compute_output_path("a", None, prefix="/p") == "/p/a-d85366"
    assert compute_output_path("a", Config(versioned(1)), prefix="") == compute_output_path(
        "a", {"value": versioned(1)}, prefix=""
    )
    assert compute_output_path("a", None, override_output_path="/x/y", prefix="/p") == "/x/y"
    assert compute_output_path("a", None, override_output_path="x/y", prefix="gs://bucket") == "gs://bucket/x/y"
    monkeypatch.setenv("MARIN_PREFIX", str(tmp_path / "prefix"))
    assert compute_output_path("a", None) == f"{tmp_path}/prefix/a-d85366"
    assert list(tmp_path.iterdir()) == []


def test_materialize_without_placeholders_changes_and_writes_nothing(tmp_path: Path) -> None:
    for config in (Config([1, {"k": 2}], output_path="/x"), {"a": [1]}, None, "text"):
        assert materialize(config, prefix=str(tmp_path)) is config
    assert list(tmp_path.iterdir()) == []


def test_materialize_resolves_what_needs_no_step(tmp_path: Path) -> None:
    config: Any = Config(
        [versioned(1), InputName.hardcoded("raw"), this_output_path("x"), mirrored("given")], output_path="/out"
    )
    resolved = materialize(config, prefix=str(tmp_path))
    assert resolved == Config([1, f"{tmp_path}/raw", "/out/x", "mirror://given"], "/out")
    assert list(tmp_path.iterdir()) == []


def test_materialize_needs_to_know_the_output_path(tmp_path: Path) -> None:
    for config in (Config(1), Config(step("never", Config(1)))):
        with pytest.raises(TypeError, match=r"output_path is still an OutputName.*resolve_local_placeholders"):
            materialize(config, prefix=str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert materialize(Config(1), prefix=str(tmp_path), output_path="/out") == Config(1, "/out")
    assert materialize(resolve_local_placeholders(Config(1), "/out"), prefix=str(tmp_path)) == Config(1, "/out")


# --- executor_main


def test_no_steps_are_nothing_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    executor_main(ExecutorMainConfig(prefix=str(tmp_path)))
    assert "nothing to do: no steps were given" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_steps_are_given_once() -> None:
    one = step("a")
    with pytest.raises(SettingsError, match="takes the steps as one list"):
        executor_main([one], [one])  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ([], False),
        (["--dry_run"], True),
        (["--dry_run", "true", "x"], True),
        (["--n", "3", "--dry_run=True"], True),
        (["--dry_run", "--n", "3"], True),
        (["--dry_run", "false"], False),
        (["--dry_run=false"], False),
        (["--dry_run", "0"], False),
        (["--dry_runs"], False),
    ],
)
def test_a_step_runner_heeds_dry_run(words: list[str], asked: bool) -> None:
    assert asks_for_dry_run(words) is asked


@pytest.mark.processes
def test_a_script_with_flags_of_its_own_gives_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Marin's scripts call what its `executor_main` wraps. Nor do they run anything if --dry_run is among the flags."""
    monkeypatch.setattr(sys, "argv", ["x.py", "--size", "tiny", "--dry_run", "True"])
    config = ExecutorMainConfig(prefix=str(tmp_path))
    executor_main.__wrapped__(config, steps=[step("wrapped")], description="its own flags", max_concurrent=2)
    assert "would run  wrapped" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_fails_is_raised_and_ends_a_program_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script may catch it, as with Marin; if it does not, it has no use for our frames."""
    shown: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda *error: shown.append(error))
    monkeypatch.setattr(sys, "argv", ["x.py", "--prefix", str(tmp_path)])
    with pytest.raises(PlanError, match=r"step '\.\./x'") as caught:
        executor_main(steps=[ExecutorStep("../x", print, None)])
    sys.excepthook(PlanError, caught.value, None)
    assert capsys.readouterr().err.startswith("error: step '../x': ")
    assert shown == []
    other = ValueError("of the script")
    sys.excepthook(ValueError, other, None)
    assert shown == [(ValueError, other, None)]


@pytest.mark.processes
def test_a_script_ends_with_one_line_for_what_a_person_can_mend(tmp_path: Path) -> None:
    script = tmp_path / "experiment.py"
    script.write_text(
        'from marin_rules import *\nexecutor_main(steps=[ExecutorStep("../x", print, None)])\n'  # climbs
    )
    ended = python(str(script), "--prefix", str(tmp_path / "out"), cwd=tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: step '../x': ")
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flags", [["--help"], ["--prefix", "out", "--help"], ["-h", "--dry_run"]])
def test_help_is_given_whatever_else_is_asked(
    flags: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["x.py", *flags])
    with pytest.raises(SystemExit) as ended:
        executor_main(steps=[])
    assert ended.value.code == 0
    assert "--max_concurrent" in capsys.readouterr().out
