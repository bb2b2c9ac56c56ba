"""What starts a part of this package on a machine that has none of the driver's files: lines of bash.

Everything it needs is below the prefix, and the script is the `bootstrap` that fetches it: the package as an archive,
by its digest. Nothing else is executed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from marin_rules.clusters.protocol import JOB
from marin_rules.driver.node_python import NodePython
from marin_rules.errors import SettingsError
from marin_rules.settings.job_settings import JobSettings
from marin_rules.software import bootstrap
from marin_rules.urls import is_url

_END = "END_OF_BOOTSTRAP"


def start_lines(python: NodePython, archive: str, digest: str, version: str, scratch: str) -> str:
    """Bash that starts the module of its arguments. `archive` is where the package is, `version` that of the driver's
    Python."""
    words = shlex.join([archive, digest, version, scratch])
    source = Path(bootstrap.__file__).read_text(encoding="utf-8")
    return "\n".join([*python.lines, f"exec {python.word} -I - {words} \"$@\" <<'{_END}'", f"{source}{_END}"])


def log_there(settings: JobSettings) -> str:
    """What jobs print to on such machines, `JOB` for the job's id."""
    return os.path.join(settings.scratch, f"marin-rules-{JOB}.log")


def check_prefix(paths: Iterable[str], *, has_no_disk: bool) -> None:
    """Refuse paths of the prefix that mean nothing to such machines; `has_no_disk`: they never have one of ours."""
    for path in paths:
        if has_no_disk and not is_url(path):
            raise SettingsError(
                f"machines of this cluster have no disk in common with this one, and would not find {path!r}:"
                " choose a prefix in a bucket, as in --config prefix=gs://BUCKET/FOLDER"
            )
        if not is_url(path) and not os.path.isabs(path):
            raise SettingsError(
                f"the cluster's nodes do not share this machine's files (jobs: shared: false), so that {path}, in"
                f" {os.getcwd()}, means nothing to them: choose a prefix in a bucket, or an absolute path that"
                " they all have"
            )
