"""What a host of a TPU slice runs at every boot: pure.

The same as the first machine of the step's job, with a few variables that say who it is. On hosts with a container they
run in that. The script can be read by everybody who may look at the slice: it holds no secrets, only their locations,
and the host fetches them itself.

The host's program has a dead man's switch (`host`). If the program does not even start, for lack of its image or its
code, the script itself stands in: it reports the reason where the step's worker finds it, and finally deletes the
slice.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from marin_rules.clusters.protocol import RefusedError

LARGEST_BYTES = 256 * 1024
"""The size of a script: no value of Google's metadata may be longer."""

MOST_FAILURES = 130
"""How often in a row a host's program may end at once, before the slice is deleted: more than 20 minutes, by when a
worker that lives has given the slice up."""

_PAUSE_SECONDS = 10
"""Before a host's program is started again."""

_LONG_SECONDS = 600
"""A program that ran for this long had started."""

_TELL_EVERY = 12
_LAST_LINES = 20

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEAD = "#!/usr/bin/env bash\n# Started by the worker of a step of marin-rules; runs at every boot of this host.\n"

_UNTIL_IT_ENDS_WELL = """\
PATH=$PATH:/snap/bin # Where Ubuntu has gcloud.
set -o pipefail
log=$(mktemp)
failures=0
until
    began=$SECONDS
    (
{program}
    ) 2>&1 | tee "$log"
do
    ((SECONDS - began > {long})) && failures=0
    ((failures++ % {every})) || tail -n {lines} "$log" | gcloud storage cp - {boot_log}
    ((failures < {most})) || {delete}
    sleep {pause}
done
"""


@dataclass(frozen=True)
class HostPlace:
    """Where a host belongs."""

    project: str
    zone: str
    slice_id: str
    boot_log: str
    """The object for the last output of a host whose program does not start."""


def startup_script(variables: Mapping[str, str], script: str, image: str | None, place: HostPlace) -> str:
    """A script that sets variables, and runs what the job's own machine has run; in a container if one is named.

    `RefusedError` if that cannot be.
    """
    wrong = [name for name in variables if not _NAME.fullmatch(name)]
    if wrong:
        raise RefusedError(f"hosts of TPU slices cannot get the variable {wrong[0]!r}: bash has no such names")
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items()))
    program = script if image is None else _in_container(script, image, variables)
    text = f"{_HEAD}{exports}{_repeated(program, place)}"
    size = len(text.encode())
    if size > LARGEST_BYTES:
        raise RefusedError(
            f"the data for hosts of TPU slices has {size:,} bytes, and Google's metadata takes {LARGEST_BYTES:,}: give"
            " the step fewer or shorter variables"
        )
    return text


def _in_container(script: str, image: str, variables: Mapping[str, str]) -> str:
    registry = image.partition("/")[0]
    login = f"gcloud auth configure-docker {shlex.quote(registry)} --quiet\n" if registry.endswith(".pkg.dev") else ""
    names = " ".join(f"--env {name}" for name in sorted(variables))
    run = f"docker run --rm --privileged --network=host --ipc=host {names} --entrypoint /bin/bash"
    return f"{login}{run} {shlex.quote(image)} -c {shlex.quote(script)}"


def _repeated(program: str, place: HostPlace) -> str:
    delete = (
        *("gcloud", "compute", "tpus", "queued-resources", "delete", place.slice_id),
        *(f"--zone={place.zone}", f"--project={place.project}", "--force", "--quiet"),
    )
    return _UNTIL_IT_ENDS_WELL.format(
        program=program,
        boot_log=shlex.quote(place.boot_log),
        delete=shlex.join(delete),
        long=_LONG_SECONDS,
        every=_TELL_EVERY,
        lines=_LAST_LINES,
        most=MOST_FAILURES,
        pause=_PAUSE_SECONDS,
    )
