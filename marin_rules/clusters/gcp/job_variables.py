"""The variables by which a job on Google Cloud knows itself, in addition to those that Batch sets.

They are in the definition of the job, and on hosts of TPU slices in their startup script.
"""

JOB_VARIABLE = "MARIN_RULES_JOB_ID"
"""Names the job to its processes; on a host the slice."""

ARRAY_VARIABLE = "MARIN_RULES_JOB_ARRAY"
"""Set in the tasks of an array, whose elements have the numbers of its tasks unless the next one says otherwise."""

ELEMENT_VARIABLE = "MARIN_RULES_JOB_ELEMENT"
CPUS_VARIABLE = "MARIN_RULES_JOB_CPUS"
NODE_VARIABLE = "MARIN_RULES_JOB_NODE"
DEADLINE_VARIABLE = "MARIN_RULES_JOB_DEADLINE"
"""When Batch will end the task, in seconds since 1970."""

MACHINES_VARIABLE = "MARIN_RULES_JOB_MACHINES"
"""How many machines the job has for one step, where they are several."""

MEETING_VARIABLE = "MARIN_RULES_JOB_MEETING"
"""The folder in the bucket where the machines of a step leave messages for each other."""

HOST_VARIABLE = "MARIN_RULES_JOB_HOST"
"""The rank that this machine is for; without it, that is known from elsewhere."""

SLICES_VARIABLE = "MARIN_RULES_JOB_SLICES"
"""Which TPU slices the worker of the step should get, as JSON; see `slice_order`."""

SLICE_VARIABLE = "MARIN_RULES_JOB_SLICE"
"""On a host of a TPU slice: which slice that is, as JSON; see `slice_host`."""

SCRIPT_VARIABLE = "MARIN_RULES_JOB_SCRIPT"
"""What machines of the job run, for those that its worker has yet to make."""
