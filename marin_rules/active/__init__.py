"""Steps that are under way, on this machine and on Slurm: finding them, following their logs, ending them.

Knows no Snakemake: a run is found by the file that its driver keeps, by the leases of its steps and by Slurm's queue.
"""
