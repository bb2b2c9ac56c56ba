"""What the data stages stand on: records and their schemas, shards, and the driver that maps shards to shards.

A stage is a generator of records. Which files there are, what was done before, parallel processes, rejects, counts and
the summary are the business of this package, the same for all stages.
"""
