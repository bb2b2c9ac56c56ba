"""Slurm through slurm-drmaa, as one of the clusters that `clusters.open` finds."""

from __future__ import annotations

from dataclasses import replace

from marin_rules.clusters.slurm.cluster import CLUSTER as SLURM
from marin_rules.clusters.slurm.drmaa_queue import DrmaaQueue

# Nobody can list its jobs: where Slurm's own commands are on the machine, they are asked.
CLUSTER = replace(SLURM, open_queue=lambda name: DrmaaQueue(), is_here=lambda name: False)
