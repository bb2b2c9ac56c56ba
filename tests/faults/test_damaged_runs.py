"""Damaged control files, as whole runs and dry runs see them: a named error or a new run of the step, never "done"."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from marin_rules import THIS_OUTPUT_PATH
from marin_rules.driver.executor import compute_output_path
from support.faults.places import INFO, LEASE, STATUS, Place
from support.lab import Lab

ONE_STEP = """
    import os

    import fsspec

    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main

    def work(path):
        with fsspec.open(os.path.join(path, "data"), "w") as file:
            file.write("right")

    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep(name="work", fn=work, config=THIS_OUTPUT_PATH)])
"""

CASES = {
    "truncated status": {STATUS: b"SUCC"},
    "garbage status": {STATUS: b"\xff\x00garbage"},
    "truncated lease": {STATUS: b"RUNNING", LEASE: b'{"worker_id": "node1-18372-7b70b837", "times'},
    "truncated info": {STATUS: b"CANCELLED", INFO: b'{\n  "name": "work",\n  "fn_'},
}


def damage(place: Place, folder: str, case: str, run: Callable[..., Any]) -> None:
    """Damage the files of a step, and see what a dry run and a run make of it."""
    place.write(f"{folder}/data", b"wrong")
    for name, data in CASES[case].items():
        place.write(f"{folder}/{name}", data)
    damaged = f"{folder}/{list(CASES[case])[-1]}"

    dry = run("-n")
    assert dry.cached == [], dry.output
    assert dry.code == 0 or damaged in dry.output, dry.output
    assert place.read(f"{folder}/data") == b"wrong"

    real = run()
    assert real.code != 0, real.output
    assert real.cached == [], real.output
    assert damaged in real.output, real.output
    assert "Traceback" not in real.output
    assert place.read(f"{folder}/{STATUS}") != b"SUCCESS"
    place.delete(damaged)  # What the message asks for.


@pytest.fixture
def run_on(lab: Lab) -> Callable[..., Any]:
    """`run_on(place, *arguments)` runs the experiment of one step there."""
    file = lab.experiment(ONE_STEP)

    def run(place: Place, *arguments: str) -> Any:
        return lab.snakemake(*arguments, experiment=file, prefix=place.prefix, env=place.environment)

    return run


def finished_step(place: Place, run: Callable[..., Any]) -> str:
    result = run()
    assert result.code == 0, result.output
    (folder,) = {name.rpartition("/")[0] for name in place.names() if name.endswith("/data")}
    return folder


def test_a_truncated_status_is_never_done(make_place: Callable[[str], Place], run_on: Callable[..., Any]) -> None:
    place = make_place("local")
    folder = compute_output_path("work", THIS_OUTPUT_PATH, prefix=place.prefix)
    damage(place, folder, "truncated status", functools.partial(run_on, place))


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["local", "gcs", "s3"])
def test_a_damaged_file_is_never_done(
    kind: str, make_place: Callable[[str], Place], run_on: Callable[..., Any]
) -> None:
    place = make_place(kind)
    run = functools.partial(run_on, place)
    folder = finished_step(place, run)
    for case in CASES:
        damage(place, folder, case, run)
        again = run()
        assert again.code == 0, again.output
        assert place.read(f"{folder}/data") == b"right"
        assert place.read(f"{folder}/{STATUS}") == b"SUCCESS"
