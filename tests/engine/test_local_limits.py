"""What steps ask of this machine is shared out among those that run here: GPUs, memory, cores, and slots."""

import json
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from marin_rules.clusters.this_machine import memory_mb
from support.lab import Lab

EXPERIMENT = """
    import json
    import os
    import time
    from marin_rules import ExecutorStep, ResourceConfig, executor_main, remote, versioned

    def work(config):
        # Company has the chance to come while this works: nobody has to hurry to be seen at the same time.
        began = time.monotonic()
        os.makedirs("came", exist_ok=True)
        open(os.path.join("came", config["name"]), "w").close()
        while time.monotonic() < began + config["patience"] and not all(map(os.path.exists, config["awaits"])):
            time.sleep(0.01)
        return {"began": began, "ended": time.monotonic(), "gpus": os.environ["CUDA_VISIBLE_DEVICES"]}

    def step(name, gpus=None, awaits=(), patience=30.0, **amounts):
        config = {"name": versioned(name), "awaits": [f"came/{other}" for other in awaits], "patience": patience}
        if gpus is not None:
            fn = remote(work, resources=ResourceConfig.with_gpu("A100", count=gpus, **amounts))
        elif amounts:
            fn = remote(work, resources=ResourceConfig.with_cpu(**amounts))
        else:
            fn = work
        return ExecutorStep(name=name, fn=fn, config=config)

    if __name__ == "__main__":
        executor_main(steps=[step(**options) for options in json.loads(os.environ["STEPS"])])
"""

ALONE = {"awaits": ["nobody"], "patience": 0.5}
"""For a step that must have no company: it works for so long that any other that may start does so."""


class Work(NamedTuple):
    """What a step tells of its work."""

    began: float
    ended: float
    gpus: str

    def overlaps(self, other: "Work") -> bool:
        return self.began < other.ended and other.began < self.ended


@pytest.fixture
def gpus() -> list[str]:
    """Two GPUs that nobody else on this machine has heard of."""
    return [f"GPU-{secrets.token_hex(8)}" for _ in range(2)]


@pytest.fixture
def variables(gpus: list[str]) -> Callable[..., dict[str, str]]:
    """`variables({"name": "a"}, ...)`: the environment of a run of these steps."""

    def make(*steps: dict[str, Any], gpus: list[str] = gpus) -> dict[str, str]:
        return {"STEPS": json.dumps(steps), "CUDA_VISIBLE_DEVICES": ",".join(gpus)}

    return make


@pytest.fixture
def work_of(lab: Lab) -> Callable[..., list[Work]]:
    """`work_of("a", "b")`: what these steps tell of their work."""

    def read(*names: str) -> list[Work]:
        return [Work(**json.loads((lab.folder_of(name) / ".artifact.json").read_text())) for name in names]

    return read


def test_steps_that_run_at_the_same_time_get_different_gpus(
    lab: Lab, variables: Callable[..., dict[str, str]], gpus: list[str], work_of: Callable[..., list[Work]]
) -> None:
    steps = [
        {"name": "left", "gpus": 1, "awaits": ["right"]},
        {"name": "right", "gpus": 1, "awaits": ["left"]},
        {"name": "greedy", "gpus": 8, **ALONE},
        {"name": "plain"},
    ]
    result = lab.snakemake("--cores", "4", experiment=lab.experiment(EXPERIMENT), env=variables(*steps))
    assert result.code == 0, result.output
    left, right, greedy, plain = work_of("left", "right", "greedy", "plain")
    assert left.overlaps(right)
    assert sorted([left.gpus, right.gpus]) == sorted(gpus)
    assert not greedy.overlaps(left)
    assert not greedy.overlaps(right)
    assert greedy.gpus == ",".join(gpus), "it asks for eight and gets what there is"
    assert plain.gpus == ",".join(gpus), "it asks for none, and what the user has set stays as it is"
    assert lab.info_of("left")["run"]["gpus"] == [left.gpus]
    assert lab.info_of("greedy")["run"]["gpus"] == gpus
    assert "gpus" not in lab.info_of("plain")["run"]
    assert "waiting" not in result.output, "Snakemake starts no step that would have to wait for its GPUs"


def test_a_second_run_waits_for_the_gpus_of_the_first_and_holds_nothing_meanwhile(
    lab: Lab,
    variables: Callable[..., dict[str, str]],
    gpus: list[str],
    tmp_path: Path,
    work_of: Callable[..., list[Work]],
) -> None:
    file = lab.experiment(EXPERIMENT)
    first_step, second_step = {"name": "first", "gpus": 2, "awaits": ["go"]}, {"name": "second", "gpus": 1}
    first = lab.start_snakemake(experiment=file, env=variables(first_step))
    first.wait_for((tmp_path / "came" / "first").exists, "the first step works")
    second = lab.start_snakemake(experiment=file, env=variables(second_step))
    waiting = re.compile(r"^\[second\] waiting: needs 1 of (.*)$", re.MULTILINE)
    said = second.wait_for(lambda: waiting.search(second.output), "the second step waits")
    assert said[1].startswith(f"{gpus[0]}, {gpus[1]}, but {gpus[0]} is held by first (pid ")
    assert list(lab.prefix.glob("second-*")) == []

    (tmp_path / "came" / "go").touch()
    for result in (first.wait(), second.wait()):
        assert result.code == 0, result.output
    one, other = work_of("first", "second")
    assert not one.overlaps(other)
    assert other.gpus == gpus[0]


def test_a_run_inside_a_step_uses_the_gpu_of_that_step(
    lab: Lab, variables: Callable[..., dict[str, str]], gpus: list[str]
) -> None:
    file = lab.experiment(
        """
        import os
        from marin_rules import ExecutorStep, ResourceConfig, executor_main, materialize, remote

        gpu = ResourceConfig.with_gpu("A100")

        def look(config):
            return os.environ["CUDA_VISIBLE_DEVICES"]

        def run_another(config):
            materialize([ExecutorStep("inner", remote(look, resources=gpu), {})], prefix=config["prefix"])
            return look(config)

        outer = ExecutorStep("outer", remote(run_another, resources=gpu), {"prefix": os.environ["PREFIX"]})

        if __name__ == "__main__":
            executor_main(steps=[outer])
        """
    )
    result = lab.snakemake(experiment=file, env={**variables(gpus=gpus[:1]), "PREFIX": str(lab.prefix)})
    assert result.code == 0, result.output
    for name in ("inner", "outer"):
        assert json.loads((lab.folder_of(name) / ".artifact.json").read_text()) == gpus[0]


@pytest.mark.parametrize("cores", ["--cores", "-j"])
def test_memory_and_cores_are_shared_out(
    cores: str, lab: Lab, variables: Callable[..., dict[str, str]], work_of: Callable[..., list[Work]]
) -> None:
    steps = [
        {"name": "large", "ram": "600m", **ALONE},
        {"name": "larger", "ram": "700m", **ALONE},
        {"name": "small", "ram": "100m", "awaits": ["smaller"]},
        {"name": "smaller", "ram": "90m", "awaits": ["small"]},
        {"name": "broad", "ram": "100m", "cpu": 4, **ALONE},
    ]
    limits = [cores, "4", "--resources", "mem_mb=1000"]
    result = lab.snakemake(*limits, experiment=lab.experiment(EXPERIMENT), env=variables(*steps))
    assert result.code == 0, result.output
    large, larger, small, smaller, broad = work_of("large", "larger", "small", "smaller", "broad")
    assert small.overlaps(smaller), "there is room for both"
    assert not large.overlaps(larger)
    assert not any(broad.overlaps(other) for other in (large, larger, small, smaller))


def test_where_nobody_sets_a_limit_it_is_what_this_machine_has(
    lab: Lab, variables: Callable[..., dict[str, str]], work_of: Callable[..., list[Work]]
) -> None:
    most = f"{memory_mb() * 6 // 10}m"
    steps = [
        {"name": "large", "ram": most, **ALONE},
        {"name": "as_large", "ram": most, **ALONE},
        {"name": "broad", "ram": "100m", "cpu": 1000, **ALONE},
        {"name": "hopeful", "ram": "100m", "gpus": 8},
    ]
    result = lab.snakemake(experiment=lab.experiment(EXPERIMENT), env=variables(*steps, gpus=[]))
    assert result.code == 0, result.output
    large, as_large, broad, hopeful = work_of("large", "as_large", "broad", "hopeful")
    assert not large.overlaps(as_large)
    assert not any(broad.overlaps(other) for other in (large, as_large, hopeful))
    assert hopeful.gpus == "", "a machine without GPUs runs it all the same"
    assert lab.info_of("hopeful")["run"]["gpus"] == []


@pytest.mark.parametrize("door", ["snakemake", "python"])
def test_steps_run_one_at_a_time_when_told_so(
    door: str, lab: Lab, variables: Callable[..., dict[str, str]], work_of: Callable[..., list[Work]]
) -> None:
    file, names = lab.experiment(EXPERIMENT), ("one", "two")
    steps = variables(*({"name": name, "cpu": 1, **ALONE} for name in names))
    if door == "snakemake":
        result = lab.snakemake("--cores", "4", experiment=file, config={"max_concurrent": 1}, env=steps)
    else:
        result = lab.python(file, "--prefix", lab.prefix, "--max_concurrent", "1", env=steps)
    assert result.code == 0, result.output
    one, two = work_of(*names)
    assert not one.overlaps(two)
