"""`marin-rules cluster discover`: whichever cluster is here."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from marin_rules.clusters.protocol import Cluster, ClusterError
from marin_rules.commands import cluster as command
from marin_rules.commands.main import main


def cluster(name: str, error: ClusterError | None = None) -> Cluster:
    def first_file() -> str:
        if error is not None:
            raise error
        return f"{name}:\n  machines: 3\n"

    return Cluster(
        name,
        open_queue=lambda: None,  # type: ignore[arg-type, return-value]
        open_site=lambda _: None,  # type: ignore[arg-type, return-value]
        first_file=first_file,
        is_here=lambda: True,
        resource_names=(),
    )


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[Cluster]:
    """The clusters that can be asked from this machine, for a test to fill."""
    clusters: list[Cluster] = []
    monkeypatch.setattr(command, "CLUSTER_NAMES", ("cloud", "grid"))
    monkeypatch.setattr(command, "clusters_here", lambda: clusters)
    monkeypatch.setattr(command, "open_cluster", cluster)
    return clusters


def test_the_only_cluster_that_is_here(here: list[Cluster], capsys: pytest.CaptureFixture[str]) -> None:
    here.append(cluster("cloud"))
    assert main(["cluster", "discover"]) == 0
    assert capsys.readouterr().out == "cloud:\n  machines: 3\n"


@pytest.mark.parametrize("names", [[], ["cloud", "grid"]])
def test_no_cluster_or_several(names: Sequence[str], here: list[Cluster], capsys: pytest.CaptureFixture[str]) -> None:
    here.extend(map(cluster, names))
    assert main(["cluster", "discover"]) == 1
    assert f"can be asked: {', '.join(names) or 'none'}. " in capsys.readouterr().err
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
