"""S3 on loopback: moto's answers, made atomic, with the conditions that moto lacks."""
