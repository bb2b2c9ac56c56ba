"""`marin-rules submit` on one machine: drivers that outlive their terminal, and what is refused before anything starts.

What happens to drivers on Slurm is in tests/clusters/slurm/test_submitted_drivers.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from support.lab import REPOSITORY, Lab
from support.submitted_drivers import FAR_AND_NEAR, PROGRAM, Drivers, shut_gate

CONTROL_C = b"\x03"


@pytest.fixture
def drivers(lab: Lab) -> Drivers:
    return Drivers(lab, {"PATH": lab.path_without_clusters()})


@pytest.fixture
def chain(lab: Lab) -> Path:
    return lab.experiment(FAR_AND_NEAR)


@pytest.mark.parametrize("program", ["snakemake", "python"])
def test_a_run_without_a_terminal(program: str, drivers: Drivers, lab: Lab, chain: Path) -> None:
    words = drivers.snakemake(chain) if program == "snakemake" else ["python", chain, "--prefix", lab.prefix]
    shut_gate(lab, "near")
    name = drivers.submit(*words, options=("-e", "TOKEN", "--name", "mine"), env={"TOKEN": "sesame"})
    chain.write_text("this is no Python any more")
    lab.wait_until(lambda: drivers.attempts("near"), "the second step")
    listing = drivers.listing()
    assert re.search(rf"^{name} +mine +pid \d+ +RUNNING +\S+ +\S+ +experiment.py$", listing, re.MULTILINE), listing
    assert re.search(r"^near +pid \d+ +RUNNING", listing, re.MULTILINE), listing
    lab.open_gate()
    waited = drivers.run("jobs", "wait", "mine")
    assert (waited.code, waited.output) == (0, f"marin-rules: driver {name}: done\n")
    assert "[near] came to the end, token 6" in drivers.log(name)
    assert "all done, the results are in:" in drivers.run("jobs", "logs", name, "--tail", "3").output
    assert drivers.listing() == "nothing is running or queued\n"
    (told,) = json.loads(drivers.run("jobs", "list", "--json").output)["drivers"]
    assert (told["id"], told["state"], told["cluster"]) == (name, "ENDED (exit code 0)", None)


def test_a_driver_outlives_the_group_of_the_shell_that_submitted_it(drivers: Drivers, lab: Lab, chain: Path) -> None:
    shut_gate(lab, "near")
    shell = drivers.start("submit", "--", *drivers.snakemake(chain))
    shell.wait_for(lambda: drivers.attempts("near"), "the second step")
    os.killpg(shell.pid, signal.SIGHUP)
    os.killpg(shell.pid, signal.SIGKILL)
    lab.open_gate()
    assert drivers.run("jobs", "wait", "experiment").code == 0
    assert lab.status_of("near") == "SUCCESS"


def test_submit_follows_the_run_and_ends_with_its_exit_code(drivers: Drivers, lab: Lab) -> None:
    failing = lab.experiment(FAR_AND_NEAR.replace('print("came to the end, token"', 'raise ValueError("broken"'))
    ran = drivers.run("submit", "--", *drivers.snakemake(failing))
    assert ran.code == 1, ran.output
    assert "ValueError: ('broken'" in ran.output
    assert ran.output.rstrip().endswith("failed with exit code 1")
    assert drivers.run("jobs", "wait", "experiment").code == 1


def test_flags_of_snakemake_keep_their_meaning(drivers: Drivers, lab: Lab, chain: Path) -> None:
    name = drivers.submit(*drivers.snakemake(chain, "--until", "far", "-j", "1"))
    assert drivers.run("jobs", "wait", name).code == 0, drivers.log(name)
    assert (lab.status_of("far"), lab.status_of("near")) == ("SUCCESS", None)


@pytest.mark.parametrize("flags", [["-F"], ["-R", "far"], ["--config", "force=far"]])
def test_a_driver_whose_engine_is_killed_goes_on_where_it_was(
    flags: list[str], drivers: Drivers, lab: Lab, chain: Path
) -> None:
    """Also if steps are forced that were done before: each is done again once."""
    assert drivers.run("submit", "--", *drivers.snakemake(chain)).code == 0
    shut_gate(lab, "near")
    words = drivers.snakemake(chain, *(flags if flags[0] != "--config" else []))
    name = drivers.submit(*words, *(flags[1:] if flags[0] == "--config" else []))
    lab.wait_until(lambda: len(drivers.attempts("near")) == 2, "the second step")
    os.kill(drivers.engine(), signal.SIGKILL)
    lab.wait_until(
        lambda: "the engine was killed by signal 9; again (1 of at most 3)" in drivers.printed(name), "a word"
    )
    # Its worker has outlived the engine, and the new one waits for it.
    lab.wait_until(lambda: drivers.printed(name).count("2 steps: ") == 2, "the new engine")
    lab.open_gate()
    assert drivers.run("jobs", "wait", name).code == 0, drivers.log(name)
    assert [len(drivers.attempts(step)) for step in ("far", "near")] == [2, 2], drivers.log(name)


def test_a_driver_is_stopped(drivers: Drivers, lab: Lab, chain: Path) -> None:
    shut_gate(lab, "near")
    name = drivers.submit(*drivers.snakemake(chain))
    lab.wait_until(lambda: drivers.attempts("near"), "the second step")
    stopped = drivers.run("jobs", "stop", name)
    assert stopped.code == 0, stopped.output
    assert stopped.output.endswith(f"stopped driver {name}\n")
    assert lab.status_of("near") == "CANCELLED"
    assert not (lab.folder_of("near") / ".executor_status.lock").exists()
    waited = drivers.run("jobs", "wait", name)
    assert waited.code != 0
    assert waited.output == f"marin-rules: driver {name}: stopped\n"
    again = drivers.run("jobs", "stop", name)
    assert (again.code, again.output) == (1, f"marin-rules: driver {name} has ended already: STOPPED\n")


def test_a_driver_that_is_stopped_before_its_engine_listens(drivers: Drivers, lab: Lab, chain: Path) -> None:
    """A signal ends a Python that has only begun to import; the exit code is that of a stop all the same."""
    late = lab.folder / "late"
    late.mkdir()
    lines = [
        "import os",
        "if 'MARIN_RULES_SUPERVISOR' in os.environ:",
        "    open('engine has begun', 'w').close()",
        "    open('gate').read()",
    ]
    (late / "sitecustomize.py").write_text("\n".join(lines))
    name = drivers.submit(*drivers.snakemake(chain), env={"PYTHONPATH": str(late)})
    lab.wait_until((lab.folder / "engine has begun").exists, "the engine")
    stopped = drivers.run("jobs", "stop", name)
    assert stopped.code == 0, stopped.output
    waited = drivers.run("jobs", "wait", name)
    assert (waited.code, waited.output) == (130, f"marin-rules: driver {name}: stopped\n")


def test_a_driver_that_cannot_write_down_its_end_tries_again(drivers: Drivers, lab: Lab, chain: Path) -> None:
    """As on a full disk: its run has ended well, and is not to be taken for one that was killed."""
    shut_gate(lab, "near")
    name = drivers.submit(*drivers.snakemake(chain))
    lab.wait_until(lambda: drivers.attempts("near"), "the second step")
    in_the_way = drivers.folder / name / "end.json"
    in_the_way.mkdir()
    lab.open_gate()
    lab.wait_until(lambda: "cannot be recorded yet, and will try again" in drivers.printed(name), "a word")
    in_the_way.rmdir()
    waited = drivers.run("jobs", "wait", name)
    assert (waited.code, waited.output) == (0, f"marin-rules: driver {name}: done\n")


def test_a_driver_that_is_killed_with_all_of_it_is_gone_and_can_be_cleared_away(
    drivers: Drivers, lab: Lab, chain: Path
) -> None:
    shut_gate(lab, "near")
    name = drivers.submit(*drivers.snakemake(chain))
    lab.wait_until(lambda: drivers.attempts("near"), "the second step")
    lab.kill_everything()
    waited = drivers.run("jobs", "wait", name)
    assert waited.code == 1
    assert f"driver {name} is gone: it was killed" in waited.output
    assert "GONE (killed before it could say how the run ended)" in drivers.listing()
    assert drivers.run("jobs", "stop", name).code == 0
    assert drivers.run("jobs", "wait", name).code == 130
    assert drivers.listing() == "nothing is running or queued\n"


def test_without_a_terminal_an_interrupt_detaches(drivers: Drivers, lab: Lab, chain: Path) -> None:
    shut_gate(lab, "near")
    following = drivers.start("submit", "--", *drivers.snakemake(chain))
    following.wait_for(lambda: "start  near" in following.output, "the second step")
    following.interrupt()
    ended = following.wait()
    assert ended.code == 0
    assert re.search(
        r"continues without this terminal: `marin-rules jobs logs -f experiment-\S+` follows it", ended.output
    )
    lab.open_gate()
    assert drivers.run("jobs", "wait", "experiment").code == 0


TERMINAL = """
import os, pty, sys
os.dup2(os.open("keys", os.O_RDWR), 0)
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))
"""
"""Starts a command in a terminal, whose keys are pressed through the pipe `keys`."""


@pytest.mark.parametrize(("answer", "code", "status"), [("d", 0, "SUCCESS"), ("s", 130, "CANCELLED")])
def test_in_a_terminal_an_interrupt_asks(
    answer: str, code: int, status: str, drivers: Drivers, lab: Lab, chain: Path
) -> None:
    shut_gate(lab, "near")
    os.mkfifo(lab.folder / "keys")
    words = [PROGRAM, "submit", "--name", "mine", "--", *drivers.snakemake(chain)]
    following = lab.start([sys.executable, "-c", TERMINAL, *words], env=drivers.variables)
    following.wait_for(lambda: "start  near" in following.output, "the second step")
    questions = 0
    with open(lab.folder / "keys", "wb", buffering=0) as keys:
        for replies in (["c"], ["what?", answer]):
            keys.write(CONTROL_C)
            for reply in replies:
                questions += 1
                asked = partial(lambda count: following.output.count("or continue following (c)?") == count, questions)
                following.wait_for(asked, "a question")
                keys.write(f"{reply}\n".encode())
    assert following.wait().code == code, following.output
    if answer == "d":
        lab.open_gate()
    drivers.run("jobs", "wait", "mine")
    assert lab.status_of("near") == status


def test_a_name_is_taken_until_its_driver_has_ended(drivers: Drivers, lab: Lab, chain: Path) -> None:
    shut_gate(lab, "near")
    first = drivers.submit(*drivers.snakemake(chain), options=("--name", "mine"))
    refused = drivers.run("submit", "--no-wait", "--name", "mine", "--", *drivers.snakemake(chain))
    assert refused.code == 1
    assert f"the name mine is taken: driver {first} has it, and has not ended" in refused.output
    assert refused.output.endswith("stop that one first: marin-rules jobs stop mine\n")
    lab.open_gate()
    assert drivers.run("jobs", "wait", "mine").code == 0
    (lab.folder / "near waits").unlink()
    second = drivers.submit(*drivers.snakemake(chain), options=("--name", "mine"))
    assert drivers.run("jobs", "wait", "mine").output == f"marin-rules: driver {second}: done\n"


@pytest.mark.parametrize(
    ("options", "command", "said"),
    [
        ([], [], "what should be submitted?"),
        ([], ["make", "run"], "cannot submit 'make': only snakemake and python are supported"),
        ([], ["python", "nosuch.py"], "there is no experiment file nosuch.py"),
        ([], ["snakemake", "{snakefile}", "experiment=nosuch.py"], "there is no experiment file nosuch.py"),
        ([], ["python", "broken.py"], "SyntaxError"),
        ([], ["snakemake", "{snakefile}", "experiment=broken.py"], "broken.py is not valid Python: line 1"),
        ([], ["python", "experiment.py", "--dry_run"], "a dry run is not submitted"),
        ([], ["snakemake", "{snakefile}", "experiment=experiment.py", "-n"], "a dry run is not submitted"),
        ([], ["python", "experiment.py", "--nosuch"], "nosuch"),
        ([], ["snakemake", "{snakefile}", "experiment=experiment.py", "--dag"], "the command runs no steps"),
        ([], ["python", "after.py"], "after.py continues after executor_main (line 27)"),
        (["-e", "NOSUCH"], ["python", "experiment.py"], "-e NOSUCH: it is not set here"),
        (["-e", "2X=3"], ["python", "experiment.py"], "-e '2X': this is not the name of a variable"),
        (["--name", "a b"], ["python", "experiment.py"], "--name 'a b': write letters, digits"),
        (["--cluster", "nosuch"], ["python", "experiment.py"], "cluster 'nosuch': there is no nosuch.yaml in"),
        (["--cluster", "data"], ["python", "experiment.py"], "cluster data has no queue for drivers"),
        (["--cluster", "apart"], ["python", "experiment.py", "--prefix", "out"], "means nothing to them: choose"),
    ],
)
def test_what_is_refused_is_refused_before_anything_starts(
    options: list[str], command: list[str], said: str, drivers: Drivers, lab: Lab, chain: Path
) -> None:
    clusters = lab.folder / "config" / "clusters"
    clusters.mkdir(parents=True)
    (clusters / "data.yaml").write_text("data: {root: /data}\n")
    (clusters / "apart.yaml").write_text("slurm: {partition: cpu}\njobs: {shared: false}\n")
    (lab.folder / "broken.py").write_text("def\n")
    (lab.folder / "after.py").write_text(f"{chain.read_text()}    print('after')\n")
    words: list[str | Path] = []
    for word in command:
        words += ["--snakefile", REPOSITORY / "Snakefile", "--config"] if word == "{snakefile}" else [word]
    refused = drivers.run("submit", *options, "--", *words, env={"MARIN_PREFIX": str(lab.prefix)})
    assert refused.code == 1, refused.output
    assert said in refused.output, refused.output
    assert not lab.prefix.exists()
    assert not drivers.folder.exists() or [path.name for path in drivers.folder.iterdir()] in ([], [".lock"])


@pytest.mark.parametrize("action", ["logs", "stop", "wait"])
def test_a_driver_that_is_not_known(action: str, drivers: Drivers) -> None:
    refused = drivers.run("jobs", action, "nosuch-20261118-101010-abcdef")
    assert refused.code == 1
    assert re.search(r"^marin-rules: no (step|submitted driver) 'nosuch-2026", refused.output, re.MULTILINE)
    assert "`marin-rules jobs list` shows" in refused.output
