"""The Python that a job starts with on a node without the driver's files.

Either the cluster's file names one (`jobs: python:`) that has what the worker imports: the quickest way, and the right
one for images of containers and virtual machines, into which it is built. Or uv, which the node must then have, makes
one: of the driver's minor version, with the worker's packages in the driver's versions, once for all jobs of a user on
that node. The job of a driver gets one with everything that a driver imports.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from dataclasses import dataclass

from marin_rules.settings.job_settings import JobSettings
from marin_rules.software.bootstrap import EXIT_NOT_OURS

_MAKING = """\
folder={folder}
python=$folder/{name}/bin/python
mkdir -p -m 700 "$folder"
above=0$(stat -c %a "$folder/..")
# Before anything in it is executed: in a folder like /tmp anybody can have made one of that name.
if [[ ! -d $folder || -L $folder || ! -O $folder ]] || ((0$(stat -c %a "$folder") & 022)) ||
    ((above & 02 && !(above & 01000))); then
    echo "marin-rules: nothing was started: $folder is not this user's own folder, or others could exchange it." \
        "Remove it, or name another folder in 'jobs: scratch:' of the cluster's file." >&2
    exit {not_ours}
fi
if [[ ! -x $python ]]; then
    making=$(mktemp -d "$folder/.making-XXXXXX") || exit
    export HOME=${{HOME:-~}}
    cd / # Whoever can write to a folder above could leave settings for uv there.
    uv venv --quiet --relocatable --no-project --python {version} "$making/python" &&
        uv pip install --quiet --python "$making/python/bin/python" {requirements} || exit
    mv -T "$making/python" "$folder/{name}" 2>/dev/null || [[ -x $python ]] || exit
    rm -rf "$making"
fi"""


@dataclass(frozen=True)
class NodePython:
    """How a script gets a Python."""

    lines: tuple[str, ...]
    """Creates it, if it is missing."""

    word: str
    """Starts it."""


def node_python(settings: JobSettings, prefix: str, version: str, *, drives: bool = False) -> NodePython:
    """The Python of a node, for a run with this prefix and this version of Python; `drives`: for its driver."""
    if settings.python is not None:
        return NodePython((), shlex.quote(settings.python))
    # Imported here: it needs `packaging`, which only drivers have.
    from marin_rules.software.requirements import driver_requirements, worker_requirements

    requirements = driver_requirements(prefix) if drives else worker_requirements(prefix)
    digest = hashlib.sha256(" ".join((version, *requirements)).encode()).hexdigest()
    making = _MAKING.format(
        folder=f"{shlex.quote(os.path.join(settings.scratch, 'marin-rules-'))}$UID",
        name=f"python-{digest[:16]}",
        version=shlex.quote(version),
        requirements=shlex.join(requirements),
        not_ours=EXIT_NOT_OURS,
    )
    return NodePython((making,), '"$python"')
