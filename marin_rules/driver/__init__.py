"""The driver: `executor_main`, `Executor`, and the life of a run."""
