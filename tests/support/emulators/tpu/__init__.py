"""Cloud TPU on loopback: real clients ask it for queued resources over gRPC, and the hosts are processes here.

States and fields are those of Google's documentation. Guessed, since no real project was asked: that a node which has
lost a host is REPAIRING, how a stock-out and an exhausted quota are worded, and the form of `worker-network-endpoints`
and `tpu-env`.
"""
