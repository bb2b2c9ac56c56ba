"""The name of an environment follows from what is in it and for whom, and from nothing else."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from marin_rules.errors import SettingsError
from marin_rules.software.environment import Environment, environments_folder

ENVIRONMENT = Environment(
    requirements=("jax>=0.11", "six"),
    python="3.12",
    implementation="cpython",
    platform="linux-x86_64",
    groups=("train", "Google_Cloud.Logging>=3"),
)


def test_the_digest_is_pinned() -> None:
    assert ENVIRONMENT.digest == "1cc521e6ff2c2a3a2e48ff441c4893b86d7681e053e4a6fdd1d63383bdd64669"
    assert ENVIRONMENT.name == "train-google-cloud-logging-1cc521e6"


def test_the_digest_covers_all_but_the_groups() -> None:
    others = [
        replace(ENVIRONMENT, requirements=("jax>=0.11",)),
        replace(ENVIRONMENT, python="3.13"),
        replace(ENVIRONMENT, implementation="pypy"),
        replace(ENVIRONMENT, platform="linux-aarch64"),
    ]
    assert len({ENVIRONMENT.digest, *(other.digest for other in others)}) == 5
    assert replace(ENVIRONMENT, groups=()).digest == ENVIRONMENT.digest


@pytest.mark.parametrize(
    ("groups", "label"),
    [
        ((), "python"),
        (("x @ https://files.example/x.whl",), "x"),
        (("jax[cuda12]>=0.11",), "jax"),
        (("-", "six"), "six"),
        (("a" * 30, "b" * 30, "c"), "a" * 30),
        (("a" * 300,), "python"),
    ],
)
def test_names_are_readable_and_short(groups: tuple[str, ...], label: str) -> None:
    environment = replace(ENVIRONMENT, groups=groups)
    assert environment.name == f"{label}-{environment.digest[:8]}"


def test_order_and_repetition_of_requirements_do_not_count() -> None:
    assert Environment.here(["b", "a", "b"]) == Environment.here(["a", "b"])


def test_an_environment_travels_as_json() -> None:
    environment = Environment.of_groups(["six"], "/", prefix="s3://bucket")
    assert "s3fs>=2025.3" in environment.requirements
    assert environment.groups == ("six",)
    assert Environment.from_fields(json.loads(json.dumps(environment.to_fields()))) == environment


def test_the_folder_is_the_variables_else_the_clusters_else_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("MARIN_ENVIRONMENTS", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert environments_folder() == f"{tmp_path}/.cache/marin-rules/environments"
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert environments_folder() == "/cache/marin-rules/environments"
    assert environments_folder("/shared/environments/") == "/shared/environments"
    monkeypatch.setenv("MARIN_ENVIRONMENTS", "~/mine")
    assert environments_folder("/shared/environments") == f"{tmp_path}/mine"


def test_an_object_store_cannot_hold_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARIN_ENVIRONMENTS", raising=False)
    with pytest.raises(SettingsError, match="the cluster file keeps environments in gs://bucket/x"):
        environments_folder("gs://bucket/x")
    monkeypatch.setenv("MARIN_ENVIRONMENTS", "s3://bucket/x")
    with pytest.raises(SettingsError, match="MARIN_ENVIRONMENTS keeps environments in s3://bucket/x"):
        environments_folder()
