"""What is recorded about steps and runs: status, info, log, lease, failures, the registry of runs."""
