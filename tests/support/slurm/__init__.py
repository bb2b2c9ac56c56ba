"""A real Slurm on this machine for tests: `cluster` has the cluster, `fixtures` the fixtures."""
