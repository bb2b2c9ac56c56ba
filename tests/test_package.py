"""What `import marin_rules` gives: the whole public API, and nothing that is not used yet."""

import ast
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import marin_rules


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
