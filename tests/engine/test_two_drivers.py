"""Two runs that share steps: each step runs once, and whoever lost a step's lease stops and writes nothing."""

import functools
import json
import sys
import time
from collections import Counter
from pathlib import Path

from marin_rules.state.step_lease import lease_path
from marin_rules.storage.leases.local import LocalLeaseStore
from marin_rules.storage.leases.owner import Owner
from marin_rules.storage.leases.record import LeaseRecord
from support.lab import Lab

SHARING = """
    import os
    from marin_rules import ExecutorStep, executor_main, versioned

    def note(config):
        with open("ran", "a") as file:
            file.write(config["name"] + "\\n")

    def wait(config):
        note(config)
        open("gate").read()

    def step(name, *inputs, fn=note):
        return ExecutorStep(name=name, fn=fn, config={"name": versioned(name), "inputs": list(inputs)})

    first = step("shared/first", fn=wait)
    second = step("shared/second", first)
    third = step("shared/third", first)
"""


def test_two_drivers_run_each_shared_step_once(lab: Lab, tmp_path: Path) -> None:
    files = [
        lab.experiment(SHARING + f'\n    executor_main(steps=[step("own/{name}", second, third)])\n', f"{name}.py")
        for name in ("one", "two")
    ]
    runs = [lab.start_snakemake("-j", "2", experiment=file) for file in files]
    held_by = "[shared/first] waiting: held by "
    waiting = runs[0].wait_for(lambda: [run for run in runs if held_by in run.output], "one run waits for the other")
    assert len(waiting) == 1
    (lease,) = lab.prefix.glob("shared/first-*/.executor_status.lock")
    holder = LeaseRecord.parse(lease.read_bytes(), str(lease)).owner
    assert holder is not None
    line = next(line for line in waiting[0].output.splitlines() if line.startswith(held_by))
    assert f"{holder.worker_id} (pid {holder.pid} on {holder.host}, user {holder.user}), running since " in line
    lab.open_gate()

    for run in runs:
        result = run.wait()
        assert result.code == 0, result.output
    assert Counter((tmp_path / "ran").read_text().split()) == Counter(
        ["shared/first", "shared/second", "shared/third", "own/one", "own/two"]
    )
    assert {path.read_text() for path in lab.prefix.rglob(".executor_status")} == {"SUCCESS"}
    assert list(lab.prefix.rglob(".executor_status.lock")) == []


OVERRIDING = """
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, versioned

    def save(config):
        with open(config["path"] + "/data", "w") as file:
            file.write(str(config["value"]))
        open("gate").read()

    config = {{"value": versioned({value}), "path": THIS_OUTPUT_PATH}}
    executor_main(steps=[ExecutorStep("best", save, config, override_output_path="{path}")])
"""


def test_the_other_version_on_an_override_is_not_taken_for_this_one(lab: Lab) -> None:
    (lab.prefix / "real").mkdir(parents=True)
    (lab.prefix / "link").symlink_to("real")
    paths = ["real/best", "real/best", "link/best"]
    files = [
        lab.experiment(OVERRIDING.format(value=value, path=path), f"value{value}.py")
        for value, path in enumerate(paths)
    ]
    first = lab.start_snakemake("-j", "1", experiment=files[0])
    info = lab.prefix / "real/best/.executor_info"
    first.wait_for(info.exists, "the start of the first version is written down")
    info.unlink()  # As the others see the folder if they look a moment earlier.
    others = [lab.start_snakemake("-j", "1", experiment=file) for file in files[1:]]
    for other in others:
        other.wait_for(lambda other=other: "[best] waiting: held by" in other.output, "it waits for the first")
    lab.open_gate()
    result = first.wait()
    assert result.code == 0, result.output
    others.append(lab.start_snakemake("-n", experiment=files[2]))  # The same without a race.
    for other, path in zip(others, [*paths[1:], paths[2]], strict=True):
        result = other.wait()
        assert result.code == 1, result.output
        told = f"step 'best': its override_output_path {lab.prefix / path} already holds another version"
        assert told in result.output, result.output
        assert "digits" not in result.output
        assert "done by the other run" not in result.output
    assert (lab.prefix / "real/best/data").read_text() == "0"
    assert (lab.prefix / "real/best/.executor_status").read_text() == "SUCCESS"
    again = lab.snakemake("-n", experiment=files[0])
    assert again.cached == ["best"], again.output


HEARTBEAT_SECONDS = 0.5
PIPE_BYTES = 1 << 16
"""What a pipe takes while nobody reads."""

WORKER = f"""
    import os
    import signal
    import subprocess
    import sys
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep
    from marin_rules.worker import worker
    from marin_rules.plans.freezing import freeze
    from marin_rules.plans.run import new_run
    from marin_rules.plan import make_plan

    def hang(path):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "1000"])
        with open("pids.new", "w") as file:
            file.write(f"{{os.getpid()}} {{child.pid}}")
        os.rename("pids.new", "pids")
        child.wait()

    def talk(path):
        for _ in range(10_000):
            print("x" * 100)
        hang(path)

    if __name__ == "__main__":
        os.environ["MARIN_LEASE_LIFETIME_SECONDS"] = "{3 * HEARTBEAT_SECONDS}"
        fn = {{"hangs": hang, "talks": talk}}[sys.argv[1]]
        plan = make_plan([ExecutorStep(name=sys.argv[1], fn=fn, config=THIS_OUTPUT_PATH)], prefix="out")
        frozen = freeze(plan, new_run(prefix="out", caller_path=__file__))
        sys.exit(worker.Worker(frozen, frozen.steps[0]).run())
"""


def test_a_worker_that_lost_its_lease_ends_its_step_and_writes_nothing(lab: Lab, tmp_path: Path) -> None:
    run = lab.start([sys.executable, lab.experiment(WORKER, "work.py"), "hangs"])
    run.wait_for((tmp_path / "pids").exists, "the step runs")
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    folder = lab.folder_of("hangs")
    run.wait_for((folder / ".executor_info").exists, "its start is written down")
    info = (folder / ".executor_info").read_bytes()

    # A thief, as a worker on another machine that has seen no heartbeat for long enough.
    store = LocalLeaseStore(lease_path(str(folder)))
    successor = LeaseRecord.first(Owner.current(), epoch=2, now=time.time()).to_bytes()
    stolen = None
    while stolen is None:  # A heartbeat may come between the two.
        snapshot = store.read()
        assert snapshot is not None
        stolen = store.replace(successor, snapshot.version)
    began = time.monotonic()
    assert store.commit(stolen, str(folder / ".executor_status"), b"SUCCESS")

    result = run.wait()
    assert time.monotonic() - began < HEARTBEAT_SECONDS + 5
    assert result.code == 75
    assert "[hangs] lost its lease and was ended: " in result.output
    assert run.alive() == []
    assert not any(lab.is_running(pid) for pid in pids)
    assert (folder / ".executor_status").read_bytes() == b"SUCCESS"
    assert (folder / ".executor_status.lock").read_bytes() == successor
    assert (folder / ".executor_info").read_bytes() == info


def test_a_terminal_that_nobody_reads_does_not_cost_the_lease(lab: Lab) -> None:
    """As after Ctrl-S, or in a pager: the step may have to wait, but its worker still shows that it is alive."""
    pipe = '"$@" | sleep 1000'
    run = lab.start(["bash", "-c", pipe, "bash", sys.executable, lab.experiment(WORKER, "work.py"), "talks"])

    def logged() -> int:
        return sum(path.stat().st_size for path in lab.prefix.glob("talks-*/.executor_log"))

    # The labels come on top of what is logged.
    run.wait_for(lambda: logged() > 0.9 * PIPE_BYTES, "the pipe is full")
    (lease,) = lab.prefix.glob("talks-*/.executor_status.lock")
    for _ in range(3):
        before = lease.read_bytes()
        run.wait_for(functools.partial(has_changed, lease, before), "a heartbeat", HEARTBEAT_SECONDS + 5)


def has_changed(path: Path, before: bytes) -> bool:
    return path.read_bytes() != before


def test_what_fails_in_a_worker_of_marins_is_no_reason_to_look_for_a_log(lab: Lab) -> None:
    file = lab.experiment(
        """
        from marin_rules import ExecutorStep, executor_main
        executor_main([ExecutorStep("raw", print, None, override_output_path="raw")])
        """
    )
    folder = lab.prefix / "raw"
    folder.mkdir(parents=True)
    lease = folder / ".executor_status.lock"
    lease.write_text(json.dumps({"worker_id": "ray-7-140234866280128", "timestamp": time.time()}))
    (folder / ".executor_status").write_text("RUNNING")
    run = lab.start([sys.executable, file, "--prefix", lab.prefix])
    run.wait_for(lambda: "[raw] waiting: held by ray-7-140234866280128" in run.output, "it waits for Marin's worker")
    (folder / ".executor_status").write_text("FAILED")
    lease.unlink()
    ended = run.wait()
    assert ended.code == 1, ended.output
    assert (
        "the step failed in the other run that had it; its worker left no log, and those of Marin leave" in ended.output
    )
