"""What is installed where a step runs: from the groups that a step names to a Python environment of its own.

`requirements` turns groups into requirements, `environment` names what to build from them, `build` finds or builds it,
`package` lets it find marin_rules. Nothing here knows Snakemake, or what a step is.
"""
