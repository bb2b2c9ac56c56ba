"""What a driver is sent to a machine without our files, and what cannot be sent."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from marin_rules.clusters.gcp.definition import job_definition
from marin_rules.clusters.gcp.site import GcpSite
from marin_rules.clusters.protocol import JobRequest, JobTag, RefusedError
from marin_rules.driver.sent_driver import SentDriver, check_no_files, pack, variables_of
from marin_rules.errors import SettingsError
from marin_rules.project import project_folder
from marin_rules.settings.job_settings import JobSettings
from marin_rules.software.code_archive import CodeArchive, package_files, plugin_files

SNAKEFILE = str(project_folder() / "Snakefile")
KEPT = "code/marin_rules/_workflow"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user works: with a cluster's file, a configuration and a profile of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SNAKEMAKE_PROFILE", raising=False)
    (tmp_path / "config" / "clusters").mkdir(parents=True)
    (tmp_path / "config" / "clusters" / "mine.yaml").write_text("jobs: {shared: false}\n")
    (tmp_path / "config" / "config.yaml").write_text("max_concurrent: 3\n")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.yaml").write_text("jobs: 7\n")
    return tmp_path


def files_in(sent: SentDriver) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(sent.archive.data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_all_that_the_driver_reads_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAKEMAKE_PROFILE", str(project_folder() / "profiles" / "gcp"))
    sent = pack(["--profile", "own", "-j", "3"], SNAKEFILE, {"mine"})
    start = ("snakemake", "--snakefile", f"{KEPT}/Snakefile", "--workflow-profile", f"{KEPT}/profiles/default")
    assert sent.words == (*start, "--profile", "code/own-profiles/0", "-j", "3")
    assert sent.profile == f"{KEPT}/profiles/gcp"
    files = files_in(sent)
    assert files["own-profiles/0/config.yaml"] == b"jobs: 7\n"
    assert files["marin_rules/_workflow/config/config.yaml"] == b"max_concurrent: 3\n"
    assert files["marin_rules/_workflow/config/clusters/mine.yaml"] == b"jobs: {shared: false}\n"
    named = [word for word in (*sent.words, sent.profile) if word.startswith("code/")]
    assert all(any(name.startswith(word.removeprefix("code/")) for name in files) for word in named)
    assert "marin_rules/driver/supervisor_elsewhere.py" in files


def test_plug_ins_are_found_wherever_they_are_installed() -> None:
    ours = {name: data for name, data in package_files().items() if name.startswith("marin_rules/engine/plugins/")}
    assert len(ours) >= 5
    assert plugin_files() == ours


def test_the_same_is_the_same_archive() -> None:
    assert pack(None, None, {"mine"}).archive == pack(None, None, {"mine"}).archive
    assert pack(None, None, {"mine"}).words == ()


@pytest.mark.parametrize(
    ("arguments", "snakefile", "said"),
    [
        (["--configfile", "x.yaml"], SNAKEFILE, "--configfile names files of this machine"),
        (["--configfiles=x.yaml"], SNAKEFILE, "--configfiles=x.yaml names files of this machine"),
        (["-d", "elsewhere"], SNAKEFILE, "-d names files of this machine"),
        ([], "/home/ann/Snakefile", "/home/ann/Snakefile: a driver reads it where it is"),
    ],
)
def test_what_cannot_be_sent_is_refused(arguments: list[str], snakefile: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        pack(arguments, snakefile, ())
    assert said in str(refused.value)
    assert "Submit with --here" in str(refused.value)


def test_hand_written_rules_are_refused() -> None:
    check_no_files([])
    with pytest.raises(SettingsError, match=r"x\.smk: a driver reads it where it is"):
        check_no_files(["x.smk"])


def variables(given: dict[str, str], of_steps: list[dict[str, str]]) -> dict[str, str]:
    return variables_of(SentDriver(CodeArchive(b""), (), None), JobSettings(shared=False), given, of_steps, "mine")


def test_a_driver_knows_for_whom_it_works_and_what_its_jobs_get(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    monkeypatch.setenv("MARIN_JOB_VARIABLES", "LAB")
    monkeypatch.setenv("LAB", "lab")
    found = variables({"MODE": "fast"}, [])
    assert found["MARIN_RULES_OWNER"] == "ann"
    assert found["MARIN_CLUSTER"] == "mine"
    assert (found["LAB"], found["MODE"], found["MARIN_JOB_VARIABLES"]) == ("lab", "fast", "LAB,MODE")
    assert "SNAKEMAKE_PROFILE" not in found
    assert "HOME" not in found


@pytest.mark.parametrize(("given", "of_steps"), [({"MY_TOKEN": "s"}, []), ({}, [{}, {"MY_TOKEN": "s"}])])
def test_secrets_reach_a_driver_only_by_the_secret_store(
    given: dict[str, str], of_steps: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    request = JobRequest(
        name="driver",
        tag=JobTag.of_driver("x"),
        script="exec true",
        variables=variables(given, of_steps),
        folder="/tmp",
        log="log",
        resources={},
    )
    site = GcpSite("mine", "project", ("us-central1",))
    with pytest.raises(RefusedError, match="the variable MY_TOKEN looks like a secret"):
        job_definition(request, site, "job", "ann")
    place = "projects/project/secrets/token/versions/1"
    stored = GcpSite("mine", "project", ("us-central1",), secrets={"MY_TOKEN": place})
    spec = job_definition(request, stored, "job", "ann")["taskGroups"][0]["taskSpec"]
    assert list(spec["environment"]["secretVariables"].values()) == [place]
    assert "s" not in spec["environment"]["variables"].values()
