"""The sbatch command of a job, or of an array of them.

The worker of a step replaces the batch script's shell. So Slurm's signals reach it (a shell in between would hold them
back until its child has ended), and when it ends, the job ends.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from marin_rules.clusters.protocol import JOB, ClusterError, JobRequest
from marin_rules.clusters.slurm.array_indices import indices_text
from marin_rules.clusters.slurm.commands import run_command

PLAIN_OPTIONS = {
    "slurm_partition": "--partition",
    "slurm_account": "--account",
    "qos": "--qos",
    "reservation": "--reservation",
    "constraint": "--constraint",
    "mem_mb": "--mem",
}
"""Resources, under the names that the Slurm plug-in of Snakemake has for them, that every way to Slurm spells alike."""

_OPTIONS = {
    **PLAIN_OPTIONS,
    "mem_mb_per_cpu": "--mem-per-cpu",
    "gres": "--gres",
    "runtime": "--time",
    "cpus_per_task": "--cpus-per-task",
}

_SUBMISSION_SECONDS = 60.0

_SETTINGS = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_CONF_SERVER")
"""Variables that tell Slurm's commands which cluster is meant."""

_NOT_FOR_STEPS = ("SBATCH_ARRAY_INX", "SBATCH_ERROR", "SBATCH_WAIT")
"""Settings of sbatch that we leave out: with them a job would be several, or print its errors where nobody looks for
them, or its number would not be known before its end."""

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of a job that is given none: Slurm's daemons add none of their own."""


def submit(request: JobRequest) -> str:
    """Hand a job or array to Slurm; returns its id. It gets its variables, which are stored nowhere else."""
    with contextlib.suppress(PermissionError):  # It may be a folder of its nodes, which this machine need not have.
        os.makedirs(os.path.dirname(request.log), exist_ok=True)
    answer = run_command(
        *sbatch_words(request),
        stdin=batch_script(request),
        environment=sbatch_environment(request.variables, os.environ),
        timeout=_SUBMISSION_SECONDS,
        ends_with_us=True,  # Otherwise it would submit a job of a dead driver, in addition to the one of its successor.
    )
    # Some sites print a greeting first; a cluster's name may follow the number.
    number = (answer.strip().splitlines() or [""])[-1].split(";")[0].strip()
    if not number.isdecimal():
        raise ClusterError(f"sbatch printed no job number, but {answer.strip()[-200:]!r}")
    return number


def sbatch_words(request: JobRequest) -> list[str]:
    resources = request.resources
    words = [
        "sbatch",
        "--parsable",
        f"--job-name={request.name}",
        f"--output={log_pattern(request.log, is_array=request.elements is not None)}",
        "--open-mode=append",  # A requeued job continues in the same file.
        f"--chdir={request.folder}",
        "--export=ALL",
        "--requeue" if request.requeue else "--no-requeue",
        *tasks(resources),
    ]
    if request.elements is not None:
        throttle = "" if request.at_once is None else f"%{request.at_once}"
        words.append(f"--array={indices_text(request.elements)}{throttle}")
    if request.warning_seconds is not None:  # Only to the process of the script, which knows how to handle it.
        words.append(f"--signal=B:USR1@{request.warning_seconds}")
    comments, extra = _comments_in(shlex.split(resources.get("slurm_extra") or ""))
    if request.tag is not None:
        comments.insert(0, str(request.tag))  # Without it nobody would find the job, and it would be submitted again.
    if comments:
        words.append(f"--comment={' '.join(comments)}")
    left_out = ("mem_mb",) if resources.get("mem_mb_per_cpu") else ()
    words += [
        f"{option}={resources[name]}"
        for name, option in _OPTIONS.items()
        if resources.get(name) not in (None, "") and name not in left_out
    ]
    if resources.get("gpu"):
        model = resources.get("gpu_model")
        words.append(f"--gpus-per-node={f'{model}:' if model else ''}{resources['gpu']}")
    if request.excluded_nodes:
        words.append(f"--exclude={','.join(request.excluded_nodes)}")
    return [*words, *extra]


def _comments_in(options: Iterable[str]) -> tuple[list[str], list[str]]:
    """The comment among options of sbatch, and the other options. Of two comments sbatch uses the last."""
    comments: list[str] = []
    others: list[str] = []
    words = iter(options)
    for word in words:
        option, has_value, value = word.partition("=")
        if option == "--comment":
            comments = [value if has_value else next(words, "")]
        else:
            others.append(word)
    return comments, others


def sbatch_environment(variables: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """The environment of sbatch, all of which its job gets: the variables of the job, and sbatch's own settings.

    That is how a job gets values: the only way that shows them to nobody. With `--export=NONE` it would get none, and
    Slurm would start a login shell on the node to find others, which takes seconds before each job.
    """
    settings = {
        name: ours[name]
        for name in ours
        if name in _SETTINGS or (name.startswith("SBATCH_") and name not in _NOT_FOR_STEPS)
    }
    return {"PATH": _PATH, **settings, **variables}


def tasks(resources: Mapping[str, Any]) -> list[str]:
    """One task on each machine, unless the job says otherwise: a rule that starts its processes itself, with MPI."""
    nodes = resources.get("nodes")
    options = {"tasks": "--ntasks", "tasks_per_node": "--ntasks-per-node"}
    own = [f"{option}={resources[name]}" for name, option in options.items() if resources.get(name)]
    if own:
        return [*([f"--nodes={nodes}"] if nodes else []), *own]
    return [f"--nodes={nodes or 1}", f"--ntasks={nodes or 1}", "--ntasks-per-node=1"]


def log_pattern(log: str, *, is_array: bool = False) -> str:
    """The name of a log in Slurm's syntax; for an element, `%j` would be a number that only Slurm knows."""
    return log.replace("%", "%%").replace(JOB, "%A_%a" if is_array else "%j")


def batch_script(request: JobRequest) -> str:
    return f"#!/usr/bin/env bash\n{request.script}\n"
