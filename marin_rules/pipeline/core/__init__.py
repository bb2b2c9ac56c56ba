"""The basis of the data stages: records and their schemas, shards, and the driver that maps shards to shards.

A stage is a generator of records. Which files there are, what was done before, parallel processes, rejects, counts and
the summary are handled by this package, in the same way for all stages.
"""
