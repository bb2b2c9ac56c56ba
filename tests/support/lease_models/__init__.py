"""Models of leases under faults: stores in memory, clocks that stand still, every order of calls, and an oracle.

Shared by the tests of `storage/leases`. The leases in here are the real ones; only what they stand on is a model.
"""
