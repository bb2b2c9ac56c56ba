"""What `mixture.json` says of each component, against the sequences that Levanter's loader reads."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from marin_rules.pipeline.mixture import contributions, lm_varying_mixture_data_config

pytestmark = pytest.mark.processes

BATCH = 16
CASES = {
    "rounded": (16, 40, [(0, {"web": 0.8, "books": 0.2})]),
    "rare": (2048, 256, [(0, {"web": 10, "wiki": 0.012, "code": 2.5, "math": 0.007})]),
    "a last digit": (100, 25, [(0, {"web": 0.71, "books": 0.29})]),
    "stages": (64, 40, [(0, {"web": 1.0}), (12, {"web": 0.3, "books": 0.7}), (36, {"books": 5, "code": 0.2})]),
}
"""Blocks, steps and weights."""

SCRIPT = """
import asyncio, json, sys
from levanter.data.dataset import ListAsyncDataset
from levanter.data.mixture import MixtureDataset

batch, cases = json.loads(sys.argv[1])
found = {}
for case, (block, steps, stages) in cases.items():
    names = dict.fromkeys(name for _, weights in stages for name in weights)
    datasets = {name: ListAsyncDataset([name] * 7) for name in names}
    loader = MixtureDataset(datasets, [(start * batch, weights) for start, weights in stages], block, key=0)
    read = asyncio.run(loader.get_batch(list(range(batch * steps))))
    found[case] = {name: read.count(name) for name in names}
print(json.dumps(found))
"""


def test_shares_are_those_that_levanter_reads(training_python: Path) -> None:
    command = [training_python, "-c", SCRIPT, json.dumps([BATCH, CASES])]
    run = subprocess.run(command, env={"PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-4000:]
    for case, read in json.loads(run.stdout.splitlines()[-1]).items():
        block, steps, stages = CASES[case]
        mixture = lm_varying_mixture_data_config(
            {name: f"tokens/{name}" for name in read},
            stages,
            train_tokens=BATCH * steps,
            train_steps=steps,
            block_size=block,
        )
        said = contributions(mixture, dict.fromkeys(read, 1000))
        assert {name: one["tokens"] for name, one in said.items()} == read, case
