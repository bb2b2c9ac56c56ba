"""A real Slurm cluster of four nodes on this machine, for tests.

    cluster = SlurmCluster(folder)
    subprocess.run(["sbatch", ...], env={**os.environ, **cluster.environment})
    job = cluster.submit("exec sleep 60", "--partition=gpu", "--gres=gpu:a100:1")
    cluster.wait_for_state(job, "RUNNING")
    cluster.set_down("gpu1")
    cluster.stop()

Slurm's own daemons run, one slurmd for each node; only the machines are not real. Nodes `cpu1` and `cpu2` have 4 CPUs
and 4000 MB each; `gpu1` and `gpu2` have two GPUs of type `a100` besides: device files with nothing behind them.
Partitions: `cpu` (the default) and `gpu`; on all nodes `spare` and `scavenge`, whose jobs are requeued or cancelled for
jobs of any other partition, and `urgent`, whose jobs come first. How long things take is in `configuration`.

A cluster needs root and Debian's packages (see scripts/ensure-slurm), but neither systemd, cgroups nor munge. All of it
is below its folder and on ports of its own on loopback, so clusters do not meet. It takes less than a second to start.

One thing differs from most sites: a job over its memory ends FAILED with exit code `0:9`. Cgroups would make it
OUT_OF_MEMORY.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from support.slurm.accounting import Accounting
from support.slurm.commands import Breakage, Commands
from support.slurm.configuration import CONTROLLER, GPUS_PER_NODE, NODES, Ports, write_configuration
from support.slurm.daemons import Daemon, DaemonError
from support.slurm.hosts import HostNames, machine_name
from support.slurm.jobs import LIST_ALL, Job, parse
from support.slurm.ports import free_ports, is_listening
from support.slurm.processes import kill_all_in, namespace_of
from support.slurm.requirements import SYSTEM_PROGRAMS, SlurmUnavailableError, check_requirements
from support.slurm.seclusion import Seclusion

WAIT_SECONDS = 60.0
"""How long `wait_for` waits unless told otherwise. Not reached when all is well."""

_NULL_DEVICE = os.makedev(1, 3)


class SlurmCluster:
    """A running cluster. With `accounting` there is a database, and `sacct` answers; starting then takes some seconds.

    Nodes do not see what is in the `hidden` folders. Raises `SlurmUnavailableError` where the machine does not allow
    it.
    """

    def __init__(self, folder: Path, *, accounting: bool = False, hidden: Sequence[Path] = ()) -> None:
        path = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{SYSTEM_PROGRAMS}"
        check_requirements(path, accounting=accounting)
        self.folder = folder
        _make_folders(folder)
        hosts = HostNames(folder / "hosts", (CONTROLLER, *NODES))
        self.names_resolve = hosts.are_possible
        """Whether jobs can look up the names of nodes, and have that of their node as host name. If not, a node's power
        cannot be cut either."""
        self._on_host = hosts.on
        self.seclusion = Seclusion(hidden, folder / "node") if hidden else None
        if self.seclusion is not None:
            if not hosts.are_possible:
                raise SlurmUnavailableError("hiding folders from nodes needs namespaces (CAP_SYS_ADMIN)")
            hosts.also(self.seclusion.entering())
        port = free_ports()
        self._ports = Ports(next(port), next(port), next(port), {node: next(port) for node in NODES})
        one_host = None if hosts.are_possible else machine_name()
        self._configuration = write_configuration(folder, self._ports, one_host=one_host, accounting=accounting)
        self._commands = Commands(folder / "bin", self._configuration)
        self._own_environment = _without_slurm(os.environ) | {"PATH": path, "SLURM_CONF": str(self._configuration)}
        self._accounting = Accounting(folder, self._ports, hosts, self._own_environment) if accounting else None
        self._controller = self._daemon("slurmctld", CONTROLLER, "slurmctld", "-D")
        self._nodes = {node: self._daemon(node, node, "slurmd", "-D", "-N", node) for node in NODES}
        self._last_forgotten_job = 0
        try:
            self._start()
        except BaseException:
            self._end_processes()
            raise

    @property
    def environment(self) -> dict[str, str]:
        """What the code under test needs, on top of its own environment, to find the cluster."""
        return {
            "SLURM_CONF": str(self._configuration),
            "PATH": f"{self._commands.folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }

    # --- jobs

    def run(self, *words: str, check: bool = True) -> str:
        """What one of Slurm's commands prints. It is never broken and does not count as a call."""
        return self._run(*words, check=check)

    def submit(self, script: str, *options: str) -> str:
        """Submit lines of shell as a batch job; its id. What the job prints is its `output`.

        A job that is told to end has ended as soon as the shell has, which is at once. A program that is to have its
        time must replace the shell: `exec ...`.
        """
        options = ("--parsable", f"--output={self.folder}/jobs/%A.out", "--open-mode=append", *options)
        # On its PATH the job finds the commands that can be broken, while the one that submits it is none of them.
        environment = self._own_environment | self.environment
        sbatch = shutil.which("sbatch", path=self._own_environment["PATH"])
        assert sbatch is not None
        return self._run(sbatch, *options, input=f"#!/bin/sh\n{script}\n", environment=environment).strip()

    def output(self, id: str) -> str:
        """What a job of `submit` has printed so far, in all its runs."""
        path = self.folder / "jobs" / f"{id}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def jobs(self) -> list[Job]:
        """All jobs since the last `reset`, in order, those that have ended included."""
        return [job for job in parse(self.run(*LIST_ALL)) if job.number > self._last_forgotten_job]

    def job(self, id: str) -> Job:
        for job in self.jobs():
            if job.id == id:
                return job
        raise AssertionError(f"no job {id}")

    def wait_for[T](self, condition: Callable[[], T], what: str, timeout: float = WAIT_SECONDS) -> T:
        """The first true value of the condition."""
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            if time.monotonic() > deadline:
                jobs = "\n".join(map(str, self.jobs()))
                raise AssertionError(f"waited {timeout:.0f} s in vain for {what}; nodes: {self.nodes()}; jobs:\n{jobs}")
            time.sleep(0.1)
        return value

    def wait_for_state(self, id: str, *states: str, timeout: float = WAIT_SECONDS) -> Job:
        """The job, as soon as it is in one of the states."""

        def job_there() -> Job | None:
            job = self.job(id)
            return job if job.state in states else None

        job = self.wait_for(job_there, f"job {id} to be {' or '.join(states)}", timeout)
        assert job is not None
        return job

    def cancel_all(self) -> None:
        """Cancel all jobs and wait until no node is busy with one."""

        def is_idle() -> bool:
            # Each time anew: whoever was not told to stop may still submit.
            # Arrays by their own ids: by the number of an element's record, scancel does not always find it.
            unfinished = {*self.run("squeue", "--noheader", "--format=%F").split()}
            if unfinished:
                self.run("scancel", *unfinished, check=False)
            return not unfinished

        self.wait_for(is_idle, "all jobs to end")

    # --- faults

    def broken(self, command: str, how: Breakage) -> AbstractContextManager[None]:
        """For a while, a command on the PATH of `environment` fails, or hangs."""
        return self._commands.broken(command, how)

    def calls(self, command: str) -> list[list[str]]:
        """The arguments of each call of a command on the PATH of `environment` since the last `reset`, in order."""
        return self._commands.calls(command)

    def run_out_of_time(self, id: str) -> None:
        """Let a running job reach its time limit now. The controller looks at limits every 30 s only."""
        end = datetime.now() + timedelta(seconds=1)
        self.run("scontrol", "update", f"jobid={id}", f"endtime={end:%Y-%m-%dT%H:%M:%S}")

    def nodes(self) -> dict[str, str]:
        """The state of each node as sinfo shows it. A `*` at its end says that the node does not answer."""
        listing = self.run("sinfo", "--noheader", "--Node", "--partition=urgent", "--format=%N %T")
        return dict(line.split() for line in listing.splitlines())

    def set_down(self, node: str) -> None:
        """What an administrator does with a broken node: its jobs are requeued or fail at once."""
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    def resume(self, node: str) -> None:
        """What an administrator does with a node that is whole again."""
        self.run("scontrol", "update", f"nodename={node}", "state=resume")
        self._nodes[node].wait_until(lambda: self._is_up(node))

    def kill_node(self, node: str) -> None:
        """Cut the power of a node: its slurmd and the processes of its jobs are gone, and nobody has been told.

        The controller finds out in its own time (see `configuration`), or at once when the node is `set_down`, too.
        """
        if not self.names_resolve:
            raise SlurmUnavailableError("cutting the power of a node needs namespaces (CAP_SYS_ADMIN)")
        self._end_node(node)

    def start_node(self, node: str) -> None:
        """Switch a node on again.

        Unless the controller had found out before, it now learns that the jobs of the node are lost. It believes that
        of those only which started more than 15 s ago, of others a minute later.
        """
        self._nodes[node].start()
        self._nodes[node].wait_until(lambda: is_listening(self._ports.nodes[node]))
        self._nodes[node].wait_until(lambda: not self.nodes()[node].endswith("*"))

    def stop_controller(self) -> None:
        """From now on commands find no controller; jobs go on."""
        self._controller.stop()

    def start_controller(self) -> None:
        self._controller.start()
        self._controller.wait_until(lambda: is_listening(self._ports.controller))

    def restart_controller(self) -> None:
        self.stop_controller()
        self.start_controller()

    # --- beginning and end

    def reset(self) -> None:
        """Make the cluster as good as new: whole, idle, with no jobs and no calls. The numbers of jobs go on."""
        self._commands.reset()
        if not self._controller.is_running:
            self.start_controller()
        for daemon in self._nodes.values():
            if not daemon.is_running:
                daemon.start()
        self.cancel_all()
        for node, daemon in self._nodes.items():
            daemon.wait_until(partial(self._is_up_again, node))
        self._forget_jobs()

    def stop(self) -> None:
        """End all processes of the cluster. The folder stays."""
        if not self.names_resolve:
            # Then processes of jobs are known to Slurm only.
            self.cancel_all()
        self._end_processes()

    def _start(self) -> None:
        if self._accounting is not None:
            self._accounting.start()
        # First the controller: nodes that do not find it try again only after a second.
        self.start_controller()
        for daemon in self._nodes.values():
            daemon.start()
        for node, daemon in self._nodes.items():
            daemon.wait_until(partial(self._is_up, node))
        # That the nodes are idle does not prove that they can run something.
        probe = ("srun", "--quiet", "--partition=urgent", f"--nodes={len(NODES)}", "--mem=10", "--time=1", "true")
        try:
            self._run(*self._on_host(CONTROLLER, *probe))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            raise DaemonError(f"the nodes run nothing: {error}\n{self._controller.last_lines()}") from error
        self._forget_jobs()

    def _end_processes(self) -> None:
        for node in NODES:
            self._end_node(node)
        self._controller.kill()
        if self._accounting is not None:
            self._accounting.kill()

    def _end_node(self, node: str) -> None:
        daemon = self._nodes[node]
        namespace = namespace_of(daemon.pid) if daemon.pid is not None else None
        daemon.kill()
        if namespace not in (None, namespace_of("self")):
            kill_all_in(namespace)

    def _is_up(self, node: str) -> bool:
        return self.nodes()[node] in ("idle", "mixed", "allocated", "completing")

    def _is_up_again(self, node: str) -> bool:
        if self.nodes()[node].startswith(("down", "drain")):
            # Refused as long as the node does not answer.
            self.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        return self._is_up(node)

    def _forget_jobs(self) -> None:
        self._last_forgotten_job = max((job.number for job in self.jobs()), default=self._last_forgotten_job)

    def _daemon(self, name: str, host: str, *command: str) -> Daemon:
        log = self.folder / "log" / f"{name}.log"
        words = self._on_host(host, *command)
        return Daemon(name, words, folder=self.folder, log=log, environment=self._own_environment)

    def _run(
        self, *words: str, check: bool = True, input: str = "", environment: Mapping[str, str] | None = None
    ) -> str:
        ran = subprocess.run(
            words,
            input=input,
            env=environment or self._own_environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            errors="replace",  # Comments are in whatever encoding a test likes.
            timeout=WAIT_SECONDS,
        )
        if check and ran.returncode:
            raise RuntimeError(f"{' '.join(words)}: exit code {ran.returncode}\n{ran.stdout}{ran.stderr}")
        return ran.stdout


def _make_folders(folder: Path) -> None:
    for name in ("log", "run", "state", "jobs", *(f"spool/{node}" for node in NODES)):
        (folder / name).mkdir(parents=True)
    # Slurm sets CUDA_VISIBLE_DEVICES for device files only.
    for number in range(GPUS_PER_NODE):
        try:
            os.mknod(folder / f"gpu{number}", 0o020666, _NULL_DEVICE)
        except PermissionError as error:
            raise SlurmUnavailableError(f"no device files for GPUs can be made (CAP_MKNOD): {error}") from error


def _without_slurm(environment: Mapping[str, str]) -> dict[str, str]:
    """The tests may themselves be a Slurm job, whose variables would count as options here."""
    prefixes = ("SLURM", "SBATCH", "SRUN", "SQUEUE", "SINFO", "SACCT", "SCANCEL")
    return {name: value for name, value in environment.items() if not name.startswith(prefixes)}
