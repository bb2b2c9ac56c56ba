"""Which of several machines failed first, and whether the step had a part in it: pure.

When one rank of a step fails, the others fail soon after it, and often louder: they have lost their coordinator. The
first failure is the cause, unless it only reports another's. What a rank printed last may also show that its machine is
broken (a TPU that cannot be initialised): then the machines are replaced, and the step is not to blame.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marin_rules.clusters.gcp.host import REBOOTED

_BROKEN_MACHINE = re.compile(
    r"""
      TPU\ initialization\ failed
    | Failed\ to\ (?:initialize|get)\ (?:the\ )?TPU
    | Unable\ to\ initialize\ backend\ 'tpu'
    | No\ accelerator\ found
    | TPU\ (?:platform|device|driver)\b.*\b(?:unavailable|not\ found|busy)
    | The\ TPU\ is\ already\ in\ use
    | open\(/dev/(?:accel|vfio/)\d+\).*(?:Device\ or\ resource\ busy|No\ such\ device|Input/output\ error)
    | uncorrectable\ (?:ECC|HBM)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What libtpu, jax and drivers print on a machine whose accelerator does not work."""

_LOST_PEER = re.compile(
    r"""
      coordination\ service.*(?:error|unavailable|lost|timed?\ ?out|shut\ ?down)
    | (?:another|other|peer)\ task.*(?:died|failed|crashed|disconnected)
    | Barrier\ timed\ out
    | heartbeat\ (?:timeout|timed\ out|failure)
    | DEADLINE_EXCEEDED:.*(?:coordinator|barrier|GetKeyValue)
    | Connection\ (?:reset|refused|closed)\ by\ peer
    | NCCL\ .*remote\ process\ exited
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""The output of a rank that has lost another one."""


@dataclass(frozen=True)
class HostEnd:
    """How the rank of one machine ended."""

    rank: int
    code: int
    reason: str = ""
    last_lines: Sequence[str] = ()

    @property
    def is_broken_machine(self) -> bool:
        return self.reason == REBOOTED or any(_BROKEN_MACHINE.search(line) for line in self.last_lines)

    @property
    def is_lost_peer(self) -> bool:
        return any(_LOST_PEER.search(line) for line in self.last_lines)


@dataclass(frozen=True)
class Verdict:
    """Which rank failed first, and why."""

    rank: int
    text: str
    is_broken_machine: bool


def judge(ends: Sequence[HostEnd], names: Mapping[int, str]) -> Verdict | None:
    """The failure that was first, of ends in the order in which they were seen; None if all ended well.

    `names` are those of the machines. A broken machine explains all others; then comes the first failure that does not
    merely report another one.
    """
    failed = [end for end in ends if end.code != 0]
    if not failed:
        return None
    broken = [end for end in failed if end.is_broken_machine]
    causes = [end for end in failed if not end.is_lost_peer]
    first = (broken or causes or failed)[0]
    why = f": {first.reason}" if first.reason else ""
    others = len(failed) - 1
    after = f"; {others} {'other' if others == 1 else 'others'} failed after it" if others else ""
    where = f" on {names[first.rank]}" if names.get(first.rank) else ""
    text = f"rank {first.rank}{where} failed first, with exit code {first.code}{why}{after}"
    return Verdict(first.rank, text, bool(broken))
