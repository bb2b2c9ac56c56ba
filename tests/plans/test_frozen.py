"""Frozen plans: what was planned is what runs, in any process, and a damaged plan is never taken for one."""

from __future__ import annotations

import functools
import json
import os
import random
import shlex
import struct
import subprocess
import sys
import threading
import types
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import IO, Any

import pytest

from marin_rules import (
    THIS_OUTPUT_PATH,
    Executor,
    ExecutorStep,
    InputName,
    PlanError,
    ResourceConfig,
    SnakemakeRule,
    mirrored,
    output_path_of,
    remote,
    versioned,
)
from marin_rules.plan import make_plan
from marin_rules.plans.experiment_file import load_experiment
from marin_rules.plans.freezing import freeze
from marin_rules.plans.frozen import FrozenPlan, FrozenStep
from marin_rules.plans.plan_file import PlanFileError, read_plan, write_plan
from marin_rules.plans.run import new_run
from marin_rules.worker.variables import exported, set_step_variables

REPOSITORY = Path(__file__).resolve().parents[2]
SECRET = "hunter2-4711"


@dataclass(frozen=True)
class Config:
    value: Any
    output_path: str = THIS_OUTPUT_PATH


class Colour(Enum):
    RED = "red"


def double(config: Config) -> Any:
    return config.value * 2


def step(name: str, config: Any = None, fn: Any = double, **details: Any) -> ExecutorStep[Any]:
    return ExecutorStep(name=name, fn=fn, config=config, **details)


def frozen(*roots: ExecutorStep[Any] | InputName, **details: Any) -> FrozenPlan:
    """A plan that takes no modules along: those of these tests would make it large."""
    run = replace(new_run(prefix="/p", caller_path="experiment.py", **details), python_path=())
    return freeze(make_plan(roots, prefix="/p"), run)


def written(plan: FrozenPlan, folder: Path) -> str:
    path = str(folder / "plan")
    write_plan(plan, path)
    return path


def call(plan: FrozenPlan, step: FrozenStep) -> Any:
    call = plan.call(step)
    return call.fn(call.config)


def call_elsewhere(path: str, *, with_folder: Path | None = None) -> dict[str, Any]:
    """What each step of the plan returns in a process that has seen nothing of this one."""
    code = (
        "import json, sys\n"
        "from marin_rules.plans.plan_file import read_plan\n"
        "plan = read_plan(sys.argv[1])\n"
        "calls = {step.name: plan.call(step) for step in plan.steps}\n"
        "print(json.dumps({name: call.fn(call.config) for name, call in calls.items()}))\n"
    )
    search_path = [str(REPOSITORY), *([str(with_folder)] if with_folder else [])]
    ended = subprocess.run(
        [sys.executable, "-c", code, path],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(search_path)},
        cwd=os.path.dirname(path),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert isinstance(answer, dict)
    return answer


# --- the round trip


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    raw = step("raw", Config(versioned(3)), description="Three.")
    old = step("old")
    rule = step("counts", {"file": raw / "x"}, SnakemakeRule("count_words"))
    top = step(
        "top 'x'/é",
        Config([raw / "x", rule, output_path_of(old).nonblocking(), mirrored("given", budget_gb=2.5)]),
        report=["*.png", "tables/*.html"],
        override_output_path="elsewhere/top",
    )
    plan = frozen(top, description="All.", force_run_failed=False, rule_files=["/rules/x.smk"])
    plan.forced = (1,)
    again = read_plan(written(plan, tmp_path))

    assert again.run == plan.run
    assert again.run.description == "All."
    assert again.run.force_run_failed is False
    assert again.run.rule_files == ("/rules/x.smk",)
    assert again.steps == plan.steps
    assert again.forced == (1,)
    assert [(item.name, item.function, item.dependencies, item.needed, item.root) for item in again.steps] == [
        ("raw", f"{__name__}.double", (), True, False),
        ("counts", "rule count_words", (0,), True, False),
        ("old", f"{__name__}.double", (), False, False),
        ("top 'x'/é", f"{__name__}.double", (0, 1), True, True),
    ]
    assert [item.rule for item in again.steps] == [None, "count_words", None, None]
    assert [item.description for item in again.steps] == ["Three.", None, None, None]
    assert again.steps[3].report == ("*.png", "tables/*.html")
    assert again.steps[3].mirror_budget_gb == 2.5
    assert again.steps[3].output_path == "/p/elsewhere/top"
    paths = [item.output_path for item in again.steps]
    for item in again.steps:
        assert again.call(item) == plan.call(item)
        assert again.record(item) == plan.record(item)
    top_config = Config([f"{paths[0]}/x", paths[1], paths[2], "mirror://given"], paths[3])
    assert again.call(again.steps[0]).config == Config(3, paths[0])
    assert again.call(again.steps[3]).config == top_config
    assert again.call(again.steps[1]).fn == SnakemakeRule("count_words")
    assert again.record(again.steps[3]).config == {"value": top_config.value, "output_path": paths[3]}
    assert again.record(again.steps[3]).override_output_path == "elsewhere/top"


def test_warnings_travel(tmp_path: Path) -> None:
    run = new_run(prefix="/p", caller_path="experiment.py")
    plan = freeze(make_plan([step("a")], prefix="/p", run_only=["nope"]), run)
    assert read_plan(written(plan, tmp_path)).warnings == ("run_only: 'nope' matches no step",)


def test_steps_are_found_by_their_keys(tmp_path: Path) -> None:
    plan = read_plan(written(frozen(step("b", [step("a")])), tmp_path))
    assert plan.by_key["a-d85366"] is plan.steps[0]
    assert list(plan.by_key) == [item.key for item in plan.steps]


@pytest.mark.parametrize(
    "names",
    [
        ["a b", "a%20b", "a+b", "a_b"],
        ["a//b", "a%2F%2Fb", "a/b", "./a", "a/."],
        ["{x}", "$HOME", "`id`", "*", "'q'", '"q"', "a;b", "a#b", "a|b", "a&b", "\\"],
        ["ünï", "日本語"],
        ["-x", "--plan"],
    ],
    ids=lambda names: names[0],
)
def test_keys_are_safe_in_a_command(names: list[str]) -> None:
    keys = [item.key for item in frozen(*(step(name) for name in names)).steps]
    assert len(set(keys)) == len(names)
    for key in keys:
        assert key.isascii()
        assert shlex.split(key) == [key] == [shlex.quote(key)] or shlex.quote(key) == f"'{key}'"
        assert not set(key) & set("{}$`*?'\"\\;#|&<>() \n[]!")
        assert not key.startswith("-"), "an option, not a step"
        assert os.path.normpath(key) == key
        assert ".." not in key.split("/")


def test_a_name_that_is_no_text_is_refused_by_name() -> None:
    with pytest.raises(PlanError, match=r"step 'b\\udc80'"):
        frozen(step("b\udc80"))


# --- functions


def test_an_importable_function_travels_by_reference() -> None:
    plan = frozen(step("a", Config(4)))
    assert plan.call(plan.steps[0]).fn is double
    assert type(plan.call(plan.steps[0]).config) is Config


def closure(number: int) -> Callable[[Any], Any]:
    def add(config: Any) -> Any:
        return config + number

    return add


def method(number: int) -> Callable[[Any], Any]:
    class Adder:
        def __init__(self) -> None:
            self.number = number

        def add(self, config: Any) -> Any:
            return config + self.number

    return Adder().add


@pytest.mark.processes
@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda config: config + 1, 42),
        (closure(59), 100),
        (functools.partial(max, 7), 41),
        (functools.partial(closure(1)), 42),
        (remote(closure(9)), 50),
        (remote(lambda config: config - 1), 40),
        (str, "41"),
        (method(1), 42),
    ],
    ids=["lambda", "closure", "partial", "partial closure", "remote closure", "remote lambda", "type", "method"],
)
def test_functions_travel_by_value(fn: Any, expected: Any, tmp_path: Path) -> None:
    path = written(frozen(step("a", versioned(41), fn)), tmp_path)
    assert call_elsewhere(path) == {"a": expected}


def test_a_function_by_value_is_that_of_the_moment_of_freezing() -> None:
    settings = {"answer": 42}
    answer = 1

    def told(config: Any) -> Any:
        return [answer, settings["answer"]]

    plan = frozen(step("a", None, told))
    settings["answer"] = answer = 2
    told.__code__ = (lambda config: "edited").__code__.replace(co_freevars=told.__code__.co_freevars)
    assert told(None) == "edited"
    assert call(plan, plan.steps[0]) == [1, 42]


EXPERIMENT = """
from dataclasses import dataclass
from enum import Enum
from marin_rules import *
import beside

FACTOR = {factor}

class Colour(Enum):
    RED = "red"

@dataclass(frozen=True)
class Local:
    n: int
    colour: Colour = Colour.RED
    path: str = THIS_OUTPUT_PATH

@dataclass(frozen=True, slots=True)
class Slotted:
    inner: Local

def helper(n):
    return n * FACTOR

def compute(config):
    assert type(config) is Slotted and type(config.inner) is Local
    assert config.inner.colour is Colour.RED
    return [helper(config.inner.n), beside.shift(1), config.inner.path]

@remote
def marked(config):
    return [type(config) is Local, marked.__name__, helper(config.n)]

if __name__ == "__main__":
    executor_main(steps=[
        ExecutorStep("compute", compute, Slotted(Local(versioned(5)))),
        ExecutorStep("marked", marked, Local(6)),
        ExecutorStep("lambda", lambda config: [config.__class__ is Local, helper(config.n)], Local(7)),
        ExecutorStep("imported", beside.shift, versioned(8)),
        ExecutorStep("imported mark", beside.marked, versioned(9)),
    ])
"""


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An experiment file, loaded as one: what it defines is nowhere to be imported from."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    (tmp_path / "beside.py").write_text(
        "from marin_rules import remote\n"
        "def shift(n):\n    return n + 1000\n"
        "@remote\ndef marked(n):\n    return shift(n) + 1\n"
    )
    path = tmp_path / "experiment.py"
    path.write_text(EXPERIMENT.format(factor=10))
    return path


@pytest.mark.processes
def test_an_experiment_file_travels(experiment: Path) -> None:
    loaded = load_experiment(str(experiment))
    folder = experiment.parent / "out"
    folder.mkdir()
    plan = frozen(*loaded.steps)
    path = written(plan, folder)
    expected = {
        "compute": [50, 1001, plan.steps[0].output_path],
        "marked": [True, "marked", 60],
        "lambda": [True, 70],
        "imported": 1008,
        "imported mark": 1010,
    }

    # After freezing, the file may change or be gone: what was planned is what runs.
    experiment.write_text(EXPERIMENT.format(factor=99))
    assert call_elsewhere(path, with_folder=experiment.parent) == expected
    experiment.unlink()
    assert call_elsewhere(path, with_folder=experiment.parent) == expected
    assert {item.name: call(plan, item) for item in plan.steps} == expected
    assert [item.function for item in plan.steps] == [
        "__main__.compute",
        "__main__.marked",
        "__main__.<lambda>",
        "beside.shift",
        "beside.marked",
    ]


@pytest.mark.processes
def test_a_script_that_was_started_itself_travels(experiment: Path) -> None:
    script = EXPERIMENT.format(factor=10).partition("if __name__")[0] + (
        "import sys\n"
        "from marin_rules.plans.freezing import freeze\n"
        "from marin_rules.plans.plan_file import write_plan\n"
        "from marin_rules.plans.run import new_run\n"
        "from marin_rules.plan import make_plan\n"
        "compute = ExecutorStep('compute', compute, Slotted(Local(5, path='x')))\n"
        "steps = [compute, ExecutorStep('marked', marked, Local(6))]\n"
        "plan = freeze(make_plan(steps, prefix='/p'), new_run(prefix='/p', caller_path=__file__))\n"
        "write_plan(plan, sys.argv[1])\n"
    )
    experiment.write_text(script)
    folder = experiment.parent / "out"
    folder.mkdir()
    path = str(folder / "plan")
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, str(experiment), path], env=environment, timeout=60, check=True)
    experiment.unlink()
    assert call_elsewhere(path, with_folder=experiment.parent) == {
        "compute": [50, 1001, "x"],
        "marked": [True, "marked", 60],
    }


def test_a_definition_is_stored_once_for_all_steps(experiment: Path) -> None:
    loaded = load_experiment(str(experiment))
    assert loaded.module is not None
    padding = "x" * 5_000
    big = types.FunctionType(
        compile(f"lambda config: len({padding!r})", "experiment.py", "eval").co_consts[0], loaded.module.__dict__
    )
    path = Path(written(frozen(*(step(f"s/{i}", versioned(i), big) for i in range(100))), experiment.parent))
    assert path.read_bytes().count(padding.encode()) == 1
    assert path.stat().st_size < 5_000 + 100 * 1_000


def test_two_plans_of_one_experiment_differ_only_in_their_run(experiment: Path) -> None:
    loaded = load_experiment(str(experiment))
    one, two = (frozen(*loaded.steps) for _ in range(2))
    assert one.steps == two.steps
    assert one.run.id != two.run.id


# --- what cannot be packed


def numbers() -> Any:
    yield from range(3)


def opened(mode: str) -> IO[Any]:
    return open(os.devnull, mode)


@pytest.mark.parametrize(
    "make",
    [
        threading.Lock,
        threading.Condition,
        numbers,
        lambda: opened("rb"),
        lambda: opened("w"),
        lambda: opened("r"),
        lambda: sys.stdout,
        lambda: sys._getframe(),
    ],
    ids=["lock", "condition", "generator", "binary file", "written file", "read file", "stream", "frame"],
)
@pytest.mark.parametrize("place", ["config", "closure"])
def test_what_cannot_travel_is_refused_by_the_steps_name(make: Callable[[], Any], place: str) -> None:
    value = make()
    try:
        culprit = step("culprit", Config([value])) if place == "config" else step("culprit", None, lambda _: value)
        with pytest.raises(PlanError, match=r"step 'culprit' .*cannot be sent .*belong inside the function"):
            frozen(step("user", [culprit]))
    finally:
        if hasattr(value, "close") and value is not sys.stdout:
            value.close()


# --- damage


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    plan = frozen(step("top", [step("a", Config(versioned(1)), closure(1)), step("b", Config("x" * 50))]))
    return Path(written(plan, tmp_path_factory.mktemp("whole"))).read_bytes()


def test_a_plan_that_is_cut_off_is_refused(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "plan"
    for length in [*range(100), *range(100, len(whole), len(whole) // 100), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(PlanFileError, match=f"the plan {path} is damaged .*start the experiment again"):
            read_plan(str(path))
    path.write_bytes(whole)
    assert [item.name for item in read_plan(str(path)).steps] == ["a", "b", "top"]


def test_a_plan_with_a_flipped_bit_is_refused(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "plan"
    chance = random.Random(20)
    for place in [*range(100), *chance.sample(range(len(whole)), 300), len(whole) - 1]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(PlanFileError, match="is damaged"):
            read_plan(str(path))


@pytest.mark.parametrize("data", [b"", b"\n", b"{}", b"marin-rules plan 0\n", b"\x80\x05N.", b"\0" * 1000])
def test_something_else_is_no_plan(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "plan"
    path.write_bytes(data)
    with pytest.raises(PlanFileError, match="is damaged"):
        read_plan(str(path))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"marin-rules plan 6", b"marin-rules plan 5"),
        (b'"force_run_failed"', b'"force_run_fallen"'),  # A field of a later version.
        (b'"warnings"', b'"warninge"'),
    ],
)
def test_a_plan_of_another_version_is_refused(whole: bytes, tmp_path: Path, before: bytes, after: bytes) -> None:
    start, lengths = len(b"marin-rules plan 6\n"), struct.Struct("<QIQI")
    length, _, last_length, last_checksum = lengths.unpack_from(whole, start)
    body = start + lengths.size
    index = whole[body : body + length].replace(before, after)
    head = whole[:start].replace(before, after) + lengths.pack(length, zlib.crc32(index), last_length, last_checksum)
    path = tmp_path / "plan"
    path.write_bytes(head + index + whole[body + length :])
    assert path.read_bytes() != whole
    with pytest.raises(PlanFileError, match=r"is damaged .*start the experiment again"):
        read_plan(str(path))


def test_a_plan_that_is_gone_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(PlanFileError, match=r"is gone: .*Start the experiment again"):
        read_plan(str(tmp_path / "plan"))


# --- environment variables


@remote(env_vars={"TOKEN": SECRET})
def with_secret(config: Any) -> Any:
    return os.environ["TOKEN"]


def test_values_of_variables_are_in_memory_only(tmp_path: Path) -> None:
    local = remote(closure(1), env_vars={"TOKEN": SECRET, "A": "1"}, resources=ResourceConfig.with_cpu())
    same = remote(closure(2), env_vars={"A": "1", "TOKEN": SECRET})
    plan = frozen(step("a", None, with_secret), step("b", None, local), step("c", None, same), step("d", None, double))
    assert SECRET.encode() not in Path(written(plan, tmp_path)).read_bytes()
    assert SECRET not in repr(plan.steps)
    assert [item.variables for item in plan.steps] == [0, 1, 1, None]
    assert plan.variables == [{"TOKEN": SECRET}, {"TOKEN": SECRET, "A": "1"}]
    again = read_plan(str(tmp_path / "plan"))
    assert again.variables == []
    assert [item.variables for item in again.steps] == [0, 1, 1, None]


@pytest.mark.parametrize("mention", ["itself", "another", "config"])
def test_a_mentioned_remote_function_does_not_carry_its_variables_along(mention: str, tmp_path: Path) -> None:
    path = tmp_path / "experiment.py"
    path.write_text(
        "from marin_rules import *\n"
        f"@remote(env_vars={{'TOKEN': {SECRET!r}}})\n"
        "def secretive(config):\n"
        "    return secretive.__name__\n"
        "def other(config):\n"
        "    return secretive(config)\n"
        "executor_main(steps=["
        + {
            "itself": "ExecutorStep('a', secretive, 1)",
            "another": "ExecutorStep('a', other, 1)",
            "config": "ExecutorStep('a', print, [secretive])",
        }[mention]
        + "])\n"
    )
    plan = frozen(*load_experiment(str(path)).steps)
    assert SECRET.encode() not in Path(written(plan, tmp_path)).read_bytes()


def test_a_step_gets_its_own_variables_and_none_of_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = exported([{"TOKEN": "one"}, {"TOKEN": "two", "B": "2"}])
    assert exported([]) == {}
    for number, expected in [(None, {}), (0, {"TOKEN": "one"}), (1, {"TOKEN": "two", "B": "2"})]:
        environment = {"HOME": "/home", "MARIN_RULES_OTHER": "x", "MARIN_PREFIX": "/p"} | variables
        monkeypatch.setattr(os, "environ", environment)
        set_step_variables(number)
        assert environment == {"HOME": "/home", "MARIN_PREFIX": "/p"} | expected


# --- versions


def test_versions_are_those_of_the_executor(tmp_path: Path) -> None:
    deep = step("deep/0", {"v": versioned((1, {"k": [2.5, None]}))})
    for number in range(1, 8):
        side = output_path_of(step(f"side/{number}", [deep])).nonblocking()
        deep = step(f"deep/{number}", [deep, {"again": deep / "x"}, side, InputName.hardcoded("raw")])
    twins = [step("twin", {"v": versioned(Colour.RED)}) for _ in range(2)]
    roots = [step("top", [deep, *twins]), step("other", [twins[1] / "x", output_path_of(deep).nonblocking()])]
    executor = Executor("/p", "/p/experiments")
    for root in roots:
        executor.compute_version(root, is_pseudo_dep=False)
    plan = read_plan(written(frozen(*roots), tmp_path))
    assert len(plan.steps) == len(executor.steps) == 18
    for item, original in zip(plan.steps, executor.steps, strict=True):
        assert item.name == original.name
        # A plan holds versions as they stand in info files: tuples are lists there.
        assert plan.version(item) == json.loads(executor.version_strs[original])
        assert json.dumps(plan.version(item), sort_keys=True) == executor.version_strs[original]
        assert item.hash == executor.hashed_versions[original] == item.digest[:6]


def test_a_version_of_megabytes_is_given_by_name_and_hash() -> None:
    last: list[ExecutorStep[Any]] = []
    for layer in range(5):
        last = [step(f"layer{layer}/{i}", {"i": versioned(i), "in": list(last)}) for i in range(12)]
    plan = frozen(*last)
    below = {item.key for item in plan.steps if item.name.startswith("layer3/")}
    version = plan.version(plan.steps[-1])
    assert set(version["dependencies"]) == below
    assert version["config"]["i"] == 11


def test_the_version_of_a_long_row_of_nonblocking_references(tmp_path: Path) -> None:
    last = step("row/0")
    for number in range(1, 800):
        last = step(f"row/{number}", [output_path_of(last).nonblocking()])
    plan = read_plan(written(frozen(last), tmp_path))
    assert plan.version(plan.steps[-1])["name"] == "row/799"
