"""Google Cloud Storage's JSON API on loopback, as gcsfs and google-cloud-storage use it."""
