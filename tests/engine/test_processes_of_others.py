"""What a step leaves running as another user cannot be ended: the run says which process that is, and goes on."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from support.lab import Lab

OTHER_USER = 12345
"""A user that no test machine has."""

needs_root = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("setpriv") is None,
    reason="only root can start processes as another user, and setpriv takes the right to end them away",
)
WITHOUT_THE_RIGHT_TO_KILL = ("setpriv", "--bounding-set=-kill", "--inh-caps=-kill")
"""So root meets what others meet after `sudo`: EPERM."""

EXPERIMENT = """
    import subprocess
    import os
    from marin_rules import ExecutorStep, executor_main, output_path_of, this_output_path

    def leave(config):
        left = subprocess.Popen(["sleep", "600"], user={user}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(config["pid"], "w") as file:
            file.write(str(left.pid))

    def become(config):
        print("as another user", flush=True)
        os.setuid({user})
        os.execvp("sleep", ["sleep", "600"])

    def follow(config):
        return open(config["pid"]).read()

    first = ExecutorStep("first", leave, {{"pid": this_output_path("pid")}})
    second = ExecutorStep("second", follow, {{"pid": output_path_of(first, "pid")}})
    steps = [second] if os.environ.get("BECOME") is None else [ExecutorStep("other", become, {{}})]
    executor_main(steps=steps)
"""


@needs_root
def test_a_process_of_another_user_that_a_step_leaves_ends_neither_worker_nor_server(lab: Lab) -> None:
    path = lab.experiment(EXPERIMENT.format(user=OTHER_USER))
    run = lab.start([*WITHOUT_THE_RIGHT_TO_KILL, *_python(path, lab.prefix)]).wait()
    assert run.code == 0, run.output
    assert (lab.status_of("first"), lab.status_of("second")) == ("SUCCESS", "SUCCESS")
    left = int(next(lab.prefix.glob("first-*/pid")).read_text())
    assert lab.is_running(left)
    assert run.output.count(f"[first] left running: process {left} (sleep 600)") == 1, run.output
    assert "[second] left running" not in run.output
    assert "Traceback" not in run.output


@needs_root
def test_a_step_that_became_another_user_does_not_hold_up_its_worker_for_ever(lab: Lab) -> None:
    path = lab.experiment(EXPERIMENT.format(user=OTHER_USER))
    run = lab.start([*WITHOUT_THE_RIGHT_TO_KILL, *_python(path, lab.prefix)], env={"BECOME": "1"})
    run.wait_for(lambda: "as another user" in run.output, "the step")
    run.interrupt()
    result = run.wait()
    assert result.code != 0
    assert "[other] left running: process" in result.output
    assert lab.status_of("other") == "CANCELLED"
    assert "Traceback" not in result.output


def _python(path: Path, prefix: Path) -> list[str]:
    return [sys.executable, str(path), "--prefix", str(prefix)]
