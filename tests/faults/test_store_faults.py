"""A fifth of all calls to the store goes wrong during a whole run: right or loud, never wrong.

Answers 404, 412, 429, 500 and 503, cut connections, lost answers and cut downloads befall control files and data alike;
in the long run some calls also hang. A run that says success is right to the byte; one that fails is followed by a run
without faults that finishes; no step is ever committed twice, or with wrong bytes.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.faults.dags import EXPERIMENT, Dag
from support.faults.nursery import Nursery
from support.faults.places import LEASE, STATUS, Objects
from support.faults.verdicts import assert_finished
from support.lab import Lab

KINDS = ("404", "412", "429", "500", "503", "cut", "lost", "cut_body")
SHARE = 0.24
"""A little more than a fifth, since some kinds befall only some calls."""


def inject(place: Objects, seed: int, hangs: int) -> None:
    """A rule for each kind of fault; together they hit a fifth of the calls."""
    if hangs:
        # Only the project's own calls, whose clients give up after seconds: fsspec's wait for minutes.
        place.emulator.inject("hang", methods=["POST", "PUT"], path="executor_", probability=0.05, times=hangs)
    each = 1 - (1 - SHARE) ** (1 / len(KINDS))
    for number, kind in enumerate(KINDS):
        # No store answers 412 to a read without a condition.
        methods = ["POST", "PUT", "DELETE"] if kind == "412" else []
        place.emulator.inject(kind, methods=methods, probability=each, seed=seed * 100 + number)


def run_under_faults(
    place: Objects, dag: Dag, snakemake: Callable[..., Any], *, seed: int, runs: int, hangs: int, timeout: float
) -> str:
    """Runs with faults, and if none of them succeeds, one without. Says what became of them."""
    options = {"experiment": EXPERIMENT, "prefix": place.prefix, "env": dag.environment, "timeout": timeout}
    story = []
    for attempt in range(runs):
        place.emulator.forget_calls()
        inject(place, seed + attempt, hangs)
        result = snakemake("-j", "4", "--keep-going", **options)
        place.emulator.clear_faults()
        calls = place.emulator.calls()
        hit = sum(call.fault is not None for call in calls)
        done = dag.assert_nothing_wrong_counts()
        story.append(f"exit code {result.code}, {hit} of {len(calls)} calls hit, {done} steps done")
        assert hit > 0, story
        if result.code == 0:
            dag.assert_finished()
            return "; ".join(story)
        assert any(word in result.output for word in ("error", "FAILED", "cannot", "failed")), result.output
    result = snakemake("-j", "4", **options)
    assert result.code == 0, result.output
    dag.assert_finished()
    return "; ".join([*story, "then finished without faults"])


@pytest.mark.parametrize("kind", ["gcs", pytest.param("s3", marks=pytest.mark.faults)])
def test_a_few_steps(kind: str, tmp_path: Path, make_place: Callable[[str], Objects], lab: Lab) -> None:
    place = make_place(kind)
    run_under_faults(place, Dag(tmp_path, place, count=4, seed=1), lab.snakemake, seed=1, runs=1, hangs=0, timeout=90)


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["gcs", "s3"])
@pytest.mark.parametrize("seed", [1, 2])
def test_fifty_steps(
    kind: str, seed: int, tmp_path: Path, make_place: Callable[[str], Objects], lab: Lab, tell: Callable[[str], None]
) -> None:
    place = make_place(kind)
    dag = Dag(tmp_path, place, count=50, seed=seed)
    tell(f"{kind}: " + run_under_faults(place, dag, lab.snakemake, seed=seed, runs=3, hangs=4, timeout=600))


@pytest.mark.parametrize("quirks", [("refuses quoted ETags", "ignores conditions of DELETE")])
def test_a_worker_on_a_store_like_ceph(
    quirks: tuple[str, ...], make_place: Callable[[str], Objects], make_nursery: Callable[..., Nursery]
) -> None:
    place = make_place("s3")
    place.emulator.set_quirks(*quirks)
    nursery = make_nursery(place, 1)
    folder = nursery.folder_of("blob/0")
    for said in ("", "already done by another run"):
        code, worker = nursery.run("blob/0")
        assert code == 0, worker.output
        assert said in worker.output
    assert place.read(f"{folder}/{STATUS}") == b"SUCCESS"
    assert json.loads(place.read(f"{folder}/{LEASE}") or b"")["worker_id"] == "nobody", "given back, not deleted"


def test_a_worker_on_a_store_that_refuses_the_status(
    make_place: Callable[[str], Objects], make_nursery: Callable[..., Nursery]
) -> None:
    """Though nobody else writes it: it must not be tried for ever, nor without a pause."""
    place = make_place("s3")
    nursery = make_nursery(place, 1)
    place.emulator.inject("412", methods=["PUT"], path=f"{STATUS}$")
    code, worker = nursery.run("blob/0")
    assert code == 1, worker.output
    assert (
        f"error: cannot write {nursery.folder_of('blob/0')}/{STATUS}: 8 times in a row the store refused"
        in worker.output
    )
    assert "does not handle conditional writes" in worker.output
    assert sum(call.place.endswith(STATUS) and call.method == "PUT" for call in place.emulator.calls()) <= 16
    assert place.read(f"{nursery.folder_of('blob/0')}/{LEASE}") is None
    place.emulator.clear_faults()
    code, worker = nursery.run("blob/0")
    assert code == 0, worker.output
    assert_finished(place, nursery, "blob/0")
