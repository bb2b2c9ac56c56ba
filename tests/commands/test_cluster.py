"""`marin-rules cluster discover` and `check`: whichever cluster is here, or in the cluster's file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from marin_rules.checks import Check, Verdict
from marin_rules.clusters.protocol import Cluster, ClusterError, WantedMachines
from marin_rules.commands import cluster as command
from marin_rules.commands.main import main


def cluster(name: str, error: ClusterError | None = None) -> Cluster:
    def first_file() -> str:
        if error is not None:
            raise error
        return f"{name}:\n  machines: 3\n"

    def check(file: str | None, prefix: str, wanted: Sequence[WantedMachines]) -> Iterator[Check]:
        yield Check(f"door of {file}", Verdict.OK, name)
        yield from (Check(f"bed of {guest.step}", Verdict.OK, str(guest.request.cpu)) for guest in wanted)
        if error is not None:
            yield Check("key", Verdict.MISSING, "it is lost", "find key")
            yield Check("room", Verdict.UNKNOWN, f"{prefix} is dark")

    return Cluster(
        name,
        open_queue=lambda _: None,  # type: ignore[arg-type, return-value]
        open_site=lambda _: None,  # type: ignore[arg-type, return-value]
        first_file=first_file,
        is_here=lambda _: True,
        check=check,
    )


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[Cluster]:
    """The clusters that can be asked from this machine, for a test to fill."""
    clusters: list[Cluster] = []
    monkeypatch.setattr(command, "CLUSTER_NAMES", ("cloud", "grid"))
    monkeypatch.setattr(command, "clusters_here", lambda name: clusters)
    monkeypatch.setattr(command, "open_cluster", cluster)
    return clusters


def test_the_steps_of_an_experiment_are_looked_at(
    here: list[Cluster], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here.append(cluster("cloud"))
    experiment = tmp_path / "experiment.py"
    experiment.write_text(
        "from marin_rules import *\n"
        "def work(config): ...\n"
        "plain = ExecutorStep('plain', work, {})\n"
        "far = ExecutorStep('far', work, {'a': plain}, resources=ResourceConfig.with_cpu(cpu=3, ram='1g'))\n"
        "executor_main(steps=[far])\n"
    )
    assert main(["cluster", "check", str(experiment), "--prefix", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.splitlines() == ["ok           door of None: cloud", "ok           bed of far: 3"]


def test_the_only_cluster_that_is_here(here: list[Cluster], capsys: pytest.CaptureFixture[str]) -> None:
    here.append(cluster("cloud"))
    assert main(["cluster", "discover"]) == 0
    assert capsys.readouterr().out == "cloud:\n  machines: 3\n"


@pytest.mark.parametrize("names", [[], ["cloud", "grid"]])
def test_no_cluster_or_several(names: Sequence[str], here: list[Cluster], capsys: pytest.CaptureFixture[str]) -> None:
    here.extend(map(cluster, names))
    assert main(["cluster", "discover"]) == 1
    assert f"This machine can ask: {', '.join(names) or 'none'}. " in capsys.readouterr().err
    assert main(["cluster", "discover", "grid"]) == 0
    assert capsys.readouterr().out.startswith("grid:\n")


def test_a_cluster_that_does_not_answer(here: list[Cluster], capsys: pytest.CaptureFixture[str]) -> None:
    here.append(cluster("cloud", ClusterError("no answer for 30 s")))
    assert main(["cluster", "discover"]) == 1
    assert capsys.readouterr().err == "marin-rules: no answer for 30 s\n"


def test_a_kind_that_is_none(here: list[Cluster]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cluster", "discover", "moon"])
    assert ended.value.code == 2


def test_a_cluster_that_has_all_it_needs(
    here: list[Cluster], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MARIN_CLUSTER", raising=False)
    here.append(cluster("cloud"))
    assert main(["cluster", "check", "--prefix", "gs://bucket"]) == 0
    assert capsys.readouterr().out == "ok           door of None: cloud\n"


def test_what_is_missing_and_what_could_not_be_checked(
    here: list[Cluster], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MARIN_CLUSTER", raising=False)
    here.append(cluster("cloud", ClusterError("no answer")))
    assert main(["cluster", "check", "--prefix", "gs://bucket"]) == 1
    assert capsys.readouterr().out == (
        "ok           door of None: cloud\n"
        "missing      key: it is lost\n"
        "               find key\n"
        "not checked  room: gs://bucket is dark\n"
        "\n"
        "3 checks: 1 missing, 1 could not be made\n"
    )


@pytest.mark.parametrize("by_variable", [False, True])
def test_the_blocks_of_the_file_say_which_clusters_are_meant(
    here: list[Cluster], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    by_variable: bool,
) -> None:  # fmt: skip
    folder = tmp_path / "config" / "clusters"
    folder.mkdir(parents=True)
    (folder / "lab.yaml").write_text("grid: {partition: cpu}\ncloud: {project: lab}\n")
    (folder / "empty.yaml").write_text("data: {root: gs://bucket}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MARIN_CLUSTER", "lab" if by_variable else "empty")
    words = [] if by_variable else ["--cluster", "lab"]
    assert main(["cluster", "check", *words, "--prefix", "gs://bucket"]) == 0
    assert capsys.readouterr().out == "ok           door of lab: cloud\nok           door of lab: grid\n"
    assert main(["cluster", "check", "--cluster", "empty"]) == 1
    assert "has no block for a cluster: cloud, grid" in capsys.readouterr().err
