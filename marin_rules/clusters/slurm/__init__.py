"""Slurm: where a cluster's jobs go, how they are submitted, and what became of them. Knows nothing of Snakemake."""
