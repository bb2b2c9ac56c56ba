"""The graphs that are measured, and the folder in which an experiment and plain Snakemake both find one."""

from __future__ import annotations

import json
import random
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from benchmarks import ROOT

_WORKFLOWS = ROOT / "benchmarks" / "workflows"
_PROFILE = ROOT / "profiles" / "default"


@dataclass(frozen=True)
class Dag:
    """Steps by their numbers."""

    sources: list[list[int]]
    """For each step the earlier steps it depends on."""

    versions: list[int]
    """For each step the one value in its config that counts."""


def random_dag(size: int, seed: int = 0) -> Dag:
    """Each step but the first depends on one to three earlier ones, any of them."""
    rng = random.Random(seed)
    return _dag([rng.sample(range(step), min(step, rng.randint(1, 3))) for step in range(size)])


def layers(count: int, width: int, *, same_config: bool) -> Dag:
    """Each step depends on all of the layer below; with `same_config` only names tell steps apart."""
    below = [list(range(width * (layer - 1), width * layer)) if layer else [] for layer in range(count)]
    dag = _dag([below[step // width] for step in range(count * width)])
    return Dag(dag.sources, [0] * len(dag.sources)) if same_config else dag


def chain(size: int) -> Dag:
    return _dag([[step - 1] if step else [] for step in range(size)])


def _dag(sources: list[list[int]]) -> Dag:
    return Dag(sources, versions=list(range(len(sources))))


class Workspace:
    """A folder with one graph, and the commands that take it through each side of a comparison."""

    def __init__(self, folder: Path, dag: Dag) -> None:
        self.folder = folder
        shutil.copytree(_WORKFLOWS, folder)
        (folder / "dag.json").write_text(json.dumps(asdict(dag)))
        # The peers run with our options, so that none of these is what is measured, but not with our console.
        options = yaml.safe_load((_PROFILE / "config.yaml").read_text())
        options.pop("logger", None)
        self._peer_profile = folder / "peer"
        self._peer_profile.mkdir()
        (self._peer_profile / "config.yaml").write_text(yaml.safe_dump(options))

    @property
    def prefix(self) -> Path:
        return self.folder / "marin"

    def ours(self, *options: str, prefix: str | None = None) -> list[str]:
        """`snakemake` with the project's Snakefile and this experiment."""
        config = ["--config", "experiment=experiment.py", f"prefix={prefix or self.prefix}"]
        return _snakemake(ROOT / "Snakefile", _PROFILE, *options, *config)

    def plain(self, *options: str) -> list[str]:
        """`snakemake` with the same graph and no code of ours."""
        return _snakemake(self.folder / "plain.smk", self._peer_profile, *options)

    def bare(self, *options: str) -> list[str]:
        """`snakemake` with nothing to do."""
        return _snakemake(self.folder / "bare.smk", self._peer_profile, *options)


def _snakemake(snakefile: Path, profile: Path, *options: str) -> list[str]:
    workflow = ["--snakefile", str(snakefile), "--workflow-profile", str(profile)]
    return [sys.executable, "-m", "snakemake", *workflow, *options]
