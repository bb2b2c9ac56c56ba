"""Damaged control files, as whole runs and dry runs see them: a named error or a new run of the step, never "done"."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.places import INFO, LEASE, STATUS, Objects, Place

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


def check(place: Place, folder: str, case: str, run: Callable[..., Any]) -> None:
    """Damage a finished step, and see what a dry run and a run make of it."""
    before = {name: place.read(f"{folder}/{name}") for name in (STATUS, INFO)}
    place.write(f"{folder}/data", b"wrong")
    for name, data in CASES[case].items():
        place.write(f"{folder}/{name}", data)
    damaged = f"{folder}/{list(CASES[case])[-1]}"

    dry = run("-n")
    assert dry.cached == [], dry.output
    assert dry.code == 0 or damaged in dry.output, dry.output
    assert place.read(f"{folder}/data") == b"wrong"

    real = run()
    assert real.cached == [], real.output
    if real.code == 0:
        assert place.read(f"{folder}/data") == b"right"
    else:
        assert damaged in real.output, real.output
        assert "Traceback" not in real.output
        assert place.read(f"{folder}/{STATUS}") != b"SUCCESS"
        place.delete(damaged)  # What the message asks for.
        again = run()
        assert again.code == 0, again.output
        assert place.read(f"{folder}/data") == b"right"
    assert place.read(f"{folder}/{STATUS}") == before[STATUS] == b"SUCCESS"


@pytest.mark.parametrize(
    ("kind", "cases"),
    [
        ("local", ["truncated status"]),
        pytest.param("local", list(CASES), marks=pytest.mark.faults),
        pytest.param("gcs", list(CASES), marks=pytest.mark.faults),
        pytest.param("s3", list(CASES), marks=pytest.mark.faults),
    ],
)
def test_a_damaged_file_is_never_done(
    kind: str,
    cases: list[str],
    make_place: Callable[[str], Place],
    experiment: Callable[..., Path],
    snakemake: Callable[..., Any],
) -> None:
    place = make_place(kind)
    file = experiment(ONE_STEP)

    def run(*arguments: str) -> Any:
        return snakemake(*arguments, experiment=file, prefix=place.prefix, env=place.environment)

    assert run().code == 0
    (folder,) = {name.rpartition("/")[0] for name in place.names() if name.endswith("/data")}
    if isinstance(place, Objects):
        assert folder.startswith(place.prefix)
    for case in cases:
        check(place, folder, case, run)
