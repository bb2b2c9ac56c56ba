"""Running steps: the state of a step on disk, the lease on it, and the worker that runs it.

This room knows one step at a time. It never plans, and it never knows Snakemake.
"""
