"""Slurm: where a cluster's jobs go, how they are submitted, and how they ended. Knows nothing about Snakemake."""
