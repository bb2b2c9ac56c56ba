"""Cloud TPU on loopback: real clients ask it for queued resources over gRPC, and the hosts are processes here."""
