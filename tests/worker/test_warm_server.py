"""Many short jobs at once: each gets the answer that is meant for it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from marin_rules.worker.command import run_step_command
from support.lab import Lab

STEPS = 150


def test_many_short_steps_side_by_side(lab: Lab, tmp_path: Path) -> None:
    path = lab.experiment(
        f"""
        from marin_rules import ExecutorStep, executor_main, this_output_path, versioned

        def write(config):
            with open(config["path"], "w") as file:
                file.write(str(config["number"]))

        executor_main(steps=[
            ExecutorStep(f"short/{{i}}", write, {{"number": versioned(i), "path": this_output_path("number")}})
            for i in range({STEPS})
        ])
        """
    )
    result = lab.snakemake("-j", "8", experiment=path)
    assert result.code == 0, result.output
    numbers = sorted(int(file.read_text()) for file in tmp_path.rglob("short/*/number"))
    assert numbers == list(range(STEPS))


OBEY_MODES = ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override") if os.getuid() == 0 else ()
"""Root writes where nobody may, unless this right is taken away."""

DIRECTLY = ["-P", "-m", "marin_rules.worker", "--plan", "p", "--step", "s"]


def run_step(warm: Path) -> list[str]:
    """What a job starts, with `echo` in the place of Python."""
    command = [*OBEY_MODES, "bash", "-euo", "pipefail", str(run_step_command()), "echo", "-", *DIRECTLY[3:]]
    environment = {"PATH": os.environ["PATH"], "MARIN_RULES_WARM": str(warm)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.processes
@pytest.mark.skipif(bool(OBEY_MODES) and shutil.which("setpriv") is None, reason="root needs setpriv to obey modes")
def test_a_job_that_can_create_nothing_for_the_server_starts_a_python_itself(tmp_path: Path) -> None:
    warm = tmp_path / "warm"
    warm.mkdir()
    (warm / "pid").write_text(f"{os.getpid()}\n")
    (warm / "taken.0").touch()
    warm.chmod(0o500)  # As if there were no inodes left.
    assert run_step(warm) == DIRECTLY


@pytest.mark.processes
@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_a_job_does_not_talk_to_the_server_of_another_user(tmp_path: Path) -> None:
    warm = tmp_path / "warm"
    warm.mkdir()
    (warm / "pid").write_text(f"{os.getpid()}\n")
    link = tmp_path / "link"
    link.symlink_to(warm)
    assert run_step(link) == DIRECTLY
    os.chown(warm, 12345, 12345)
    assert run_step(warm) == DIRECTLY


@pytest.mark.processes
@pytest.mark.parametrize(
    ("of_driver", "of_job", "is_beside_driver"),
    [
        ("", {}, True),
        ("A_JOB=", {}, True),
        ("A_JOB=", {"A_JOB": "5"}, False),
        ("A_JOB=5", {"A_JOB": "5"}, True),
        ("A_JOB=4", {"A_JOB": "5"}, False),
        ("A_JOB=4", {}, False),
        ("A_JOB=4 B_JOB=", {"A_JOB": "4"}, True),
        ("A_JOB=4 B_JOB=", {"A_JOB": "4", "B_JOB": "x y"}, False),
    ],
)
def test_only_a_job_beside_the_driver_talks_to_its_server(
    of_driver: str, of_job: dict[str, str], is_beside_driver: bool, tmp_path: Path
) -> None:
    """A job of a cluster may be on the driver's machine by chance: it stays in what the cluster has given to it."""
    for name in ("requests", "reply.0"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "pid").write_text(f"{os.getpid()}\n")
    requests, reply = (os.open(tmp_path / name, os.O_RDWR | os.O_NONBLOCK) for name in ("requests", "reply.0"))
    os.write(reply, b"exit 7\n")
    command = ["bash", "-euo", "pipefail", str(run_step_command()), "echo", "-", *DIRECTLY[3:]]
    own = {"MARIN_RULES_WARM": str(tmp_path), "MARIN_RULES_DRIVER_JOB": of_driver}
    environment = {"PATH": os.environ["PATH"], **own, **of_job}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    if is_beside_driver:
        assert (done.returncode, os.read(requests, 1000)) == (7, b"0\t--plan\tp\t--step\ts\n")
    else:
        assert (done.returncode, done.stdout.split()) == (0, DIRECTLY)
    os.close(requests)
    os.close(reply)
