"""Config and cluster files: where they are, their schemas, and errors that name the file and the key."""
