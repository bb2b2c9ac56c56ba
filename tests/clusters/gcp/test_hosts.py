"""Worker and hosts of one step, connected by a bucket alone: real ranks, on the emulator of Google Cloud Storage.

Hosts are threads here; each rank is a process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marin_rules.clusters.gcp import host_ranks
from marin_rules.clusters.gcp.host import Host
from marin_rules.clusters.gcp.host_ranks import HostRanks
from marin_rules.clusters.gcp.meeting import Meeting, Order, Pace, Phase
from marin_rules.clusters.ranks import RankCall, RanksEnd
from support.emulators.gcs.emulator import GcsEmulator
from support.emulators.waiting import wait

PACE = Pace(look=0.05, beat=0.2, start=20.0, silent=15.0, orphaned=20.0, stop=5.0)
FOLDER = "gs://bucket/meetings/train-1"

pytestmark = pytest.mark.processes


class Machines:
    """Hosts of a lab: as many as there are, started by hand."""

    def __init__(self, count: int, pace: Pace = PACE) -> None:
        self.count = count
        self.pace = pace
        self.facts = {"zone": "us-central2-b"}
        self.can_be_replaced = True
        self.gone: str | None = None
        self.replaced: list[str] = []
        self.is_released = False

    def obtain(self, stopped: Callable[[], bool], say: Callable[[str], None]) -> Meeting | None:
        return None if stopped() else Meeting(FOLDER)

    def lost(self) -> str | None:
        return self.gone

    def replace(self, why: str) -> None:
        self.replaced.append(why)

    def release(self) -> None:
        self.is_released = True


class Lab:
    """A worker's side and its hosts."""

    def __init__(self) -> None:
        self.machines = Machines(3)
        self.lines: list[tuple[int | None, str]] = []
        self.is_stopped = False
        self.threads: dict[int, tuple[Host, threading.Thread, list[int]]] = {}

    def boot(self, rank: int, script: str, pace: Pace = PACE, **options: Any) -> Host:
        """Start a host whose rank runs these lines of shell."""
        host = Host(Meeting(FOLDER), rank, address="127.0.0.1", pace=pace, **options)
        codes: list[int] = []
        thread = threading.Thread(target=lambda: codes.append(host.serve(["sh", "-c", script, "rank"])), daemon=True)
        thread.start()
        self.threads[rank] = (host, thread, codes)
        return host

    def boot_all(self, script: str) -> None:
        for rank in range(self.machines.count):
            self.boot(rank, script)

    def run(self, ranks: HostRanks | None = None) -> RanksEnd:
        call = RankCall(["unused"], "gs://bucket/report", "train", stopped=lambda: self.is_stopped)
        return (ranks or HostRanks(self.machines)).run(call, self.take)

    def take(self, rank: int | None, line: bytes) -> None:
        self.lines.append((rank, line.decode().rstrip("\n")))

    def in_background(self) -> tuple[threading.Thread, list[RanksEnd]]:
        ends: list[RanksEnd] = []
        thread = threading.Thread(target=lambda: ends.append(self.run()), daemon=True)
        thread.start()
        return thread, ends

    def ended(self, rank: int) -> int:
        """The exit code of a host that ends."""
        _, thread, codes = self.threads[rank]
        thread.join(60)
        return codes[0]

    def close(self) -> None:
        for host, thread, _ in self.threads.values():
            host.stop()
            thread.join(60)


@pytest.fixture
def lab(gcs_here: GcsEmulator) -> Iterator[Lab]:
    found = Lab()
    yield found
    found.close()


def phases(count: int) -> list[Phase | None]:
    words = [Meeting(FOLDER).host(rank) for rank in range(count)]
    return [None if word is None else word.phase for word in words]


SAY = 'echo "$MARIN_PROCESS_RANK of $MARIN_PROCESS_COUNT at $MARIN_PROCESS_COORDINATOR_ADDRESS, $*"'


def test_all_ranks_run_together_and_are_heard(lab: Lab) -> None:
    lab.boot_all(SAY)
    ranks = HostRanks(lab.machines)
    assert lab.run(ranks) == RanksEnd(facts={"zone": "us-central2-b"})
    said = dict(lab.lines)
    assert set(said) == {0, 1, 2}
    meets = {line.split()[4] for line in said.values() if line}
    assert len(meets) == 1
    assert meets.pop().startswith("127.0.0.1:")
    assert all(f"{rank} of 3" in line and "--report gs://bucket/report" in line for rank, line in said.items() if line)
    ranks.close()
    assert [lab.ended(rank) for rank in range(3)] == [0, 0, 0]
    assert lab.machines.is_released


def test_none_starts_before_all_are_there(lab: Lab, tmp_path: Path) -> None:
    note = tmp_path / "began"
    lab.boot(0, f"touch {note}")
    lab.boot(1, "true")
    thread, ends = lab.in_background()
    wait(lambda: phases(2), lambda found: found == [Phase.READY, Phase.READY])
    assert not note.exists()
    lab.boot(2, "true")
    thread.join(60)
    assert ends[0].problem is None
    assert note.exists()


def test_the_first_failure_ends_the_others_and_is_the_one_that_is_told(lab: Lab) -> None:
    lab.boot(0, "trap 'echo saved; exit 0' TERM; sleep 60 & wait")
    lab.boot(1, "echo I am the cause; exit 3")
    lab.boot(2, "sleep 60")
    end = lab.run()
    assert end.first == 1
    assert not end.lost_machines
    assert end.problem is not None
    assert end.problem.startswith("rank 1 on 127.0.0.1 failed first, with exit code 3")
    assert (0, "saved") in lab.lines
    assert (1, "I am the cause") in lab.lines


def test_a_machine_that_never_comes_is_no_fault_of_the_step(lab: Lab) -> None:
    lab.machines.pace = replace(PACE, start=0.5)
    lab.boot(0, "true")
    lab.boot(2, "true")
    end = lab.run()
    assert end.lost_machines
    assert end.problem is not None
    assert "machine 1 of 3 did not come up" in end.problem
    assert lab.machines.replaced == [end.problem]


def test_a_machine_that_falls_silent_is_lost(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.machines.pace = replace(PACE, silent=2.0)
    lab.boot(0, "sleep 60")
    lab.boot(1, "sleep 60")
    silent = lab.boot(2, "sleep 60")
    thread, ends = lab.in_background()
    wait(lambda: phases(3), lambda found: found == [Phase.RUNNING] * 3)
    monkeypatch.setattr(silent, "_say", lambda **changes: None)
    thread.join(30)
    assert ends[0].lost_machines
    assert "machine 2 of 3 has said nothing" in str(ends[0].problem)


def test_a_machine_that_starts_again_does_not_run_its_rank_again(lab: Lab, tmp_path: Path) -> None:
    began = tmp_path / "began"
    for rank in range(3):
        lab.boot(rank, f"echo $MARIN_PROCESS_RANK >> {began}; sleep 60")
    thread, ends = lab.in_background()
    wait(lambda: began.read_text().split() if began.exists() else [], lambda lines: len(lines) == 3)
    host, old, _ = lab.threads[1]
    # Its power is cut: no more words from it, and its rank is gone.
    host._meeting = Meeting("gs://bucket/nowhere")
    os.killpg(host._running._process.pid, 9)  # type: ignore[union-attr]
    old.join(0.1)
    lab.boot(1, f"echo again >> {began}")
    thread.join(60)
    host.stop()
    assert ends[0].lost_machines
    assert "its machine rebooted" in str(ends[0].problem)
    assert "again" not in began.read_text()


def test_a_machine_that_starts_again_before_any_rank_may_start_runs_its_own(lab: Lab, tmp_path: Path) -> None:
    began = tmp_path / "began"
    script = f"echo $MARIN_PROCESS_RANK >> {began}"
    lab.boot(0, script)
    host = lab.boot(1, script)
    thread, ends = lab.in_background()
    wait(lambda: phases(2), lambda found: found == [Phase.READY, Phase.READY])
    host._meeting = Meeting("gs://bucket/nowhere")  # Its power is cut.
    lab.boot(1, script)
    word = Meeting(FOLDER).host(1)
    wait(lambda: Meeting(FOLDER).host(1), lambda found: found.boot != word.boot)
    lab.boot(2, script)
    thread.join(60)
    host.stop()
    assert ends[0].problem is None
    assert sorted(began.read_text().split()) == ["0", "1", "2"]


def test_machines_of_which_none_ever_comes_up_are_not_replaced_for_ever(lab: Lab, gcs_here: GcsEmulator) -> None:
    """What they are told to run is wrong, and each of them costs money."""
    lab.machines.pace = replace(PACE, start=0.1)
    gcs_here.put("bucket", f"{FOLDER.removeprefix('gs://bucket/')}/boot.log", b"one\n" * 9 + b"docker: not found\n")
    ranks = HostRanks(lab.machines)
    ends = [lab.run(ranks) for _ in range(host_ranks.MOST_BARREN)]
    assert [end.lost_machines for end in ends] == [True, True, False]
    assert str(ends[0].problem).startswith("none of 3 machines came up within 0 s; one of them printed:\n    one\n")
    assert str(ends[0].problem).endswith("\n    docker: not found")
    assert "this happened 3 times in a row" in str(ends[-1].problem)
    assert len(lab.machines.replaced) == 3, "the last ones are given back, too"


def test_machines_that_their_service_reports_lost_end_the_round(lab: Lab) -> None:
    lab.boot_all("sleep 60")
    thread, ends = lab.in_background()
    wait(lambda: phases(3), lambda found: found == [Phase.RUNNING] * 3)
    lab.machines.gone = "TPU slice t was lost: SUSPENDED"
    thread.join(60)
    assert ends[0] == RanksEnd("TPU slice t was lost: SUSPENDED", lost_machines=True, facts={"zone": "us-central2-b"})


def test_machines_that_cannot_be_replaced_end_the_step_when_one_is_lost(lab: Lab) -> None:
    """A job of several machines has no others: it ends, and is submitted again."""
    lab.machines.can_be_replaced = False
    lab.boot_all("sleep 60")
    thread, ends = lab.in_background()
    wait(lambda: phases(3), lambda found: found == [Phase.RUNNING] * 3)
    lab.machines.gone = "machine 2 was lost"
    thread.join(60)
    assert ends[0] == RanksEnd("machine 2 was lost", facts={"zone": "us-central2-b"})
    assert lab.machines.replaced == []


def test_an_order_that_cannot_be_read_does_not_disable_the_dead_mans_switch(lab: Lab, gcs_here: GcsEmulator) -> None:
    given_back: list[str] = []
    lab.boot(0, "sleep 60", replace(PACE, orphaned=1.0), abandon=lambda: given_back.append("slice"))
    for text in (b'{"round": 1, "novel": true}', b"no json", b"[" * 10_000):
        gcs_here.put("bucket", f"{FOLDER.removeprefix('gs://bucket/')}/order.json", text)
    assert lab.ended(0) == os.EX_TEMPFAIL
    assert given_back == ["slice"]


def test_another_round_runs_on_the_same_machines(lab: Lab, tmp_path: Path) -> None:
    flag = tmp_path / "second"
    lab.boot_all(f"if [ -e {flag} ]; then echo second; else echo TPU initialization failed; exit 1; fi")
    ranks = HostRanks(lab.machines)
    first = lab.run(ranks)
    assert first.lost_machines
    flag.touch()
    second = lab.run(ranks)
    assert second.problem is None
    assert second.facts == {"zone": "us-central2-b", "losses": 1, "machines": "machines (lost and replaced once)"}
    assert [line for _, line in lab.lines].count("second") == 3


def test_losses_have_a_bound(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_ranks, "MOST_LOSSES", 1)
    lab.boot_all("echo TPU initialization failed; exit 1")
    ranks = HostRanks(lab.machines)
    assert lab.run(ranks).lost_machines
    end = lab.run(ranks)
    assert not end.lost_machines
    assert "losses so far: 2, allowed: 1" in str(end.problem)


def test_a_stop_reaches_the_ranks_and_lets_them_save(lab: Lab) -> None:
    lab.boot_all("trap 'echo saved; exit 0' TERM; sleep 60 & wait")
    thread, _ = lab.in_background()
    wait(lambda: phases(3), lambda found: found == [Phase.RUNNING] * 3)
    lab.is_stopped = True
    thread.join(60)
    assert [line for _, line in lab.lines].count("saved") == 3


def test_a_step_that_is_stopped_before_it_has_machines_runs_nothing(lab: Lab) -> None:
    lab.is_stopped = True
    assert lab.run() == RanksEnd("it was stopped before it had machines")


def test_a_host_without_a_worker_gives_its_machine_back(lab: Lab) -> None:
    given_back: list[str] = []
    pace = replace(PACE, orphaned=1.0)
    lab.machines.count = 1
    lab.boot(0, "sleep 60", pace, abandon=lambda: given_back.append("slice"))
    # A worker that says one thing, and then nothing any more.
    Meeting(FOLDER).give(Order(1, count=1, report="gs://bucket/report", coordinator=""), None)
    assert lab.ended(0) == os.EX_TEMPFAIL
    assert given_back == ["slice"]
    word = Meeting(FOLDER).host(0)
    assert word is not None
    assert word.phase is Phase.ENDED


def test_a_host_that_nobody_deletes_when_all_is_over_deletes_itself(lab: Lab) -> None:
    """Its worker may have died in that moment, or the service have refused."""
    given_back: list[str] = []
    lab.machines.count = 1
    lab.boot(0, "true", replace(PACE, orphaned=1.0), abandon=lambda: given_back.append("slice"))
    ranks = HostRanks(lab.machines)
    assert lab.run(ranks).problem is None
    ranks.close()
    assert given_back == []
    assert lab.ended(0) == os.EX_TEMPFAIL
    assert given_back == ["slice"]


def test_a_host_keeps_to_the_time_limit_of_its_step(lab: Lab) -> None:
    lab.machines.count = 1
    lab.boot(0, "sleep 60")
    end = lab.run(HostRanks(lab.machines, seconds_left=lambda: 0.5))
    assert not end.lost_machines
    assert "the step's time limit was reached" in str(end.problem)


def test_another_worker_that_takes_over_ends_the_first(lab: Lab) -> None:
    lab.boot_all("sleep 60")
    thread, ends = lab.in_background()
    wait(lambda: phases(3), lambda found: found == [Phase.RUNNING] * 3)
    successor, later = lab.in_background()
    thread.join(60)
    assert "another worker of the step has taken over its machines" in str(ends[0].problem)
    wait(
        lambda: [Meeting(FOLDER).host(rank) for rank in range(3)], lambda words: all(w and w.round == 2 for w in words)
    )
    lab.is_stopped = True
    successor.join(60)
    assert len(later) == 1


def test_a_store_that_does_not_answer_is_no_reason_to_end(lab: Lab, gcs_here: GcsEmulator) -> None:
    lab.machines.pace = replace(PACE, silent=30.0)
    lab.boot_all("sleep 1; echo through")
    thread, ends = lab.in_background()
    wait(lambda: phases(3), lambda found: found == [Phase.RUNNING] * 3)
    gcs_here.inject("503", probability=0.5, seed=3, times=12)
    thread.join(60)
    assert ends[0].problem is None
    assert [line for _, line in lab.lines].count("through") == 3
