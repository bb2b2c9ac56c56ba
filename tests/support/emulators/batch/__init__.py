"""Google Batch on loopback, with its logs: real clients talk to it over gRPC, and its tasks are processes here."""
