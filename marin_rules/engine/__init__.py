"""The engine: turns a frozen plan into Snakemake rules and runs them. The only room that knows Snakemake."""
