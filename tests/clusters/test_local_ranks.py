"""Ranks that are processes of this machine: who they are, what they print, and how they end together."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from marin_rules.clusters import local_ranks
from marin_rules.clusters.local_ranks import LocalRanks
from marin_rules.clusters.ranks import RankCall, RanksEnd
from support.lab import Lab

LOOK = (
    'echo "$MARIN_PROCESS_RANK of $MARIN_PROCESS_COUNT, here $MARIN_PROCESS_LOCAL_RANK of $MARIN_PROCESS_LOCAL_COUNT";'
    ' printf "no end of line" >&2'
)


class Heard:
    """What ranks have printed."""

    def __init__(self) -> None:
        self.lines: dict[int | None, list[bytes]] = {}

    def __call__(self, rank: int | None, line: bytes) -> None:
        self.lines.setdefault(rank, []).append(line)


def call(*words: str) -> RankCall:
    return RankCall(words, "reports")


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.mark.processes
def test_each_knows_who_it_is_and_is_heard(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_PROCESS_RANK", "9")  # Of a step that this one is part of.
    assert LocalRanks(3).run(call("sh", "-c", LOOK), heard) == RanksEnd()
    assert heard.lines == {rank: [b"%d of 3, here %d of 3\n" % (rank, rank), b"no end of line"] for rank in range(3)}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("end", "wanted"),
    [("exit 3", "rank 1 ended with exit code 3"), ("kill -9 $$", "rank 1 was ended by SIGKILL")],
)
def test_when_one_fails_the_others_may_save_what_they_have(end: str, wanted: str, heard: Heard, tmp_path: Path) -> None:
    """Rank 1 fails once the other waits for a signal; `read` ends at once when its shell handles one."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    first = f'trap "echo saved; exit 0" TERM; echo ready; exec 3<>{gate}; echo >{gate}.ready; read line <&3'
    other = f"until [ -e {gate}.ready ]; do sleep 0.01; done; {end}"
    script = f'if [ "$MARIN_PROCESS_RANK" = 0 ]; then {first}; else {other}; fi'
    assert LocalRanks(2).run(call("bash", "-c", script), heard) == RanksEnd(wanted)
    assert heard.lines[0] == [b"ready\n", b"saved\n"]


@pytest.mark.processes
def test_one_that_hangs_after_another_has_failed_is_killed(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_ranks, "_STOP_SECONDS", 0.2)
    script = 'if [ "$MARIN_PROCESS_RANK" = 1 ]; then exit 1; fi; trap "" TERM; while :; do sleep 0.05; done'
    assert LocalRanks(3).run(call("sh", "-c", script), heard) == RanksEnd("rank 1 ended with exit code 1")


@pytest.mark.processes
def test_a_program_that_a_rank_leaves_running_with_its_output_is_not_waited_for(heard: Heard, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = f"echo done; sleep 600 & echo $! > {note}.$MARIN_PROCESS_RANK"
    try:
        assert LocalRanks(2).run(call("sh", "-c", script), heard) == RanksEnd()
        assert heard.lines == {0: [b"done\n"], 1: [b"done\n"]}
    finally:
        for rank in (0, 1):
            os.kill(int(Path(f"{note}.{rank}").read_text()), signal.SIGKILL)


@pytest.mark.processes
def test_a_program_that_cannot_be_started_is_an_error(heard: Heard) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        LocalRanks(2).run(call("no-such-program"), heard)


def test_ranks_do_not_outlive_whoever_started_them(lab: Lab, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    program = f"""
        from marin_rules.clusters.local_ranks import LocalRanks
        from marin_rules.clusters.ranks import RankCall
        script = 'me={note}.$MARIN_PROCESS_RANK; echo $$ > $me.new; mv $me.new $me'
        LocalRanks(2).run(RankCall(["sh", "-c", script + "; exec sleep 600"], "reports"), print)
        """
    starter = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)])
    notes = [Path(f"{note}.{rank}") for rank in (0, 1)]
    lab.wait_until(lambda: all(path.exists() for path in notes), "both ranks to run")
    ranks = [int(path.read_text()) for path in notes]
    starter.kill()
    starter.wait()
    lab.wait_until(lambda: not any(map(lab.is_running, ranks)), "the end of the ranks")
