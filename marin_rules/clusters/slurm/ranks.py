"""Ranks on the machines of a Slurm job: one srun starts them all, and ends all when one fails."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from dataclasses import dataclass

from marin_rules.clusters.ranks import RankCall, RanksEnd, Take, variables_for
from marin_rules.clusters.slurm.commands import run_command
from marin_rules.errors import MarinRulesError
from marin_rules.process import variable_of

_LABEL = re.compile(rb" *([0-9]+): ?")
"""What `srun --label` puts before a line."""

_FAILED = re.compile(rb"srun: error: (\S+: tasks? [0-9,-]+: .+)")
"""What srun says about a failed task. Its own exit code is the highest of all, including those that it has ended."""

_AS_RANK = (
    f"export {variable_of('rank')}=$SLURM_PROCID"
    f' {variable_of("local_rank")}=$SLURM_LOCALID {variable_of("local_count")}=1; exec "$@"'
)
"""What each task does first: say in our own terms which one it is."""

_ADDRESS = re.compile(r"\bNodeAddr=(\S+)")


@dataclass(frozen=True)
class SlurmRanks:
    """One rank on each machine of the job that this process is in."""

    nodes: str
    count: int
    cpus: int | None
    """Cores of each rank; None for as many as Slurm gives a task."""

    def _first_host(self) -> str:
        """The first machine, where srun puts rank 0: its name or, if that does not resolve, where Slurm itself finds
        it."""
        node = first_node(self.nodes)
        try:
            socket.getaddrinfo(node, None)
        except OSError:
            return _node_address(node)
        return node

    def run(self, call: RankCall, take: Take) -> RanksEnd:
        with subprocess.Popen(
            [*self.srun(), "sh", "-c", _AS_RANK, "rank", *call.words],
            env={**os.environ, **variables_for(self.count, self._first_host(), call.purpose)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as srun:
            assert srun.stdout is not None
            first = None
            for line in srun.stdout:
                label = _LABEL.match(line)
                if label is None:
                    take(None, line)
                    first = first or _FAILED.match(line)
                else:
                    take(int(label[1]), line[label.end() :])
            code = srun.wait()
        if code == 0:
            return RanksEnd()
        return RanksEnd(
            f"srun: {first[1].decode(errors='replace')}" if first is not None else f"srun: exit code {code}"
        )

    def close(self) -> None:
        """The machines are the job's."""

    def srun(self) -> list[str]:
        """The command that starts ranks of a program; explicit, because a job may come with other defaults."""
        words = ["srun", f"--nodes={self.count}", f"--ntasks={self.count}", "--ntasks-per-node=1"]
        if self.cpus is not None:
            words.append(f"--cpus-per-task={self.cpus}")
        # A rank that has ended is no reason to end the others some time later, as WaitTime of a site may say.
        return [*words, "--kill-on-bad-exit=1", "--wait=0", "--label", "--export=ALL"]


def first_node(nodes: str) -> str:
    """The first machine of a list in Slurm's short form: `gpu007` of `gpu[007-009,12],cpu1`."""
    first = re.match(r"(?:[^\[,]|\[[^\]]*\])*", nodes)
    return "" if first is None else re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first[0])


def _node_address(node: str) -> str:
    """Where Slurm itself reaches a machine; its name if Slurm does not say."""
    try:
        found = _ADDRESS.search(run_command("scontrol", "--oneliner", "show", "node", node))
    except MarinRulesError:
        return node
    return node if found is None else found[1]
