"""Steps that fail, die, or talk a lot: what becomes of them, of what hangs on them, and what people get to see."""

import json
import shutil
from pathlib import Path

import pytest

from support.lab import Lab


def test_a_failed_step_stops_only_what_depends_on_it_and_can_be_tried_again(lab: Lab, tmp_path: Path) -> None:
    file = lab.experiment(
        """
        import os
        from marin_rules import ExecutorStep, executor_main

        def note(config):
            with open("ran", "a") as file:
                file.write(config["name"] + "\\n")

        def fail_until_mended(config):
            note(config)
            print("looking for the data")
            if not os.path.exists("mended"):
                raise ValueError("no data\\nanywhere")

        def step(name, fn=note, after=()):
            return ExecutorStep(name=name, fn=fn, config={"name": name, "after": list(after)})

        bad = step("bad", fail_until_mended)
        child = step("child", after=[bad])
        grandchild = step("grandchild", after=[child])
        free = step("free")
        last = step("last", after=[free])

        if __name__ == "__main__":
            executor_main(steps=[grandchild, last])
        """
    )

    def ran() -> list[str]:
        """The steps that ran since this was last asked."""
        lines = (tmp_path / "ran").read_text().split()
        (tmp_path / "ran").unlink()
        return sorted(lines)

    result = lab.snakemake("--keep-going", experiment=file)
    assert result.code == 1
    assert ran() == ["bad", "free", "last"]
    assert [lab.status_of(name) for name in ("bad", "child", "grandchild")] == ["FAILED", "DEP_FAILED", "DEP_FAILED"]
    assert [lab.status_of(name) for name in ("free", "last")] == ["SUCCESS", "SUCCESS"]
    assert lab.info_of("bad")["run"]["error"] == "ValueError: no data anywhere"
    log = (lab.folder_of("bad") / ".executor_log").read_text()
    traceback = [
        "Traceback (most recent call last):",
        '    raise ValueError("no data\\nanywhere")',
        "ValueError: no data",
        "anywhere",
    ]
    for line in ["looking for the data", *traceback]:
        assert f"{line}\n" in log
        assert f"[bad] {line}\n" in result.output
    assert "2 done, 1 failed, 2 not run" in result.output
    told = f"  bad  log: {lab.folder_of('bad') / '.executor_log'}\n      ValueError: no data anywhere\n"
    assert told in result.output
    assert not list(tmp_path.rglob(".executor_status.lock"))

    # Refused: the failed step and what hangs on it. The rest runs, without --keep-going too.
    shutil.rmtree(lab.folder_of("last"))
    result = lab.snakemake(experiment=file, config={"force_run_failed": "false"})
    assert result.code == 1
    assert "failed previously" in result.output
    assert ran() == ["last"]
    assert [lab.status_of(name) for name in ("bad", "child", "grandchild")] == ["FAILED", "DEP_FAILED", "DEP_FAILED"]
    assert lab.info_of("bad")["run"]["attempt"] == 1

    (tmp_path / "mended").touch()
    result = lab.snakemake(experiment=file)
    assert result.code == 0, result.output
    assert ran() == ["bad", "child", "grandchild"]
    assert [lab.status_of(name) for name in ("bad", "child", "grandchild")] == ["SUCCESS"] * 3
    assert lab.info_of("bad")["run"]["attempt"] == 2
    assert "error" not in lab.info_of("bad")["run"]
    assert lab.info_of("child")["run"]["attempt"] == 1
    log = (lab.folder_of("bad") / ".executor_log").read_text()
    assert "ValueError: no data" in log.split(" attempt 2 by ")[0]
    assert "ValueError" not in log.split(" attempt 2 by ")[1]


def test_a_retry_within_the_run_is_no_earlier_failure(lab: Lab) -> None:
    file = lab.experiment(
        """
        import os
        from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main

        def fail_until_attempted(path):
            if not os.path.exists(os.path.join(path, "attempted")):
                os.mkdir(os.path.join(path, "attempted"))
                raise OSError("the network is down")

        flaky = ExecutorStep(name="flaky", fn=fail_until_attempted, config=THIS_OUTPUT_PATH)
        after = ExecutorStep(name="after", fn=print, config=[flaky])

        if __name__ == "__main__":
            executor_main(steps=[after])
        """
    )
    result = lab.snakemake("--retries", "1", experiment=file, config={"force_run_failed": "false"})
    assert result.code == 0, result.output
    assert lab.status_of("flaky") == lab.status_of("after") == "SUCCESS"
    assert lab.info_of("flaky")["run"]["attempt"] == 2
    assert "[flaky] FAILED: OSError: the network is down; log: " in result.output
    assert "failed previously" not in result.output


def test_a_step_may_end_in_odd_ways(lab: Lab) -> None:
    file = lab.experiment(
        """
        import os
        import signal
        import subprocess
        import sys
        from dataclasses import dataclass
        from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main

        @dataclass
        class Score:
            loss: float

        class Unprintable:
            def __repr__(self):
                raise RuntimeError("no")

        def killed(path):
            print("on the way out")
            os.kill(os.getpid(), signal.SIGKILL)

        def exits(path):
            sys.exit(3)

        def vanishes(path):
            os._exit(0)

        def returns_a_set(path):
            return {7}

        def returns_nonsense(path):
            return Unprintable()

        def returns_a_dataclass(path):
            return Score(0.5)

        def returns_a_megabyte(path):
            return ["x" * 1000] * 1000

        def leaves_a_process_behind(path):
            stray = subprocess.Popen(["sleep", "1000"], start_new_session=True)
            with open(os.path.join(path, "stray"), "w") as file:
                file.write(str(stray.pid))

        functions = [killed, exits, vanishes, returns_a_set, returns_nonsense, returns_a_dataclass]
        functions += [returns_a_megabyte, leaves_a_process_behind]

        if __name__ == "__main__":
            executor_main(
                steps=[ExecutorStep(name=fn.__name__, fn=fn, config=THIS_OUTPUT_PATH) for fn in functions]
            )
        """
    )
    result = lab.snakemake("--keep-going", experiment=file)
    assert result.code == 1
    assert "5 done, 3 failed, 0 not run" in result.output

    for name, reason in (("killed", "SIGKILL"), ("exits", "SystemExit: 3"), ("vanishes", "exit code 0")):
        assert lab.status_of(name) == "FAILED"
        assert reason in lab.info_of(name)["run"]["error"]
        assert f"[{name}] FAILED: {lab.info_of(name)['run']['error']}; log: " in result.output
        assert not (lab.folder_of(name) / ".artifact.json").exists()
    assert "on the way out\n" in (lab.folder_of("killed") / ".executor_log").read_text()

    artifacts = {
        "returns_a_set": [7],
        "returns_a_dataclass": {"loss": 0.5},
        "returns_a_megabyte": ["x" * 1000] * 1000,
    }
    for name, value in artifacts.items():
        assert lab.status_of(name) == "SUCCESS"
        assert json.loads((lab.folder_of(name) / ".artifact.json").read_text()) == value
    for name in ("returns_a_set", "returns_nonsense"):
        assert lab.status_of(name) == "SUCCESS"
        assert f"[{name}] warning: the return value is not JSON" in result.output
        assert "warning: the return value is not JSON" in (lab.folder_of(name) / ".executor_log").read_text()

    assert lab.status_of("leaves_a_process_behind") == "SUCCESS"
    assert not lab.is_running(int((lab.folder_of("leaves_a_process_behind") / "stray").read_text()))


def test_output_reaches_the_log_while_the_step_runs_and_the_terminal(lab: Lab) -> None:
    file = lab.experiment(
        """
        import sys
        from marin_rules import ExecutorStep, executor_main

        def talk(config):
            print("to standard output")
            print("to standard error", file=sys.stderr)
            open("gate").read()
            print("x" * 200_000, end="")
            print(flush=True)
            for percent in range(2001):
                print(f"\\r{percent / 20:.2f}%", end="", flush=True)
            print()
            sys.stdout.write("no end of line")

        if __name__ == "__main__":
            executor_main(steps=[ExecutorStep(name="deep/talk", fn=talk, config=None)])
        """
    )
    run = lab.start_snakemake(experiment=file)
    run.wait_for(lambda: lab.status_of("deep/talk") == "RUNNING", "the step runs")
    log = lab.folder_of("deep/talk") / ".executor_log"
    run.wait_for(
        lambda: {"to standard output", "to standard error"} <= set(log.read_text().splitlines()),
        "both lines in the log",
    )
    run.wait_for(lambda: "[deep/talk] to standard error\n" in run.output, "the line on the terminal")
    assert lab.status_of("deep/talk") == "RUNNING"
    lab.open_gate()
    result = run.wait()
    assert result.code == 0, result.output

    assert "[deep/talk] to standard output\n" in result.output
    label = "[deep/talk] "
    lines = log.read_text().splitlines()
    shown = [line.removeprefix(label) for line in result.output.splitlines() if line.startswith(label)]
    for output in (lines, shown):
        assert sum(len(line) for line in output if set(line) == {"x"}) == 200_000
        redraws = [line for line in output if line.endswith("%")]
        assert "100.00%" in redraws
        assert len(redraws) < 100, "a progress bar is not logged at each of its redraws"
        assert "no end of line" in output


EXCEPTIONS = """
    import json
    from marin_rules import Executor, ExecutorStep, PreviousTaskFailedError

    class OutOfTune(Exception):
        pass

    def look_up(config):
        return {}["piano"]

    def tune(config):
        raise OutOfTune("the violin", 12)

    def listen(config):
        pass

    found = ExecutorStep(name="found", fn=look_up, config=None)
    tuned = ExecutorStep(name="tuned", fn=tune, config=None)
    heard = ExecutorStep(name="heard", fn=listen, config=[tuned])

    def run(*steps, **options):
        try:
            Executor("out", "out/experiments").run(steps, **options)
        except RuntimeError as error:
            return error

    def messages(error):
        return [] if error is None else [str(error), *messages(error.__cause__)]
"""


def test_executor_run_raises_what_failed(lab: Lab, tmp_path: Path) -> None:
    script = lab.experiment(
        EXCEPTIONS
        + """
    if __name__ == "__main__":
        error = run(found, heard)
        assert type(error.__cause__) is RuntimeError
        assert type(error.__cause__.__cause__) is KeyError
        refusal = run(heard, found, force_run_failed=False)
        assert type(refusal) is PreviousTaskFailedError
        with open("messages.json", "w") as file:
            json.dump([messages(error), messages(refusal)], file)
    """
    )
    result = lab.python(script)
    assert result.code == 0, result.output
    first, second = json.loads((tmp_path / "messages.json").read_text())
    assert first == ["2 step(s) failed", "Step failed: found", "'piano'"]
    assert second[0].startswith("2 step(s) failed previously: ")
    assert second[1] == "Step failed: tuned"
    assert "failed previously" in second[2]


def test_executor_run_raises_an_exception_of_the_experiment_itself(lab: Lab, tmp_path: Path) -> None:
    script = lab.experiment(
        EXCEPTIONS
        + """
    if __name__ == "__main__":
        error = run(heard)
        with open("messages.json", "w") as file:
            json.dump(messages(error), file)
        original = error.__cause__.__cause__
        assert isinstance(original, OutOfTune), repr(original)
        assert original.args == ("the violin", 12)
    """
    )
    result = lab.python(script)
    assert result.code == 0, result.output
    expected = ["1 step(s) failed", "Step failed: tuned", "('the violin', 12)"]
    assert json.loads((tmp_path / "messages.json").read_text()) == expected


def test_return_values(lab: Lab, tmp_path: Path) -> None:
    file = lab.experiment(
        """
        import os
        from marin_rules import ExecutorStep, executor_main

        def numbers(config):
            import numpy
            return {"loss": numpy.float32(0.5), "best": numpy.int64(3), "worst": float("nan")}

        def deep(config):
            if not os.path.exists("again"):
                return {"loss": 1.0}
            value = []
            for _ in range(100_000):
                value = [value]
            return value

        async def work(config):
            open("worked", "w").close()

        functions = {"numbers": numbers, "deep": deep, "later": lambda config: work(config)}

        if __name__ == "__main__":
            executor_main(steps=[ExecutorStep(name, fn, None) for name, fn in functions.items()])
        """
    )
    result = lab.snakemake("--keep-going", experiment=file)
    assert result.code == 1, result.output
    text = (lab.folder_of("numbers") / ".artifact.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {"loss": 0.5, "best": 3, "worst": "NaN"}
    assert "[numbers] warning" not in result.output
    assert lab.status_of("later") == "FAILED"
    assert "the function returned a coroutine, whose body has not run" in lab.info_of("later")["run"]["error"]
    artifact = lab.folder_of("deep") / ".artifact.json"
    assert json.loads(artifact.read_text()) == {"loss": 1.0}
    (tmp_path / "again").touch()
    again = lab.snakemake(experiment=file, config={"run_only": "deep", "force": "deep"})
    assert lab.status_of("deep") == "SUCCESS"
    assert "[deep] warning: the return value is not JSON" in again.output
    assert json.loads(artifact.read_text()) is None  # And not what the attempt before had returned.


def test_a_worker_that_is_gone_is_told_as_the_reason(lab: Lab) -> None:
    path = lab.experiment(
        """
        import json, os, signal, time
        from marin_rules import ExecutorStep, executor_main, this_output_path

        def kill_worker(config):
            with open(config["lease"]) as file:
                details = json.load(file)["worker_id"].partition(" ")[2]
            os.kill(json.loads(details)["owner"]["pid"], signal.SIGKILL)
            time.sleep(60)

        executor_main(steps=[ExecutorStep("model", kill_worker, {"lease": this_output_path(".executor_status.lock")})])
        """
    )
    result = lab.python(path, "--prefix", lab.prefix)
    assert result.code == 1, result.output
    (line,) = [line for line in result.output.splitlines() if " FAILED model after " in line]
    assert line.endswith(": its worker is gone, perhaps killed")
    assert "0 done, 1 failed, 0 not run" in result.output
    assert "before any step failed" not in result.output
    assert "error: the run stopped with exit code 1: see the messages above" in result.output


def test_a_step_without_a_function_stops_a_run_before_its_first_step_unless_it_is_done(lab: Lab) -> None:
    """As in Marin, a step may stand for data that somebody else has made."""
    path = lab.experiment(
        """
        from marin_rules import ExecutorStep, StepSpec, executor_main

        staged = StepSpec("staged", override_output_path="staged")
        first = ExecutorStep("first", print, None)
        clean = StepSpec("clean", deps=[staged], fn=lambda output_path: staged.output_path)
        executor_main([first, clean])
        """
    )
    variables = {"MARIN_PREFIX": str(lab.prefix)}
    refused = lab.python(path, env=variables)
    assert refused.code == 1, refused.output
    assert "error: step 'staged' has no function to run, and it is not done." in refused.output
    assert refused.started == []
    (lab.prefix / "staged").mkdir(parents=True)
    (lab.prefix / "staged" / ".executor_status").write_text("SUCCESS")
    ran = lab.python(path, env=variables)
    assert ran.code == 0, ran.output
    assert (ran.cached, sorted(ran.started)) == (["staged"], ["clean", "first"])
