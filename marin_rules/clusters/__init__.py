"""Clusters: what machines there are, how jobs are queued there, and what became of them. Knows no steps."""
