"""docker/Dockerfile, as far as it can be tried without Docker: what its steps make runs a step of a run.

The steps are those of the file itself. The job is the one that a cluster without shared files would be given.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from marin_rules import ExecutorStep
from marin_rules.driver.launch import Launcher
from marin_rules.plans.plan_file import write_plan
from marin_rules.settings.job_settings import JobSettings
from support.dockerfile import Image, Instruction, built, read_instructions
from support.image_step import CLIENTS, look_around
from support.lab import REPOSITORY
from support.small_plans import plan_of

DOCKERFILE = REPOSITORY / "docker" / "Dockerfile"
PYTHON = "/opt/marin-rules/bin/python"
SYSTEM_PROGRAMS = "/usr/sbin:/sbin"


@pytest.fixture
def image(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Image]:
    """The image, as a folder."""
    missing = os.geteuid() != 0 or not shutil.which("debootstrap", path=f"{os.environ['PATH']}:{SYSTEM_PROGRAMS}")
    if missing and not os.environ.get("CI"):
        pytest.skip("the image is built by root, with debootstrap: run scripts/ensure-debootstrap")
    assert request.config.cache is not None
    with built(DOCKERFILE, REPOSITORY, tmp_path / "root", request.config.cache.mkdir("debian")) as image:
        yield image


@pytest.mark.processes
def test_a_step_runs_in_the_image_and_not_as_root(image: Image, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    plan = plan_of(folder, ExecutorStep("look", look_around, {}))
    write_plan(plan, plan.run.plan_path)
    launcher = Launcher(plan, JobSettings(shared=False, python=PYTHON))
    launcher.prepare(plan.steps, say=pytest.fail)
    launch = launcher.for_step(plan.steps[0], cores=1, command="", folder="", log="")
    shutil.copytree(folder, image.path(str(folder)))
    for path in (folder, *folder.rglob("*")):
        shutil.chown(image.path(str(path)), 1000, 1000)

    image.run(["/bin/bash", "-c", launch.script], variables=launch.variables)

    (step,) = plan.steps
    output = image.path(step.output_path)
    assert (output / ".executor_status").read_text() == "SUCCESS"
    assert json.loads((output / ".artifact.json").read_text()) == {
        "uid": 1000,
        "home": "/home/marin",
        "python": PYTHON,
        "uv": "/usr/local/bin/uv",
        "imported": list(CLIENTS),
    }


def test_comments_and_continued_lines_of_a_dockerfile() -> None:
    text = "# one\nFROM debian\n\nRUN a \\\n    && b \\\n    # why\n    && c\nUSER ann\n"
    assert read_instructions(text) == [
        Instruction("FROM", "debian"),
        Instruction("RUN", "a && b && c"),
        Instruction("USER", "ann"),
    ]


def test_an_image_installs_only_what_the_locks_name() -> None:
    """No install without hashes, and no address of an index: each machine has its own."""
    commands = [each.rest for each in read_instructions(DOCKERFILE.read_text()) if each.word == "RUN"]
    installs = [part for command in commands for part in command.split("&&") if "pip install" in part]
    assert len(installs) == 2
    assert all("--require-hashes" in part for part in installs)
    assert "://" not in "".join(commands)
