"""Leases: the right to change one place, held by one process at a time, on any store.

`lease` has the rules, `store` the contract of what keeps a lease, `local` and `beside_objects` keep it, `open` chooses.
"""
