"""Whatever is wrong is told in one paragraph that names it and says what to do; nothing half made counts as done."""

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from marin_rules import ExecutorStep
from marin_rules.engine.plan_in_process import PlanInProcess
from marin_rules.engine.rule_files import check_rule_file
from marin_rules.errors import ExperimentError, MarinRulesError
from marin_rules.plan import make_plan
from marin_rules.plans.experiment_file import load_experiment
from marin_rules.plans.freezing import freeze
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.plans.plan_file import write_plan
from marin_rules.plans.run import new_run
from support.lab import Lab

HELLO_WORLD = "experiments/tutorials/hello_world.py"
DATA = "hello_world/data-d50b06"
FROM_A_STEP = re.compile(r"^\[\S+\] ", re.MULTILINE)
FRAME_OF_OURS = re.compile(r'^ *File ".*(marin_rules/|rules/\w+\.smk|Snakefile)', re.MULTILINE)

FILLING = """
    import os
    from dataclasses import dataclass

    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, output_path_of

    @dataclass(frozen=True)
    class Config:
        source: object = None
        output_path: str = THIS_OUTPUT_PATH

    def prepare(config):
        pass

    def fill(config):
        # Uses the disk up and does not notice: it is for the worker to find out that nothing can be committed.
        path = os.path.join(config.output_path, "large")
        try:
            with open(path, "wb", buffering=0) as file:
                while os.path.exists("greedy"):
                    file.write(bytes(4096))
        except OSError as error:
            print("ended early:", error)

    data = ExecutorStep("data", prepare, Config())
    model = ExecutorStep("model", fill, Config(output_path_of(data)))

    if __name__ == "__main__":
        executor_main(steps=[model])
"""


def paragraph(result: Any, *parts: str) -> str:
    """The one line of a failed command that holds all `parts`; there is no traceback around it."""
    assert result.code != 0, result.output
    lines = [line for line in result.output.splitlines() if all(part in line for part in parts)]
    assert lines, f"no line has all of {parts}:\n{result.output}"
    told = "\n".join(line for line in result.output.splitlines() if not FROM_A_STEP.match(line))
    assert "Traceback" not in told, result.output
    return str(lines[0])


@pytest.fixture
def hello_world(lab: Lab) -> Path:
    return lab.repository / HELLO_WORLD


# -- experiment files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        (None, ["there is no experiment file", "experimnt.py", "Did you mean", "experiment.py?"]),
        (
            "import os\n\nnumber = int('ten')\n",
            ["experiment.py failed", "(line 3)", "ValueError", "'ten'", "--dry_run", "whole traceback"],
        ),
        ("steps = []\n", ["experiment.py has no steps", "executor_main(steps=[...])"]),
    ],
    ids=["missing", "raises", "without steps"],
)
def test_experiment_files_that_cannot_be_used(source: str | None, parts: Sequence[str], lab: Lab) -> None:
    lab.experiment(source or "", "experiment.py")
    result = lab.snakemake("-n", experiment="experimnt.py" if source is None else "experiment.py")
    paragraph(result, *parts)
    assert not FRAME_OF_OURS.search(result.output), f"the message drags frames of ours along:\n{result.output}"
    assert not lab.prefix.exists()


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("def broken(:\n", ["not valid Python", "line 1"]),
        ("import sys\nsys.exit(3)\n", ["ended itself", "exit code 3"]),
        ("import no_such_module_here\n", ["ModuleNotFoundError", "no_such_module_here", "(line 1)"]),
    ],
    ids=["syntax", "exits", "imports nothing"],
)
def test_the_error_of_an_experiment_file_names_it(source: str, parts: Sequence[str], lab: Lab) -> None:
    path = lab.experiment(source, "odd.py")
    with pytest.raises(ExperimentError) as caught:
        load_experiment(str(path))
    for part in (str(path), *parts):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


HELPERS = {
    "raises": (
        "\nimport json\n\ndef load(text):\n    return json.loads(text)\n\nload('no json')\n",
        5,
        "JSONDecodeError",
    ),
    "syntax": ("x = 1\ndef broken(:\n", 2, "SyntaxError"),
    "missing": ("import os\nimport no_such_module_here\n", 2, "ModuleNotFoundError: No module named 'no_such_module"),
}


def test_an_error_that_ends_with_a_question_gets_no_full_stop(lab: Lab) -> None:
    path = lab.experiment("raise TypeError(\"no argument 'batch_sise'. Did you mean 'batch_size'?\")\n")
    with pytest.raises(ExperimentError, match=r"\(line 1\): TypeError: .*Did you mean 'batch_size'\? Run "):
        load_experiment(str(path))


@pytest.mark.parametrize("kind", HELPERS)
def test_an_error_in_an_imported_module_names_its_file_and_line(
    kind: str, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, line, error = HELPERS[kind]
    name = f"helper_that_{kind}"
    helper = lab.experiment(source, f"{name}.py")
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = lab.experiment(f"import os\n\nimport {name}\n", "importing.py")
    with pytest.raises(ExperimentError) as caught:
        load_experiment(str(path))
    assert f"the experiment {path} failed while it was executed (line 3, in {helper}, line {line})" in str(caught.value)
    assert error in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_error_in_an_imported_module_is_told_by_both_doors(lab: Lab) -> None:
    helper = lab.experiment("def half(x):\n    return 1 / x\n", "halves.py")
    path = lab.experiment("import halves\n\nhalves.half(0)\n", "halving.py")
    paragraph(
        lab.snakemake("-n", experiment=path), "halving.py failed", f"(line 3, in {helper}, line 2)", "ZeroDivision"
    )
    result = lab.python(path)
    assert result.code == 1
    assert f'File "{helper}", line 2' in result.output


def test_steps_that_are_no_steps_name_the_line(lab: Lab) -> None:
    path = lab.experiment("from marin_rules import executor_main\n\nexecutor_main(steps=['a'])\n", "wrong.py")
    with pytest.raises(ExperimentError) as caught:
        load_experiment(str(path))
    told = f"the experiment {path} (line 3): steps[0] is a str ('a'), neither an ExecutorStep nor a StepSpec"
    assert str(caught.value) == told


def test_a_missing_folder_is_told_apart_from_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"nowhere/x\.py.*folder .*nowhere does not exist"):
        load_experiment(str(tmp_path / "nowhere" / "x.py"))


# -- hand-written rules --------------------------------------------------------------------------------------


class Sources:
    """As much of Snakemake's workflow as its parser asks for."""

    @property
    def sourcecache(self) -> "Sources":
        return self

    def open(self, file: Any, mode: str = "r") -> Any:
        return open(file.get_path_or_uri(secret_free=True), mode, encoding="utf-8")


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        (b'rule x\n    output: "b"\n', "line 1: Expected name or colon after rule"),
        (b'rule x:\n    output: "b"\n  input: "c"\n', "line 3: unindent does not match"),
        (b'rule x:\n    input: "a"\n    outpt: "b"\n', "Unexpected keyword outpt"),
        (b"x = 1\ny = (1,\n", "unexpected EOF in multi-line statement"),
        (b'\nx = "abc\n', "line 2: unterminated string literal"),
        (b'rule a-b:\n    output: "x"\n', "line 1: "),
        (b"\n\nx = 1 +\n", "line 3: invalid syntax"),
        (b"\xff\n", "not text in UTF-8"),
    ],
)
def test_rules_that_are_not_valid(rules: bytes, told: str, tmp_path: Path) -> None:
    file = tmp_path / "own.smk"
    file.write_bytes(rules)
    with pytest.raises(MarinRulesError) as caught:
        check_rule_file(str(file), Sources())
    assert str(caught.value).startswith(f"the rules in {file} are not ")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


BY_HAND = """
    from marin_rules import ExecutorStep, SnakemakeRule, executor_main

    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep("counts", SnakemakeRule("count_word"), None)])
"""


def test_hand_written_rules_that_are_not_there_or_not_valid(lab: Lab) -> None:
    file = lab.experiment(BY_HAND, "by_hand.py")
    told = "step 'counts': there is no Snakemake rule 'count_word' in"
    paragraph(lab.snakemake("-n", experiment=file), told, "by_hand.smk, or name its file: --config rules=FILE.")
    lab.experiment('rule count_words:\n    output: "x"\n    shell: "true"\n', "by_hand.smk")
    paragraph(lab.python(file, "--prefix", lab.prefix), told, "Did you mean 'count_words'?")
    rules = lab.experiment('rule count_word\n    output: "x"\n', "by_hand.smk")
    result = lab.snakemake("-n", experiment=file)
    paragraph(result, f"error: the rules in {rules} are not valid: line 1: ")
    assert len(result.output.splitlines()) < 5
    assert not list(lab.prefix.rglob(".executor_status"))


# -- settings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "config", "parts"),
    [
        ([], {"prefx": "out"}, ["unknown configuration key 'prefx'", "Did you mean 'prefix'?"]),
        (["-j", "-1"], {}, ["-1", "at least 1"]),
    ],
    ids=["unknown key", "negative jobs"],
)
def test_settings_of_snakemake(
    arguments: list[str], config: dict[str, str], parts: Sequence[str], hello_world: Path, lab: Lab
) -> None:
    paragraph(lab.snakemake("-n", *arguments, experiment=hello_world, config=config), *parts)
    assert not lab.prefix.exists()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--run_only", '["stats("]'], ["run_only", "'stats('", "not a regular expression", "write it as"]),
        (["--max_concurrent", "-2"], ["max_concurrent", "at least 1", "-2"]),
        (["--max_concurrent", "0"], ["max_concurrent", "at least 1", "0"]),
        (["--max_concurrent", "many"], ["max_concurrent", "many"]),
        (["--force_run_failed", "perhaps"], ["force_run_failed", "perhaps", "bool"]),
        (["--run_only", "[stats"], ["flags", "'[stats'", "cannot be read", """'["^a$", "^b"]'"""]),
        (["--force", "stats"], ["`force`", "'stats'", """'["^a$", "^b"]'"""]),
        (["--run_onyl", "stats"], ["unrecognized arguments", "--run_onyl"]),
    ],
    ids=["regular expression", "negative", "zero", "no number", "no boolean", "no YAML", "no list", "unknown flag"],
)
def test_flags_of_executor_main(arguments: list[str], parts: Sequence[str], hello_world: Path, lab: Lab) -> None:
    paragraph(lab.python(hello_world, "--prefix", lab.prefix, *arguments), *parts)
    assert not lab.prefix.exists()


# -- where data go -------------------------------------------------------------------------------------------


def obeying_permissions() -> list[str]:
    """Root may write anywhere; without these capabilities it has to obey permissions like anybody else."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search"]


def test_a_prefix_that_may_not_be_written(tmp_path: Path, hello_world: Path, lab: Lab) -> None:
    lab.prefix.mkdir()
    lab.prefix.chmod(0o555)
    snakemake = [Path(sys.executable).with_name("snakemake"), "--snakefile", lab.repository / "Snakefile"]
    result = lab.start(
        [*obeying_permissions(), *snakemake, "--config", f"experiment={hello_world}", f"prefix={lab.prefix}"]
    ).wait()
    paragraph(result, "permission denied", str(lab.prefix), "ask for access", "MARIN_PREFIX")
    assert list(lab.prefix.iterdir()) == []


@pytest.mark.parametrize("door", ["snakemake", "python"])
def test_a_dry_run_says_that_its_prefix_may_not_be_written(door: str, hello_world: Path, lab: Lab) -> None:
    lab.prefix.mkdir()
    lab.prefix.chmod(0o555)
    command: list[str | Path] = [sys.executable, hello_world, "--prefix", lab.prefix, "--dry_run"]
    if door == "snakemake":
        command = [Path(sys.executable).with_name("snakemake"), "--snakefile", lab.repository / "Snakefile", "-n"]
        command += ["--config", f"experiment={hello_world}", f"prefix={lab.prefix}"]
    result = lab.start([*obeying_permissions(), *command]).wait()
    assert result.code == 0, result.output
    assert "2 steps: 2 would run" in result.output
    (warning,) = (line for line in result.output.splitlines() if line.startswith("warning: "))
    assert f"a run would stop before its first step: cannot make the directory {lab.prefix}/" in warning
    assert "permission denied" in warning


def test_a_prefix_that_may_only_be_read_serves_what_is_done(hello_world: Path, lab: Lab) -> None:
    first = lab.snakemake("-j", "2", experiment=hello_world)
    assert first.code == 0, first.output
    for file in lab.prefix.glob("experiments/*.json"):
        file.unlink()
    folders = [lab.prefix, *(path for path in lab.prefix.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    by_snakemake = [Path(sys.executable).with_name("snakemake"), "--snakefile", lab.repository / "Snakefile"]
    by_snakemake += ["--config", f"experiment={hello_world}", f"prefix={lab.prefix}"]
    by_python = [sys.executable, hello_world, "--prefix", lab.prefix]
    for command in (by_snakemake, by_python, [*by_snakemake, "-n"], [*by_python, "--dry_run"]):
        result = lab.start([*obeying_permissions(), *command]).wait()
        assert result.code == 0, result.output
        assert "2 steps: 2 cached" in result.output
        assert "warning" not in result.output
    for folder in folders:
        folder.chmod(0o755)


def test_a_damaged_info_is_no_reason_for_having_no_report(hello_world: Path, lab: Lab, tmp_path: Path) -> None:
    assert lab.snakemake("-j", "2", experiment=hello_world).code == 0
    (lab.prefix / DATA / ".executor_info").write_text('{"name": "hello_world/da')
    result = lab.snakemake("--report", "report.html", experiment=hello_world)
    assert result.code == 0, result.output
    assert "hello_world/data" in (tmp_path / "report.html").read_text()


def test_a_prefix_that_is_a_file(hello_world: Path, lab: Lab) -> None:
    lab.prefix.write_text("mine")
    told = paragraph(lab.python(hello_world, "--prefix", lab.prefix), str(lab.prefix), "ot a directory")
    assert "MARIN_PREFIX" in told or "--prefix" in told, f"does not say what to do: {told}"
    assert lab.prefix.read_text() == "mine"


def test_a_prefix_in_a_store_that_cannot_be_reached(lab: Lab, hello_world: Path) -> None:
    nobody_listens = {"STORAGE_EMULATOR_HOST": "http://127.0.0.1:9"}
    result = lab.snakemake(experiment=hello_world, prefix="gs://bucket/data", env=nobody_listens)
    paragraph(result, "error: cannot use gs://bucket: no answer from the store", "Check the network.")


def test_a_full_disk_leaves_nothing_done_and_room_lets_it_go_on(tmp_path: Path, lab: Lab) -> None:
    lab.experiment(FILLING)
    (tmp_path / "greedy").touch()
    lab.prefix.mkdir()
    snakemake = [Path(sys.executable).with_name("snakemake"), "--snakefile", lab.repository / "Snakefile"]
    command = shlex.join(
        map(str, [*snakemake, "-j", "1", "--config", "experiment=experiment.py", f"prefix={lab.prefix}"])
    )
    # The disk exists only for these commands: it goes with them, whatever becomes of the test.
    script = f"""
        set -eu
        mount -t tmpfs -o size=256k none {shlex.quote(str(lab.prefix))}
        cd {shlex.quote(str(tmp_path))}
        {command} > first.log 2>&1 || echo "first: exit code $?"
        cp {lab.prefix}/data-*/.executor_status data-1
        cp {lab.prefix}/model-*/.executor_status model-1
        rm {lab.prefix}/model-*/large greedy
        {command} > second.log 2>&1 || echo "second: exit code $?"
        cp {lab.prefix}/data-*/.executor_status data-2
        cp {lab.prefix}/model-*/.executor_status model-2
    """
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    # The worker of a finished step tries for some lifetimes of its lease to say so: somebody may make room.
    short = {"MARIN_LEASE_LIFETIME_SECONDS": "1"}
    result = lab.start(["unshare", "--mount", *as_root, "bash", "-c", script], env=short).wait()
    assert result.code == 0, result.output
    first = (tmp_path / "first.log").read_text()
    assert "ended early: [Errno 28]" in first
    assert re.search(r"^first: exit code [1-9]", result.output), first
    assert "Traceback" not in first
    # The start of the step may have found no place to be written down, either; that alone is no error.
    (told,) = [line for line in first.splitlines() if line.startswith("[model] error: ")]
    for part in (
        f"{lab.prefix}/model-",
        "no space left on the device",
        "Free some space",
        "run again",
        "finished steps are kept",
    ):
        assert part in told
    assert (tmp_path / "data-1").read_text() == "SUCCESS"
    assert (tmp_path / "model-1").read_text() != "SUCCESS"

    assert "second: exit code" not in result.output, (tmp_path / "second.log").read_text()
    assert (tmp_path / "data-2").read_text() == "SUCCESS"
    assert (tmp_path / "model-2").read_text() == "SUCCESS"


# -- damaged files -------------------------------------------------------------------------------------------


DIGEST = "d50b06" + "0" * 26
"""Begins like the version of hello_world/data, and goes on otherwise."""


@pytest.mark.parametrize(
    ("status", "file", "content", "parts"),
    [
        ("", ".executor_status", "SUCCES", ["delete the file"]),
        ("SUCCESS", ".executor_info", '{"name": "hello_world/da', ["is damaged", "delete the file"]),
        ("RUNNING", ".executor_status.lock", "", ["Delete it"]),
    ],
    ids=["truncated status", "truncated info", "empty lease"],
)
def test_damaged_files_stop_a_run_before_it_starts(
    status: str, file: str, content: str, parts: list[str], hello_world: Path, lab: Lab
) -> None:
    step = lab.prefix / DATA
    step.mkdir(parents=True)
    (step / ".executor_status").write_text(status)
    (step / file).write_text(content)
    before = {path: path.read_bytes() for path in step.iterdir()}
    result = lab.snakemake("-j", "1", experiment=hello_world)
    paragraph(result, str(step / file), *parts)
    assert "cached" not in result.output
    assert {path: path.read_bytes() for path in step.iterdir()} == before
    assert list(lab.prefix.iterdir()) == [step.parent]


def test_a_path_that_holds_another_version_is_refused(hello_world: Path, lab: Lab) -> None:
    step = lab.prefix / DATA
    step.mkdir(parents=True)
    (step / ".executor_status").write_text("SUCCESS")
    (step / ".executor_info").write_text(json.dumps({"name": "hello_world/data", "version_digest": DIGEST}))
    result = lab.snakemake("-n", experiment=hello_world)
    paragraph(result, "'hello_world/data'", str(step), "another version", "Rename the step")
    assert "cached" not in result.output


def work(config: Any) -> None:
    (Path(config["output_path"]) / "worked").touch()


@pytest.fixture
def plan(lab: Lab, tmp_path: Path) -> FrozenPlan:
    """A plan of one step, written to `<prefix>/plan`."""
    step = ExecutorStep("data", work, {"output_path": str(lab.prefix / "worked")})
    run = new_run(prefix=str(lab.prefix), caller_path="experiment.py")
    frozen = freeze(make_plan([step], prefix=str(lab.prefix)), run)
    write_plan(frozen, str(tmp_path / "plan"))
    return frozen


@pytest.mark.parametrize(
    ("status", "file", "content"),
    [
        ("", ".executor_status", ""),
        ("", ".executor_status", "SUCCES"),
        ("", ".executor_status", '{"status": "SUCCESS"'),
        ("", ".executor_status", "\x00" * 7),
        ("SUCCESS", ".executor_info", ""),
        ("SUCCESS", ".executor_info", "[]"),
        ("SUCCESS", ".executor_info", '{"version_digest": '),
        ("SUCCESS", ".executor_info", '{"version": 3}'),
        ("FAILED", ".executor_info", ""),
        ("FAILED", ".executor_info", '{"run": 3}'),
        ("FAILED", ".executor_info", '{"run": null}'),
        ("RUNNING", ".executor_status.lock", ""),
        ("RUNNING", ".executor_status.lock", '{"worker_id": "host-1-'),
        ("RUNNING", ".executor_status.lock", '{"worker_id": "host", "timestamp": "yesterday"}'),
    ],
)
def test_no_damaged_file_is_taken_for_an_answer(status: str, file: str, content: str, plan: FrozenPlan) -> None:
    step = Path(plan.steps[0].output_path)
    step.mkdir(parents=True)
    (step / ".executor_status").write_text(status)
    (step / file).write_text(content)
    with pytest.raises(MarinRulesError) as caught:
        PlanInProcess(plan).assess(lambda step: False)
    assert str(step) in str(caught.value)
    assert re.search(r"[Dd]elete|Rename", str(caught.value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:30],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data.replace(b'"data"', b'"date"', 1),
        lambda data: b"marin-rules plan 9\n" + data[19:],
    ],
    ids=["empty", "only its head", "half", "a byte short", "a bit flipped", "edited", "of another version"],
)
def test_a_damaged_plan_runs_nothing(
    damage: Callable[[bytes], bytes], plan: FrozenPlan, tmp_path: Path, lab: Lab
) -> None:
    file = tmp_path / "plan"
    file.write_bytes(damage(file.read_bytes()))
    worker = ["-m", "marin_rules.worker", "--plan", file, "--step", plan.steps[0].key]
    paragraph(lab.python(*worker), str(file), "is damaged", "start the experiment again")
    assert not lab.prefix.exists()


def test_a_missing_plan_and_an_unknown_step(plan: FrozenPlan, tmp_path: Path, lab: Lab) -> None:
    worker = ["-m", "marin_rules.worker", "--plan"]
    paragraph(lab.python(*worker, tmp_path / "gone", "--step", "data-123456"), str(tmp_path / "gone"), "again")
    unknown = lab.python(*worker, tmp_path / "plan", "--step", "data-123456")
    paragraph(unknown, str(tmp_path / "plan"), "no step data-123456")
    assert not lab.prefix.exists()


def test_the_engine_refuses_a_damaged_plan(plan: FrozenPlan, tmp_path: Path, lab: Lab) -> None:
    file = tmp_path / "plan"
    file.write_bytes(file.read_bytes()[:-1])
    result = lab.python("-m", "marin_rules.engine", "--plan", file)
    paragraph(result, str(file), "is damaged", "start the experiment again")
    assert not lab.prefix.exists()
