"""The basis of evaluation, comparison, scaling laws and speedruns: models, sets, tasks, statistics.

Files, statistics and fits need numpy alone, or scipy; only `loaded_model.py` knows JAX and Levanter, and only
`harness.py` and `task_files.py` know lm-eval.
"""
