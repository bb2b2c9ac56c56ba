"""One step: its lease, its process or ranks, its log."""
