"""A speedrun: two short trainings of similar cost, their scores on the same text, and a leaderboard.

    snakemake --config experiment=experiments/tutorials/speedrun.py prefix=out

Both runs come from the tutorial of scaling laws. The page is `index.html` of the last step; it opens from a disk.
"""

from experiments.defaults import default_eval, default_leaderboard, default_speedrun
from experiments.tutorials.addresses import addresses
from experiments.tutorials.scaling_law import trained
from marin_rules import executor_main

RUNS = {"small and long": (32, 800), "large and short": (64, 400)}

records = []
for name, (hidden, steps) in RUNS.items():
    training = trained(hidden, steps)
    scores = default_eval(training, held_out={"addresses": addresses / "held_out"}, offline=True)
    records.append(default_speedrun(name.replace(" ", "-"), training, scores, "addresses", description=name))

board = default_leaderboard("speedruns/leaderboard", records, title="Tiny speedruns")

if __name__ == "__main__":
    executor_main(steps=[board], description="A leaderboard of tiny models.")
