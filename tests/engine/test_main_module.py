"""Functions and classes of the experiment file in the processes that a step starts, by fork, spawn or forkserver."""

import json
import tempfile

import pytest

from support.lab import Lab

POOLS = """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from dataclasses import dataclass
    from marin_rules import ExecutorStep, executor_main

    OFFSET = 1000

    @dataclass(frozen=True)
    class Item:
        number: int

    def work(item):
        return Item(item.number * item.number + OFFSET)

    def pool(config):
        context = multiprocessing.get_context(config["method"])
        with context.Pool(2) as pool:
            first = pool.map(work, [Item(1), Item(2)])
        with ProcessPoolExecutor(1, mp_context=context) as executor:
            second = list(executor.map(work, [Item(3)]))
        return [item.number for item in first + second]

    steps = [
        ExecutorStep(name=method, fn=pool, config={"method": method}) for method in ("fork", "spawn", "forkserver")
    ]

"""
GUARDED = '    if __name__ == "__main__":\n        executor_main(steps=steps)\n'
UNGUARDED = "    executor_main(steps=steps)\n"


@pytest.mark.parametrize(("door", "ending"), [("snakemake", UNGUARDED), ("python", GUARDED)])
def test_pools_find_all(door: str, ending: str, lab: Lab) -> None:
    path = lab.experiment(POOLS + ending)
    with tempfile.TemporaryDirectory() as short:  # The forkserver's socket is there, and its path must not be long.
        env = {"TMPDIR": short}
        result = (
            lab.snakemake(experiment=path, env=env)
            if door == "snakemake"
            else lab.python(path, "--prefix", lab.prefix, env=env)
        )
    assert result.code == 0, result.output
    assert "left processes running" not in result.output  # Those of multiprocessing itself end with the step.
    for method in ("fork", "spawn", "forkserver"):
        assert json.loads((lab.folder_of(method) / ".artifact.json").read_text()) == [1001, 1004, 1009]
