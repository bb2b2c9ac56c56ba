"""Active steps, on this machine and on clusters: finding them, following their logs, stopping them.

Knows no Snakemake, and no cluster by name: a run is found by the file that its driver keeps, by the leases of its steps
and by the queues of all clusters that can be asked from here.
"""
