"""End-to-end faults: processes that are killed or stopped, stores that fail, files that are damaged.

`nursery` runs real workers that die or stop at a boundary of their I/O, `dags` are experiments for whole runs, `places`
are the stores beneath. What is right is computed here and read from the emulators' histories, never asked of the
project.
"""
