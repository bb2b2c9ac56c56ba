"""The variables by which a job on Google Batch knows itself, beside those that Batch sets."""

JOB_VARIABLE = "MARIN_RULES_BATCH_JOB"
"""Names the job to its processes."""

ARRAY_VARIABLE = "MARIN_RULES_BATCH_ARRAY"
"""Set in the tasks of an array, whose elements have the numbers of its tasks unless the next one says otherwise."""

ELEMENT_VARIABLE = "MARIN_RULES_BATCH_ELEMENT"
CPUS_VARIABLE = "MARIN_RULES_BATCH_CPUS"
NODE_VARIABLE = "MARIN_RULES_BATCH_NODE"
DEADLINE_VARIABLE = "MARIN_RULES_BATCH_DEADLINE"
"""When Batch will end the task, in seconds since 1970."""
