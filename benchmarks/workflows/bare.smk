# Snakemake's own start-up: one rule, and nothing to do.
rule all:
