"""Slurm through slurm-drmaa, as one of the clusters that `clusters.open` finds."""

from __future__ import annotations

from dataclasses import replace

from marin_rules.clusters.slurm.cluster import CLUSTER as SLURM
from marin_rules.clusters.slurm.drmaa_queue import DrmaaQueue

# Its jobs cannot be listed: if Slurm's own commands are on the machine, they are used.
CLUSTER = replace(SLURM, open_queue=lambda name: DrmaaQueue(), is_here=lambda name: False)
