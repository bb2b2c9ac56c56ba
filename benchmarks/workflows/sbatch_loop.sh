#!/usr/bin/env bash
# What Slurm itself takes: $1 jobs that do nothing, submitted one after the other, and looked at until all are over.
set -euo pipefail
for ((job = 0; job < $1; job++)); do
    sbatch --quiet --partition=cpu --mem=500 --time=10 --output=/dev/null --wrap="exec true"
done
while [[ -n $(squeue --noheader) ]]; do sleep 0.2; done
