"""From raw pages to tokens on a real Slurm, each stage in eight tasks: the same bytes as without a cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from marin_rules.software.environment import environments_folder
from support.corpus_slice import results_below, write_slice
from support.lab import Lab, Result


def run_both_ways(lab: Lab, run_on_slurm: Callable[..., Result], run_only: str) -> None:
    file = write_slice(lab)
    lab.environment["MARIN_ENVIRONMENTS"] = environments_folder()
    config = {"run_only": run_only}
    on_slurm = run_on_slurm(
        experiment=file, prefix=lab.folder / "slurm", env={"TASKS": "8"}, config=config, timeout=900
    )
    assert on_slurm.code == 0, on_slurm.output
    here = lab.start_snakemake(experiment=file, prefix=lab.folder / "here", env={"TASKS": "1"}, config=config).wait(400)
    assert here.code == 0, here.output
    expected, there = results_below(lab.folder / "here"), results_below(lab.folder / "slurm")
    assert there.keys() == expected.keys()
    assert [name for name in expected if there[name] != expected[name]] == []


def test_documents_in_eight_tasks(lab: Lab, run_on_slurm: Callable[..., Result]) -> None:
    run_both_ways(lab, run_on_slurm, "slice/documents")


@pytest.mark.faults
def test_a_whole_corpus_in_eight_tasks(lab: Lab, run_on_slurm: Callable[..., Result]) -> None:
    run_both_ways(lab, run_on_slurm, ".")
