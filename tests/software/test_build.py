"""Environments are made once, whole or not at all, and found again at no cost."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_rules.errors import MarinRulesError, SettingsError
from marin_rules.software.build import EnvironmentBuildError, ensure_environment, environment_path
from marin_rules.software.environment import Environment
from marin_rules.software.manifest import read_manifest
from marin_rules.software.package import package_folder
from marin_rules.software.requirements import resolve_groups
from software.builders import BuilderProcess, Gate, SourcePackage, wait_until

type StartBuilder = Callable[[Environment], BuilderProcess]


def silent(text: str) -> None:
    """For builds whose words are of no interest."""


def run(python: str, code: str, **variables: str) -> str:
    """What a program prints under this Python, which sees nothing of ours but `variables`."""
    done = subprocess.run([python, "-c", code], env={"PATH": os.defpath, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.processes
def test_a_step_finds_its_packages_and_marin_rules_but_not_snakemake(folder: Path, tmp_path: Path) -> None:
    requirements = resolve_groups(["six", "iniconfig>=2"], str(tmp_path), prefix="out").requirements
    environment = Environment.here(requirements, ["six", "iniconfig>=2"])
    said: list[str] = []
    python = ensure_environment(environment, str(folder), said.append)

    path = environment_path(environment, str(folder))
    assert python == os.path.join(path, "bin", "python")
    assert environment.name.startswith("six-iniconfig-")
    package = package_folder(str(folder))
    assert run(python, "import marin_rules.worker.worker, six; print(six.__name__)", PYTHONPATH=package) == "six"
    looked_for = "import importlib.util; print(importlib.util.find_spec('snakemake'))"
    assert run(python, looked_for, PYTHONPATH=package) == "None"

    manifest = read_manifest(path)
    assert manifest is not None
    assert manifest.requirements == requirements
    assert manifest.python == ".".join(map(str, sys.version_info[:3]))
    assert set(manifest.packages) == {"cloudpickle", "fsspec", "iniconfig", "pyyaml", "six"}
    assert manifest.packages["six"] == run(python, "import six; print(six.__version__)")
    assert said == [
        f"environment {environment.name}: building (5 requirements)",
        f"environment {environment.name}: ready after {manifest.seconds:.1f} s, 5 packages",
    ]
    assert names(folder) == {environment.name, f"packages-{os.getuid()}"}


@pytest.mark.processes
@pytest.mark.usefixtures("own_cache")
def test_after_the_move_scripts_run_and_bytecode_is_there(folder: Path, tmp_path: Path) -> None:
    environment = Environment.here([SourcePackage(tmp_path / "source", "tiny").requirement])
    python = ensure_environment(environment, str(folder), silent)
    script = subprocess.run([Path(python).with_name("tiny")], capture_output=True, text=True, check=True)
    module = Path(script.stdout.strip())
    assert module.is_relative_to(environment_path(environment, str(folder)))
    assert list((module.parent / "__pycache__").glob("tiny.*.pyc"))
    shown = run(python, "import tiny; print(tiny.main.__code__.co_filename)")
    assert shown == str(module), "a traceback would name a file that is not there any more"


@pytest.mark.processes
def test_a_warm_environment_needs_no_uv_and_no_time(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = Environment.here([])
    python = ensure_environment(environment, str(folder), silent)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    said: list[str] = []
    seconds = []
    for _ in range(20):
        began = time.perf_counter()
        assert ensure_environment(environment, str(folder), said.append) == python
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.005
    assert said == []

    with pytest.raises(MarinRulesError, match="pip install uv"):
        ensure_environment(Environment.here(["six"]), str(folder), silent)
    assert names(folder) == {environment.name}


@pytest.mark.processes
def test_what_uv_cannot_resolve_is_told_in_its_words_and_leaves_nothing(folder: Path) -> None:
    environment = Environment.here(["six==99999"], ["old-six"])
    with pytest.raises(EnvironmentBuildError) as failure:
        ensure_environment(environment, str(folder), silent)
    message = str(failure.value)
    assert f"environment {environment.name} (old-six) cannot be built; uv says:" in message
    assert "no version of six==99999" in message
    assert message.endswith("in pyproject.toml, and run again.")
    assert names(folder) == set()


@pytest.mark.processes
def test_an_index_out_of_reach_is_named_as_such_without_its_password(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://somebody:hunter2@127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(EnvironmentBuildError, match="does not reach the index of packages") as failure:
        ensure_environment(Environment.here(["no-such-package"]), str(folder), silent)
    assert "hunter2" not in str(failure.value)
    assert names(folder) == set()


@pytest.mark.processes
def test_a_place_where_uv_cannot_write_is_no_fault_of_the_requirements(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", "/sys/no-place")  # Where not even root can make a folder.
    with pytest.raises(EnvironmentBuildError, match="uv cannot write there") as failure:
        ensure_environment(Environment.here(["six"]), str(folder), silent)
    assert "Correct the groups" not in str(failure.value)


@pytest.mark.processes
def test_credentials_that_uv_prints_are_not_passed_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    # A wrong name: uv sees that before it asks anybody, and shows the whole URL.
    url = "https://somebody:hunter2@files.invalid/six-1.17.0-py2.py3-none-any.whl?token=s3cr3t"
    with pytest.raises(EnvironmentBuildError, match="does not match") as failure:
        ensure_environment(Environment.here([f"seven @ {url}"]), str(folder), silent)
    assert "https://***@files.invalid/six-1.17.0-py2.py3-none-any.whl?token=***" in str(failure.value)


@pytest.mark.processes
@pytest.mark.usefixtures("own_cache")
def test_an_index_that_only_pip_knows_is_used(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SourcePackage(tmp_path / "source", "tiny")
    made = ensure_environment(Environment.here([source.requirement]), str(folder), silent)
    uv = Path(sys.executable).with_name("uv")
    index = tmp_path / "simple" / "tiny"
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", index, tmp_path / "source"], check=True)
    (index / "index.html").write_text('<a href="tiny-1.2-py3-none-any.whl">tiny-1.2-py3-none-any.whl</a>')
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\nindex-url = {(tmp_path / 'simple').as_uri()}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))

    python = ensure_environment(Environment.here(["tiny"]), str(folder), silent)
    assert python != made
    assert run(python, "import tiny; print(tiny.__name__)") == "tiny"


@pytest.mark.processes
@pytest.mark.usefixtures("own_cache")
def test_of_two_processes_one_builds_and_the_other_waits(
    folder: Path, tmp_path: Path, gate: Gate, builder: StartBuilder
) -> None:
    environment = Environment.here([SourcePackage(tmp_path / "source", "tiny", gate).requirement])
    one = builder(environment)
    wait_until(gate.waiting, "the first is building")
    other = builder(environment)
    wait_until(lambda: "waiting" in other.output, "the second waits")
    assert not os.path.exists(environment_path(environment, str(folder)))
    gate.open()

    assert (one.wait(), other.wait()) == (0, 0), one.output + other.output
    assert one.lines[-1] == other.lines[-1] == f"python: {environment_path(environment, str(folder))}/bin/python"
    (waiting,) = other.lines[:-1]
    assert f"waiting, it is being built by {os.uname().nodename}-{one.process.pid}-" in waiting
    assert len(gate.waiting()) == 1
    assert names(folder) == {environment.name}


@pytest.mark.processes
@pytest.mark.usefixtures("own_cache")
def test_a_killed_builder_is_replaced_at_once_and_leaves_nothing(
    folder: Path, tmp_path: Path, gate: Gate, builder: StartBuilder
) -> None:
    environment = Environment.here([SourcePackage(tmp_path / "source", "tiny", gate).requirement])
    victim = builder(environment)
    (backend,) = wait_until(gate.waiting, "the victim is building")
    victim.signal(signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
    wait_until(lambda: has_ended(backend), "uv dies with its builder")
    left = names(folder)
    assert len(left) == 2, "a lease and what was begun"
    assert environment.name not in left

    gate.open()
    said: list[str] = []
    python = ensure_environment(environment, str(folder), said.append)
    assert run(python, "import tiny; print(tiny.__name__)") == "tiny"
    assert names(folder) == {environment.name}
    assert not any("waiting" in text for text in said)


@pytest.mark.processes
@pytest.mark.usefixtures("own_cache")
def test_an_interrupted_builder_takes_everything_with_it(
    folder: Path, tmp_path: Path, gate: Gate, builder: StartBuilder
) -> None:
    interrupted = builder(Environment.here([SourcePackage(tmp_path / "source", "tiny", gate).requirement]))
    (backend,) = wait_until(gate.waiting, "it is building")
    interrupted.signal(signal.SIGINT)
    assert interrupted.wait() != 0
    assert interrupted.lines[-1] == "KeyboardInterrupt"
    assert names(folder) == set()
    wait_until(lambda: has_ended(backend), "its uv is gone")


@pytest.mark.processes
@pytest.mark.usefixtures("own_cache")
def test_a_builder_that_was_thought_dead_takes_what_its_successor_made(
    folder: Path, tmp_path: Path, gate: Gate, builder: StartBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARIN_LEASE_LIFETIME_SECONDS", "1")
    environment = Environment.here([SourcePackage(tmp_path / "source", "tiny", gate).requirement])
    sleeper = builder(environment)
    wait_until(gate.waiting, "the sleeper is building")
    sleeper.signal(signal.SIGSTOP)
    successor = builder(environment)
    wait_until(lambda: "building (1 requirement)" in successor.output, "the successor builds")
    gate.open()
    assert successor.wait() == 0, successor.output
    before = os.stat(environment_path(environment, str(folder))).st_ino

    sleeper.signal(signal.SIGCONT)
    assert sleeper.wait() == 0, sleeper.output
    assert sleeper.lines[-1] == successor.lines[-1]
    assert any("was stopped while building, and checks again" in line for line in sleeper.lines), sleeper.output
    assert not any("ready after" in line for line in sleeper.lines)
    assert os.stat(environment_path(environment, str(folder))).st_ino == before
    assert names(folder) == {environment.name}


@pytest.mark.processes
@pytest.mark.usefixtures("own_cache")
def test_threads_of_one_process_build_once(folder: Path, tmp_path: Path, gate: Gate) -> None:
    environment = Environment.here([SourcePackage(tmp_path / "source", "tiny", gate).requirement])
    said: list[str] = []
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(ensure_environment(environment, str(folder), said.append)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: gate.waiting() and sum("waiting" in text for text in said) == 2, "two wait for the third")
    gate.open()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(set(found)) == 1
    assert sum("building" in text for text in said if "waiting" not in text) == 1


@pytest.mark.processes
def test_a_folder_that_somebody_began_to_delete_is_made_again(folder: Path) -> None:
    environment = Environment.here([])
    python = ensure_environment(environment, str(folder), silent)
    os.unlink(Path(environment_path(environment, str(folder)), "marin-rules.json"))
    assert read_manifest(environment_path(environment, str(folder))) is None
    assert ensure_environment(environment, str(folder), silent) == python
    assert read_manifest(environment_path(environment, str(folder))) is not None
    assert names(folder) == {environment.name}


@pytest.mark.processes
def test_a_python_that_this_machine_lacks_is_named_and_nothing_is_deleted(folder: Path) -> None:
    environment = Environment.here([])
    python = Path(ensure_environment(environment, str(folder), silent))
    python.unlink()
    python.symlink_to("/opt/python/of/another/machine")
    with pytest.raises(
        EnvironmentBuildError, match="its Python, /opt/python/of/another/machine, is not on this machine"
    ):
        ensure_environment(environment, str(folder), silent)
    assert read_manifest(environment_path(environment, str(folder))) is not None


def test_another_python_is_not_asked_to_build(folder: Path) -> None:
    here = Environment.here(["six"])
    environment = Environment.from_fields({**here.to_fields(), "python": "3.11"})
    with pytest.raises(EnvironmentBuildError, match=r"is for cpython 3\.11 on .* cannot be made by cpython 3\."):
        ensure_environment(environment, str(folder), silent)
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_is_told_with_the_variable_to_set(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = str(tmp_path / "file" / "environments")
    with pytest.raises(SettingsError, match=rf"{os.strerror(errno.ENOTDIR)}.*MARIN_ENVIRONMENTS"):
        ensure_environment(Environment.here([]), folder, silent)
    with pytest.raises(SettingsError, match="MARIN_ENVIRONMENTS"):
        package_folder(folder)


@pytest.mark.processes
def test_a_manifest_that_cannot_be_read_is_told_with_the_folder_to_delete(folder: Path) -> None:
    environment = Environment.here([])
    ensure_environment(environment, str(folder), silent)
    path = environment_path(environment, str(folder))
    Path(path, "marin-rules.json").write_text(json.dumps({"requirements": []}))
    with pytest.raises(MarinRulesError, match=f"Delete the folder {path}"):
        read_manifest(path)


def test_the_package_folder_holds_one_link_and_is_made_once(folder: Path) -> None:
    path = Path(package_folder(str(folder)))
    (link,) = path.iterdir()
    assert (link.name, link.is_symlink()) == ("marin_rules", True)
    assert (link / "software" / "build.py").is_file()
    made = path.stat().st_ino
    assert package_folder(str(folder)) == str(path)
    assert path.stat().st_ino == made
    assert names(path.parent) == {path.name}
    shutil.rmtree(path)
    assert package_folder(str(folder)) == str(path)
    assert (path / "marin_rules" / "software" / "build.py").is_file()


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
