"""Small objects on object stores, read whole and changed by compare-and-swap.

`store` is the contract, `gcs` and `s3` keep it with conditional writes, `advisory` comes as close to it as any other
fsspec filesystem allows, and `open` chooses. None of them starts a thread: a worker forks its steps.
"""
