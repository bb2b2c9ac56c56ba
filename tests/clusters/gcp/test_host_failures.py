"""Which of several machines failed first, and whether the step had a part in it."""

from __future__ import annotations

import pytest

from marin_rules.clusters.gcp.host import REBOOTED, TIME_LIMIT
from marin_rules.clusters.gcp.host_failures import HostEnd, Verdict, judge

OWN = HostEnd(1, 3, last_lines=["ValueError: loss is nan"])
LOST_PEER = HostEnd(0, 1, last_lines=["E0000 coordination service agent error: UNAVAILABLE: heartbeat timeout"])
BROKEN = HostEnd(2, 1, last_lines=["RuntimeError: TPU initialization failed: open(/dev/accel0)"])
REBOOT = HostEnd(3, 1, reason=REBOOTED)
WELL = HostEnd(4, 0, last_lines=["TPU initialization failed once, and then it worked"])


@pytest.mark.parametrize(
    ("ends", "rank", "is_broken_machine"),
    [
        ([OWN], 1, False),
        ([OWN, LOST_PEER], 1, False),
        # Heard later, but the other only tells of somebody else.
        ([LOST_PEER, OWN], 1, False),
        ([LOST_PEER], 0, False),
        ([LOST_PEER, HostEnd(5, 1, last_lines=["Connection reset by peer"])], 0, False),
        ([LOST_PEER, BROKEN], 2, True),
        ([OWN, BROKEN], 2, True),
        ([LOST_PEER, REBOOT], 3, True),
        ([WELL, OWN], 1, False),
        ([HostEnd(7, 143), HostEnd(6, 143)], 7, False),
        ([HostEnd(2, 143, reason=TIME_LIMIT)], 2, False),
    ],
)
def test_the_cause_is_told_and_not_what_followed_from_it(
    ends: list[HostEnd], rank: int, is_broken_machine: bool
) -> None:
    verdict = judge(ends, {})
    assert verdict is not None
    assert (verdict.rank, verdict.is_broken_machine) == (rank, is_broken_machine)


def test_nobody_failed() -> None:
    assert judge([WELL, HostEnd(0, 0)], {}) is None
    assert judge([], {}) is None


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        ([OWN], "rank 1 on t1 failed first, with exit code 3"),
        ([OWN, LOST_PEER], "rank 1 on t1 failed first, with exit code 3; 1 other failed after it"),
        ([OWN, LOST_PEER, WELL, LOST_PEER], "rank 1 on t1 failed first, with exit code 3; 2 others failed after it"),
        ([REBOOT], "rank 3 failed first, with exit code 1: its machine rebooted"),
    ],
)
def test_in_the_words_of_people(ends: list[HostEnd], text: str) -> None:
    verdict = judge(ends, {1: "t1", 3: ""})
    assert verdict == Verdict(ends[0].rank, text, ends == [REBOOT])


@pytest.mark.parametrize(
    "line",
    [
        "jaxlib.xla_extension.XlaRuntimeError: UNKNOWN: TPU initialization failed: No ba16c7433 device found.",
        "RuntimeError: Unable to initialize backend 'tpu': INTERNAL: Failed to get global TPU topology.",
        "open(/dev/vfio/0): Device or resource busy: Couldn't open iommu group /dev/vfio/0",
        "ABORTED: The TPU is already in use by process with pid 1234.",
        "No accelerator found on this machine",
        "uncorrectable ECC error encountered",
    ],
)
def test_words_of_a_machine_whose_accelerator_does_not_work(line: str) -> None:
    assert HostEnd(0, 1, last_lines=["before", line, "after"]).is_broken_machine


@pytest.mark.parametrize(
    "line",
    [
        "the coordination service was shut down: unavailable",
        "Barrier timed out. Id: shutdown",
        "DEADLINE_EXCEEDED: GetKeyValue() timed out with key: cluster",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "NCCL INFO misc/socket.cc remote process exited",
    ],
)
def test_words_of_a_rank_that_has_lost_another(line: str) -> None:
    assert HostEnd(0, 1, last_lines=[line]).is_lost_peer


@pytest.mark.parametrize(
    "line",
    [
        "KeyError: 'tpu'",
        "ValueError: batch size 8 is not divisible by the number of TPU devices",
        "torch.OutOfMemoryError: CUDA out of memory",
        "training on TPU v4-8",
        "AssertionError",
    ],
)
def test_words_of_a_step_that_fails_by_itself(line: str) -> None:
    end = HostEnd(0, 1, last_lines=[line])
    assert not end.is_broken_machine
    assert not end.is_lost_peer
