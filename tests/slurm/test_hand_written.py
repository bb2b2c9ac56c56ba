"""Rules that a person wrote, and conda environments, on Slurm: there Snakemake itself runs inside the job."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runs.fixtures import REPOSITORY, Result
from slurm.cluster import SlurmCluster

MIXED = REPOSITORY / "experiments" / "tutorials" / "mixed.py"


def test_a_shell_rule_runs_on_a_node(
    run_on_slurm: Callable[..., Result],
    slurm: SlurmCluster,
    status_of: Callable[[str], str | None],
    info_of: Callable[[str], dict[str, Any]],
    folder_of: Callable[[str], Path],
) -> None:
    result = run_on_slurm("--default-resources", "mem_mb=1000", experiment=MIXED)
    print(result.output)
    print(slurm.jobs())
    print(slurm.calls("sbatch"))
    for name in ("text", "counts", "top"):
        print(json.dumps(info_of(f"mixed/{name}")["run"]))
    assert result.code == 0, result.output
