"""Checks a Slurm cluster before the first run: its commands, its controller, and the queues of the cluster's file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence

from marin_rules.checks import Check, Verdict
from marin_rules.clusters.protocol import BusyError, ClusterError
from marin_rules.clusters.slurm.commands import run_command
from marin_rules.clusters.slurm.configuration import read_configuration
from marin_rules.clusters.slurm.site import Queue, Site, read_site
from marin_rules.storage.prefix_check import check_prefix
from marin_rules.urls import is_url

_COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")


def check_cluster(name: str | None, prefix: str) -> Iterator[Check]:
    """All checks of the cluster at hand, and of the queues in the cluster's file of this name."""
    missing = [command for command in _COMMANDS if shutil.which(command) is None]
    if missing:
        advice = "start runs on a login node of the cluster"
        yield Check(f"Slurm's commands {', '.join(missing)}", Verdict.MISSING, "not on this machine", advice)
        yield Check("Slurm's controller", Verdict.UNKNOWN, "it cannot be asked from here", "scontrol ping")
    else:
        yield Check("Slurm's commands", Verdict.OK, ", ".join(_COMMANDS))
        yield from _check_controller(None if name is None else read_site(name))
    if is_url(prefix):
        yield from check_prefix(prefix)


def _check_controller(site: Site | None) -> Iterator[Check]:
    try:
        found = read_configuration().get("ClusterName") or "without a name"
    except ClusterError as error:
        yield Check("Slurm's controller", Verdict.MISSING, str(error), "scontrol ping")
        return
    yield Check("Slurm's controller", Verdict.OK, found)
    for words in dict.fromkeys(map(_options, _queues(site))):
        yield _check_queue(words)


def _queues(site: Site | None) -> Iterator[Queue]:
    if site is None:
        yield Queue()
        return
    own = [site.cpu, *site.gpus.values(), *([site.drivers.queue] if site.drivers is not None else [])]
    for queue in own:
        yield queue
        if queue.preemptible is not None:
            yield queue.preemptible


def _options(queue: Queue) -> tuple[str, ...]:
    """The options of sbatch that send a job there."""
    chosen = {
        "partition": queue.partition,
        "account": queue.account,
        "qos": queue.qos,
        "constraint": queue.constraint,
        "gpus-per-node": None if queue.gpu_count is None else ":".join([*([queue.gres] if queue.gres else []), "1"]),
    }
    return tuple(f"--{option}={value}" for option, value in chosen.items() if value)


def _check_queue(words: Sequence[str]) -> Check:
    """Whether Slurm would accept a small job with these options. Nothing is submitted."""
    what = f"a job with {' '.join(words) or 'no options'}"
    command = f"sbatch --test-only {' '.join([*words, '--wrap=true'])}"
    try:
        run_command("sbatch", "--test-only", "--time=1", *words, "--wrap=true")
    except BusyError as error:
        return Check(what, Verdict.UNKNOWN, str(error), command)
    except ClusterError as error:
        return Check(what, Verdict.MISSING, str(error), command)
    return Check(what, Verdict.OK)
