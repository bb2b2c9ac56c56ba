"""Where data lives: small control files, prefixes, regions, the mirror filesystem and its budgets.

This room knows paths and bytes. It never knows steps, plans or Snakemake.
"""
