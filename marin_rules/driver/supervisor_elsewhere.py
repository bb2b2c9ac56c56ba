"""`python -m marin_rules.driver.supervisor_elsewhere RECORD DIGEST`: a submitted driver on a machine without our files.

Its job has fetched the package (see `software.bootstrap`). This takes the record at RECORD, unless its SHA-256 is not
DIGEST, and supervises the driver in a folder of its own, which is removed at the end. The driver's output grows in its
place below the prefix, where its end is also recorded. Of several jobs that were submitted for a driver, the one that
claims the place first drives; the others end.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import sys
import tempfile
from functools import partial

from marin_rules.clusters.allocation import Allocation
from marin_rules.driver.published_output import PublishedOutput
from marin_rules.driver.sent_driver import CODE
from marin_rules.driver.supervisor import LAST_WORDS_SECONDS, Supervisor, say, say_begin, supervise
from marin_rules.errors import MarinRulesError
from marin_rules.project import PACKAGE
from marin_rules.software.bootstrap import EXIT_DAMAGED, EXIT_WRONG_PYTHON
from marin_rules.software.code_archive import PLUGINS_FOLDER
from marin_rules.state.driver_record import DriverRecord
from marin_rules.storage.files import read_bytes
from marin_rules.storage.leases.owner import Owner

_ENGINE = "snakemake"


def main(path: str, digest: str) -> int:
    data = read_bytes(path)
    if data is None:
        print(f"marin-rules: there is no driver at {path}: its submission was given up", file=sys.stderr)
        return 1
    if hashlib.sha256(data).hexdigest() != digest:
        print(
            f"marin-rules: {path} is not what was submitted: it is damaged, or somebody has put another in its place."
            " None of it was run. See who can write there, and submit the run again.",
            file=sys.stderr,
        )
        return EXIT_DAMAGED
    record = DriverRecord.parse(data)
    return supervise(record, partial(_drive, record))


def _drive(record: DriverRecord, allocation: Allocation | None) -> int:
    with tempfile.TemporaryDirectory(prefix="driver-", dir=os.getcwd()) as folder:
        os.chdir(folder)
        os.symlink(PACKAGE.parent, CODE)
        _prepare(folder)
        with contextlib.closing(PublishedOutput(record.log_path)) as output:
            if importlib.util.find_spec(_ENGINE) is None:
                say(_no_engine())
                output.publish(LAST_WORDS_SECONDS)
                record.write_end(EXIT_WRONG_PYTHON)
                return EXIT_WRONG_PYTHON
            record.register_run(Owner.current())
            say_begin(record, allocation)
            try:
                return Supervisor(record, allocation, output.publish).run()
            finally:
                os.chdir("/")


def _prepare(folder: str) -> None:
    """Let the engine find our plug-ins, and keep what it records for this machine in the driver's folder."""
    plugins = os.path.join(folder, CODE, PACKAGE.name, PLUGINS_FOLDER)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), plugins]))
    os.environ["XDG_STATE_HOME"] = os.path.join(folder, "state")


def _no_engine() -> str:
    return (
        f"the driver cannot run: {sys.executable} has no Snakemake, which drivers need and steps do not. Name a Python"
        " that has all of marin-rules' packages in `jobs: python:` of the cluster's file (docker/Dockerfile makes an"
        " image with one), or leave `jobs: python:` out, and uv makes one; else submit with --here"
    )


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except (MarinRulesError, OSError) as error:
        print(f"marin-rules: {error}", file=sys.stderr)
        sys.exit(1)
