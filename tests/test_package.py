"""What `import marin_rules` gives: the whole public API, and nothing that is not used yet."""

import ast
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import marin_rules
from marin_rules import THIS_OUTPUT_PATH, OutputName

REPOSITORY = Path(__file__).resolve().parents[1]


def answer_of(code: str) -> object:
    """What a fresh Python prints as JSON."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


@pytest.mark.processes
def test_what_is_not_used_is_not_imported() -> None:
    code = "import json, sys, marin_rules; print(json.dumps(sorted(name for name in sys.modules if 'marin' in name)))"
    assert answer_of(code) == [
        "marin_rules",
        "marin_rules.remote",
        "marin_rules.resources",
        "marin_rules.tasks",
        "marin_rules.units",
    ]


@pytest.mark.processes
def test_an_import_of_everything_gives_everything() -> None:
    names = answer_of("import json; from marin_rules import *; print(json.dumps(dir()))")
    assert isinstance(names, list)
    assert set(marin_rules.__all__) <= set(names)


@pytest.mark.processes
def test_the_function_remote_is_not_replaced_by_its_module() -> None:
    code = (
        "import json, marin_rules.remote, marin_rules; from marin_rules import *; print(json.dumps(callable(remote)))"
    )
    assert answer_of(code) is True


@pytest.mark.processes
def test_a_fresh_package_lists_all_names() -> None:
    names = answer_of("import json, marin_rules; print(json.dumps(dir(marin_rules)))")
    assert isinstance(names, list)
    assert set(marin_rules.__all__) <= set(names)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="'marin_rules' has no attribute 'executor_man'"):
        marin_rules.executor_man  # noqa: B018 - the access is what is tested


@pytest.mark.parametrize("name", marin_rules.__all__)
def test_every_name_can_be_pickled_as_what_it_is(name: str) -> None:
    value = getattr(marin_rules, name)
    assert pickle.loads(pickle.dumps(value)) == value


def test_type_checkers_see_what_python_imports() -> None:
    tree = ast.parse(Path(marin_rules.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {
        str(node.module).removeprefix("marin_rules."): [imported.name for imported in node.names] for node in imports
    }
    assert seen == marin_rules._EXPORTS
    assert sorted(["remote", *(name for names in seen.values() for name in names)]) == sorted(marin_rules.__all__)


@pytest.mark.parametrize(
    "name",
    [
        "executor_main",
        "ExecutorMainConfig",
        "Executor",
        "ExecutorStep",
        "InputName",
        "output_path_of",
        "OutputName",
        "this_output_path",
        "THIS_OUTPUT_PATH",
        "VersionedValue",
        "versioned",
        "ensure_versioned",
        "unwrap_versioned_value",
        "get_executor_step",
        "MirroredValue",
        "mirrored",
        "walk_config",
        "upstream_steps",
        "resolve_local_placeholders",
        "instantiate_config",
        "collect_dependencies_and_version",
        "compute_output_path",
        "materialize",
        "remote",
        "RemoteCallable",
        "ResourceConfig",
        "CpuConfig",
        "GpuConfig",
        "TpuConfig",
    ],
)
def test_the_public_names(name: str) -> None:
    assert hasattr(marin_rules, name)
    assert name in marin_rules.__all__


def test_every_public_name_is_there_once() -> None:
    assert len(set(marin_rules.__all__)) == len(marin_rules.__all__)
    assert [name for name in marin_rules.__all__ if not hasattr(marin_rules, name)] == []


# --- what type checkers say

TYPED = """
from dataclasses import dataclass
from marin_rules import (
    THIS_OUTPUT_PATH,
    ExecutorStep,
    InputName,
    executor_main,
    output_path_of,
    this_output_path,
    versioned,
)


@dataclass(frozen=True)
class TrainConfig:
    data: str | InputName
    steps: int = 3
    output_path: str = THIS_OUTPUT_PATH
    logs: str = this_output_path("logs")


def train(config: TrainConfig) -> None:
    print(config.output_path.removesuffix("/"), config.steps + 1)


data = ExecutorStep(name="data", fn=train, config=TrainConfig(data="raw", steps=versioned(3)))
model = ExecutorStep(name="model", fn=train, config=TrainConfig(data=output_path_of(data) / "x"))
path: InputName = model / "checkpoint"

if __name__ == "__main__":
    executor_main(steps=[model, path])
"""


@pytest.mark.processes
def test_a_placeholder_fits_a_field_of_text_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(TYPED)
    (tmp_path / "bad.py").write_text(TYPED.replace("output_path: str =", "output_path: int ="))
    flags = ("--strict", "--follow-imports=silent", f"--cache-dir={tmp_path / 'cache'}", "--config-file=")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *flags, "good.py", "bad.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "MYPYPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    complaints = checked.stdout.splitlines()
    assert [line for line in complaints if line.startswith("good.py")] == [], checked.stdout
    found = [line for line in complaints if 'expression has type "OutputName", variable has type "int"' in line]
    assert len(found) == 1, checked.stdout + checked.stderr
    assert found[0].startswith("bad.py:")


def test_a_placeholder_is_no_text_when_it_runs() -> None:
    assert isinstance(THIS_OUTPUT_PATH, OutputName)
    assert type(THIS_OUTPUT_PATH).__mro__[1:] == (object,)
