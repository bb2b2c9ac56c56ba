"""A machine that loses power: what a step has written is there after its SUCCESS, and no book ever comes back empty.

No power is cut here. Every Python of the run notes what it asks the disk to keep, by `fsync` and `fadvise`, and what it
gives a name.
"""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from support.lab import Lab

EXPERIMENT = """
    import os
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main

    def write(path):
        os.mkdir(os.path.join(path, "deep"))
        for name in ("a", "deep/b"):
            with open(os.path.join(path, name), "w") as file:
                file.write(name)

    executor_main(steps=[ExecutorStep("write", write, THIS_OUTPUT_PATH)])
"""

NOTE = """
    import os

    fsync = os.fsync

    def noting(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.basename(path) == os.environ.get("BROKEN"):
            raise OSError(5, "Input/output error")
        fsync(descriptor)
        status = os.path.join(os.path.dirname(path), ".executor_status")
        said = open(status).read().strip() if os.path.exists(status) else ""
        with open(os.environ["NOTES"], "a") as notes:
            notes.write(f"{said} {path}\\n")

    os.fsync = noting

    def note_before(call, write):
        def noting(*arguments):
            with open(os.environ["NAMES"], "a") as names:
                names.write(write(*arguments))
            return call(*arguments)
        return noting

    def asked(descriptor, *rest):
        return "asked {}\\n".format(os.readlink(f"/proc/self/fd/{descriptor}"))

    def kept(descriptor):
        return "kept {}\\n".format(os.readlink(f"/proc/self/fd/{descriptor}"))

    def named(old, new):
        return f"named {old} {new}\\n"

    os.posix_fadvise = note_before(os.posix_fadvise, asked)
    os.fsync = note_before(os.fsync, kept)
    os.replace = note_before(os.replace, named)
    os.link = note_before(os.link, named)
"""


@pytest.fixture
def notes(lab: Lab) -> Path:
    """What was brought to the disk, after the status that the step had by then."""
    noting = lab.folder / "noting"
    noting.mkdir()
    (noting / "sitecustomize.py").write_text("\n".join(line.removeprefix("    ") for line in NOTE.splitlines()))
    notes, names = str(lab.folder / "notes"), str(lab.folder / "names")
    lab.environment |= {"PYTHONPATH": str(noting), "NOTES": notes, "NAMES": names}
    return lab.folder / "notes"


def test_what_a_step_has_written_is_on_the_disk_before_its_success(lab: Lab, notes: Path) -> None:
    assert lab.snakemake(experiment=lab.experiment(EXPERIMENT)).code == 0
    assert lab.status_of("write") == "SUCCESS"
    output = lab.folder_of("write")
    kept = [line.rpartition(" ")[2] for line in notes.read_text().splitlines() if not line.startswith("SUCCESS")]
    assert {str(output), *(str(output / name) for name in ("a", "deep", "deep/b"))} <= set(kept)


def test_what_the_disk_did_not_take_is_no_success(lab: Lab, notes: Path) -> None:
    file = lab.experiment(EXPERIMENT.replace("os.mkdir(", "os.makedirs(exist_ok=True, name="))
    result = lab.snakemake(experiment=file, env={"BROKEN": "b"})
    assert result.code != 0
    path = lab.folder_of("write") / "deep" / "b"
    assert f"what it had written could not be flushed to disk: [Errno 5] Input/output error: '{path}'" in result.output
    assert lab.status_of("write") == "FAILED"
    assert lab.snakemake(experiment=file).code == 0
    assert lab.status_of("write") == "SUCCESS"


SLOW = """
    import os
    import time

    fsync = os.fsync

    def slow(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        log = os.path.join(os.path.dirname(path), ".executor_log")
        while os.path.basename(path) == "a" and "waiting for its files" not in open(log).read():
            time.sleep(0.01)
        fsync(descriptor)

    os.fsync = slow
"""


def test_a_step_that_waits_for_the_disk_says_so(lab: Lab) -> None:
    slow = lab.folder / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(textwrap.dedent(SLOW))
    env = {"PYTHONPATH": str(slow), "MARIN_STEP_END_SECONDS": "1"}
    result = lab.snakemake(experiment=lab.experiment(EXPERIMENT), env=env)
    assert result.code == 0, result.output
    assert "[write] its function has returned; waiting for its files to be on disk" in result.output


def test_no_book_is_named_before_the_disk_was_asked_for_it(lab: Lab, notes: Path) -> None:
    """Else a file system that writes names after a few seconds and data after half a minute (ext4) would come back with
    an empty book, of which nobody knows what it said."""
    assert lab.snakemake(experiment=lab.experiment(EXPERIMENT)).code == 0
    asked: dict[str, str] = {}
    named: list[str] = []
    last: dict[str, str] = {}
    for line in (lab.folder / "names").read_text().splitlines():
        what, path, *new = line.split(" ")
        if what != "named":
            asked[path] = what
        elif os.path.dirname(new[0]) == str(lab.folder_of("write")):
            assert path in asked, new
            named.append(os.path.basename(new[0]))
            last[named[-1]] = asked[path]
    assert named.count(".executor_status") == 2  # RUNNING and SUCCESS.
    assert {".executor_info", ".executor_status.lock", ".artifact.json"} <= set(named)
    assert {last[name] for name in (".executor_info", ".artifact.json", ".executor_status")} == {"kept"}
