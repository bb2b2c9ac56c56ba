"""Google Batch on loopback, with its logs: real clients talk to it over gRPC, and its tasks are processes here.

States, exit codes, texts of events, limits and refusals are those of Google's documentation. Guessed, since no page was
found that says it and no real project was asked:

- When a task has failed, the others of its job go on.
- A job that has ended cannot be cancelled (FAILED_PRECONDITION).
- A list in `locations/-` names the regions that do not answer in `unreachable`, and goes on without them.
- `x-goog-fieldmask` is heeded, as Google's pages say of its services in general.
- The labels of a job stand on the entries of its log under their own names.
"""
