"""Google Cloud: jobs of Google Batch, and TPU slices that the workers of steps create."""
