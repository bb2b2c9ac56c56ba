"""Environments are built from locks exactly: the files that were hashed, and no others."""

import hashlib
import json
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from marin_rules.software.build import EnvironmentBuildError, ensure_environment, environment_path
from marin_rules.software.environment import Environment
from marin_rules.software.lock_file import read_lock
from marin_rules.software.manifest import read_manifest
from software.builders import make_wheel

pytestmark = pytest.mark.processes

_SOURCE = """
import zipfile
import tinytool

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = "tinysource-3.0-py3-none-any.whl"
    info = "tinysource-3.0.dist-info"
    with zipfile.ZipFile(f"{wheel_directory}/{name}", "w") as archive:
        archive.writestr("tinysource.py", f"built_with = {tinytool.version!r}")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: tinysource\\nVersion: 3.0\\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(f"{info}/RECORD", "")
    return name
"""


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of wheels that is all that uv can reach."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "shelf"))
    return tmp_path / "shelf"


def locked(folder: Path, *lines: str) -> Environment:
    """The environment of a lock with these lines."""
    path = folder / "tiny.txt"
    path.write_text("".join(lines))
    lock = read_lock(path, name="locks/tiny.txt")
    return replace(Environment.here(lock.pins, ["tiny"]), lock=lock)


def build(environment: Environment, folder: Path) -> tuple[str, list[str]]:
    said: list[str] = []
    return ensure_environment(environment, str(folder), said.append), said


def failure(environment: Environment, folder: Path) -> str:
    with pytest.raises(EnvironmentBuildError) as error:
        build(environment, folder)
    assert [path.name for path in folder.iterdir()] == [], "a build that fails leaves nothing"
    return str(error.value)


def printed(python: str, code: str) -> str:
    return subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_what_is_installed_is_what_the_lock_says_and_is_recorded(shelf: Path, folder: Path, tmp_path: Path) -> None:
    lines = [make_wheel(shelf, "tinyone", "1.0", needs="tinytwo>=1"), make_wheel(shelf, "tinytwo", "1.5")]
    make_wheel(shelf, "tinytwo", "2.0")  # Newer, and not in the lock.
    environment = locked(tmp_path, *lines)
    python, said = build(environment, folder)
    assert printed(python, "import tinyone, tinytwo; print(tinytwo.version)") == "1.5"
    path = Path(environment_path(environment, str(folder)))
    assert list(path.glob("lib/python*/site-packages/__pycache__/tinyone.*.pyc")), "compiled, once for all jobs"
    manifest = read_manifest(str(path))
    assert manifest is not None
    assert environment.lock is not None
    assert manifest.packages == {"tinyone": "1.0", "tinytwo": "1.5"}
    assert manifest.lock == {"file": "locks/tiny.txt", "sha256": environment.lock.sha256}
    assert json.loads((path / "marin-rules.json").read_text())["requirements"] == ["tinyone==1.0", "tinytwo==1.5"]
    assert said[0] == f"environment {environment.name}: building (2 requirements)"


def test_no_variable_of_uvs_puts_anything_else_there(
    shelf: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = locked(tmp_path, make_wheel(shelf, "tinyone", "1.0"))
    make_wheel(shelf, "pip", "99.0")
    overrides = tmp_path / "overrides.txt"
    overrides.write_text(make_wheel(shelf, "tinyone", "2.0"))
    monkeypatch.setenv("UV_OVERRIDE", str(overrides))
    monkeypatch.setenv("UV_VENV_SEED", "1")
    build(environment, folder)
    manifest = read_manifest(environment_path(environment, str(folder)))
    assert manifest is not None
    assert manifest.packages == {"tinyone": "1.0"}


def test_another_file_than_the_one_that_was_hashed_is_refused(shelf: Path, folder: Path, tmp_path: Path) -> None:
    line = make_wheel(shelf, "tinyone", "1.0")
    make_wheel(shelf, "tinyone", "1.0", needs="tinyevil")
    message = failure(locked(tmp_path, line), folder)
    assert "Hash mismatch for `tinyone==1.0`" in message
    assert "Its packages are those of the lock locks/tiny.txt" in message


def test_a_lock_without_a_package_that_another_needs_is_refused(shelf: Path, folder: Path, tmp_path: Path) -> None:
    line = make_wheel(shelf, "tinyone", "1.0", needs="tinytwo>=1")
    make_wheel(shelf, "tinytwo", "1.5")
    message = failure(locked(tmp_path, line), folder)
    assert "tinytwo" in message
    assert "Compile the lock again" in message


def test_a_package_without_a_wheel_for_this_platform_is_refused(shelf: Path, folder: Path, tmp_path: Path) -> None:
    line = make_wheel(shelf, "tinyone", "1.0", tag="cp313-cp313-win_amd64")
    message = failure(locked(tmp_path, line), folder)
    assert "tinyone" in message
    assert f"as wheels for {Environment.here(()).describe_python()}" in message


def make_source(shelf: Path, tmp_path: Path) -> str:
    """A package that has no wheel, and is built with `tinytool`; returns its line in a lock."""
    source = tmp_path / "tinysource-3.0"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["tinytool"]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "tinysource"\nversion = "3.0"\n'
    )
    (source / "backend.py").write_text(_SOURCE)
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: tinysource\nVersion: 3.0\n")
    shelf.mkdir(exist_ok=True)
    path = shelf / "tinysource-3.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(source, source.name)
    return f"tinysource==3.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def test_only_what_the_lock_names_is_built_and_with_its_own_tools(shelf: Path, folder: Path, tmp_path: Path) -> None:
    source, tool = make_source(shelf, tmp_path), make_wheel(shelf, "tinytool", "1.0")
    make_wheel(shelf, "tinytool", "2.0")
    assert "tinysource" in failure(locked(tmp_path, source, tool), folder)
    python, _ = build(locked(tmp_path, "--no-binary tinysource\n", source, tool), folder)
    assert printed(python, "import tinysource; print(tinysource.built_with)") == "1.0"


def test_a_build_tool_that_is_not_in_the_lock_is_not_fetched(shelf: Path, folder: Path, tmp_path: Path) -> None:
    source, other = make_source(shelf, tmp_path), make_wheel(shelf, "tinyone", "1.0")
    make_wheel(shelf, "tinytool", "2.0")
    assert "tinytool" in failure(locked(tmp_path, "--no-binary tinysource\n", source, other), folder)


def test_the_command_writes_a_lock_that_can_be_built(shelf: Path, folder: Path, tmp_path: Path) -> None:
    for name in ("cloudpickle", "fsspec", "gcsfs", "google_cloud_storage", "pyyaml", "s3fs", "botocore"):
        make_wheel(shelf, name, "9999.0", needs="tinytwo" if name == "fsspec" else "")
    for version in ("1.0", "2.0"):
        make_wheel(shelf, "tinytwo", version)
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[dependency-groups]\ntiny = ["tinytwo<2"]\n[tool.marin-rules.locks]\ntiny = "locks/tiny.txt"\n'
    )
    program = Path(sys.executable).with_name("marin-rules")
    done = subprocess.run([program, "lock", "tiny"], cwd=project, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "tiny: locks/tiny.txt\n"), done.stderr
    first = (project / "locks" / "tiny.txt").read_bytes()
    assert b"marin-rules lock tiny" in first
    assert str(tmp_path).encode() not in first
    environment = Environment.of_groups(["tiny"], str(project), prefix="gs://bucket")
    python, _ = build(environment, folder)
    assert printed(python, "import tinytwo; print(tinytwo.version)") == "1.0"

    again = subprocess.run([program, "lock", "tiny", "--", "--upgrade"], cwd=project, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert (project / "locks" / "tiny.txt").read_bytes() == first, "the same needs give the same bytes"

    (project / "pyproject.toml").write_text(
        '[dependency-groups]\ntiny = ["tinytwo>2"]\n[tool.marin-rules.locks]\ntiny = "locks/tiny.txt"\n'
    )
    refused = subprocess.run([program, "lock", "tiny"], cwd=project, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "the group 'tiny' cannot be locked" in refused.stderr
    assert (project / "locks" / "tiny.txt").read_bytes() == first
