"""Google Cloud: where a cluster's jobs go, how Google Batch gets them, and what became of them.

Not yet one of the clusters of `clusters.open`.
"""
