"""Steps are told where their libraries keep what they can make again, unless somebody has said so already."""

import os
from pathlib import Path

import pytest

from marin_rules.settings.ownership import UntrustedError
from marin_rules.software.library_caches import set_library_caches
from marin_rules.software.manifest import Manifest, write_manifest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has no folders yet."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def environment(folder: Path, *packages: str) -> str:
    path = folder / "environments" / "train-12345678"
    path.mkdir(parents=True)
    versions = dict.fromkeys(packages, "1.0")
    write_manifest(str(path), Manifest((), "3.13.0", versions, uv="1", made="", seconds=0.0))
    return str(path)


def test_jax_and_hugging_face_get_private_folders_beside_the_environments(tmp_path: Path) -> None:
    variables: dict[str, str] = {}
    set_library_caches(variables, environment(tmp_path, "jax", "huggingface-hub"))
    caches = tmp_path / "environments" / f"caches-{os.getuid()}"
    compiled = Path(variables.pop("JAX_COMPILATION_CACHE_DIR"))
    assert compiled.parent == caches
    assert compiled.name.startswith("jax-")
    assert variables == {
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "HF_HOME": str(caches / "huggingface"),
    }
    assert {path.stat().st_mode & 0o777 for path in (caches, compiled, caches / "huggingface")} == {0o700}


def test_what_is_set_stays(tmp_path: Path) -> None:
    mine = {"JAX_COMPILATION_CACHE_DIR": "/mine", "HF_HOME": "/models"}
    variables = dict(mine)
    set_library_caches(variables, environment(tmp_path, "jax", "huggingface-hub"))
    assert variables == mine
    partly = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "5"}
    set_library_caches(partly, str(tmp_path / "environments" / "train-12345678"))
    assert partly["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] == "5"
    assert partly["JAX_COMPILATION_CACHE_DIR"].startswith(str(tmp_path))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_user_with_models_and_a_token_keeps_them(tmp_path: Path, home: Path, elsewhere: bool) -> None:
    caches = tmp_path / "elsewhere" if elsewhere else home / ".cache"
    (caches / "huggingface").mkdir(parents=True)
    variables = {"XDG_CACHE_HOME": str(caches)} if elsewhere else {}
    set_library_caches(variables, environment(tmp_path, "huggingface-hub"))
    assert "HF_HOME" not in variables


def test_an_environment_without_these_libraries_and_the_drivers_own_are_left_alone(tmp_path: Path) -> None:
    variables: dict[str, str] = {}
    set_library_caches(variables, environment(tmp_path, "numpy"))
    set_library_caches(variables, str(tmp_path))
    assert variables == {}
    assert [path.name for path in (tmp_path / "environments").iterdir()] == ["train-12345678"]


def test_compiled_code_is_not_taken_from_a_folder_that_others_can_write_to(tmp_path: Path) -> None:
    path = environment(tmp_path, "jax")
    (tmp_path / "environments" / f"caches-{os.getuid()}").mkdir()
    (tmp_path / "environments" / f"caches-{os.getuid()}").chmod(0o777)
    with pytest.raises(UntrustedError, match=f"caches-{os.getuid()} is not used"):
        set_library_caches({}, path)
