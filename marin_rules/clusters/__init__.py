"""Clusters: what machines there are, how jobs are queued, and how they ended. Knows no steps."""
