"""Cloud TPU on loopback: real clients ask it for queued resources over gRPC, and the hosts are processes here.

States and fields are those of Google's documentation, down to the number in place of the project's id where a node
names its queued resource. Guessed, since no real project was asked: that a node which has lost a host is REPAIRING, how
a stock-out and an exhausted quota are worded, and what `worker-network-endpoints` and `tpu-env` hold. The latter has
the form that others have published, with a NODE_ID; jax reads MEGASCALE_* of several slices from it. That NODE_ID is
the node's name is a guess, and so is the port of the coordinator.
"""
