"""The `jobs:` block of a cluster's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from marin_rules.errors import SettingsError
from marin_rules.settings.job_settings import JobSettings, read_job_settings


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the file of the cluster `site` is written."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "config" / "clusters"
    folder.mkdir(parents=True)
    return folder / "site.yaml"


def test_nodes_share_the_drivers_files_unless_the_file_says_otherwise(write: Path) -> None:
    write.write_text("slurm: {partition: cpu}\n")
    assert read_job_settings("site") == read_job_settings(None) == JobSettings(shared=True, scratch="/tmp")


def test_all_keys(write: Path) -> None:
    write.write_text("jobs: {shared: false, python: /opt/bin/python, scratch: /local, variables: [A, 'B_*']}\n")
    assert read_job_settings("site") == JobSettings(False, "/opt/bin/python", "/local", ("A", "B_*"))


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("{shared: 'no'}", "jobs.shared is 'no'"),
        ("{shared: false, python: python3}", "jobs.python is 'python3'; write a path from the root"),
        ("{python: /usr/bin/python3}", "jobs.shared is not false"),
        ("{scratch: local}", "jobs.scratch is 'local'"),
        ("{variables: TOKEN}", "jobs.variables is 'TOKEN'"),
        ("{variables: [TOKEN=secret]}", "a name without its value"),
        ("{shard: false}", "Did you mean 'shared'?"),
    ],
)
def test_a_wrong_block_is_refused_by_file_and_key(write: Path, block: str, words: str) -> None:
    write.write_text(f"jobs: {block}\n")
    with pytest.raises(SettingsError) as refusal:
        read_job_settings("site")
    assert str(write) in str(refusal.value)
    assert words in str(refusal.value)
