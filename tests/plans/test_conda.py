"""Whether a process is in the conda environment of its step, and what is in that."""

import sys
from pathlib import Path

import pytest

from marin_rules.errors import MarinRulesError
from marin_rules.plans.conda import (
    CondaEnvironment,
    active_prefix,
    conda_packages,
    describe_environment,
    pip_packages,
    search_path,
)


@pytest.mark.parametrize(
    ("path", "active", "runs_python", "said"),
    [
        (sys.prefix, sys.prefix, True, None),
        (sys.prefix, sys.prefix + "/.", True, None),
        ("/envs/a", "/envs/a", False, None),
        ("", sys.prefix, True, None),
        ("", "/envs/a", False, None),
        ("/envs/a", "/envs/b", False, "but the active one is /envs/b"),
        ("/envs/a", None, False, "but the active one is none"),
        ("", None, False, "the conda environment own.yaml, but the active one is none"),
        ("/envs/a", "/envs/a", True, f"the conda environment /envs/a, but its Python is {sys.executable}"),
        ("", "/envs/a", True, f"the conda environment /envs/a, but its Python is {sys.executable}"),
    ],
)
def test_only_the_environment_of_the_step_will_do(
    monkeypatch: pytest.MonkeyPatch, path: str, active: str | None, runs_python: bool, said: str | None
) -> None:
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    if active is not None:
        monkeypatch.setenv("CONDA_PREFIX", active)
    environment = CondaEnvironment(path, "own.yaml")
    if said is None:
        assert active_prefix(environment, runs_python=runs_python) == (path or active)
        return
    with pytest.raises(MarinRulesError) as error:
        active_prefix(environment, runs_python=runs_python)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/venv/bin:/envs/a/bin:/usr/bin", "/envs/a/bin:/venv/bin:/usr/bin"),
        ("/usr/bin", "/envs/a/bin:/usr/bin"),
        ("/envs/a/bin:/usr/bin", "/envs/a/bin:/usr/bin"),
    ],
)
def test_the_programs_of_the_environment_come_first(monkeypatch: pytest.MonkeyPatch, before: str, after: str) -> None:
    monkeypatch.setenv("PATH", before)
    assert search_path("/envs/a") == after


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """An environment as conda and pip leave it, in a folder whose name means something to a pattern."""
    prefix = tmp_path / "env[1]"
    for name in ("python-3.13.1-h0_0_cpython.json", "msgpack-python-1.1.0-py313_0.json", "pyyaml-6.0-py_0.json"):
        (prefix / "conda-meta").mkdir(parents=True, exist_ok=True)
        (prefix / "conda-meta" / name).write_text("{}")
    (prefix / "conda-meta" / "history").touch()
    for name, installer in (
        ("PyYAML-6.0", "conda"),
        ("msgpack-1.1.0", "conda\n"),
        ("Some_Thing-2.0.post1", "pip\n"),
        ("other-1", None),
    ):
        folder = prefix / "lib" / "python3.13" / "site-packages" / f"{name}.dist-info"
        folder.mkdir(parents=True)
        if installer is not None:
            (folder / "INSTALLER").write_text(installer)
    return prefix


def test_what_is_installed_is_read_from_the_environment_itself(prefix: Path) -> None:
    packages = conda_packages(str(prefix))
    assert packages == {"msgpack-python": "1.1.0 py313_0", "python": "3.13.1 h0_0_cpython", "pyyaml": "6.0 py_0"}
    assert pip_packages(str(prefix), packages) == {"some-thing": "2.0.post1", "other": "1"}
    described = describe_environment(CondaEnvironment("", "own.yaml"), str(prefix))
    assert list(described) == ["path", "conda_file", "packages", "pip_packages"]


def test_a_folder_that_is_no_environment_has_no_packages(tmp_path: Path) -> None:
    assert describe_environment(CondaEnvironment("", ""), str(tmp_path)) == {
        "path": str(tmp_path),
        "conda_file": "",
        "packages": {},
    }
