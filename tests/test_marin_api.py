"""Marin's names and signatures, as its documentation has them: what a script of Marin's calls, it can call here."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import marin_rules
from marin_rules.compat.counterparts import COUNTERPARTS, RENAMED

STUBS = ast.parse(Path(__file__).with_name("golden").joinpath("marin_api.pyi").read_text())
UNKNOWN = "..."


def documented() -> Iterator[tuple[str, ast.arguments]]:
    """`name` or `class.method`, and its parameters; those of a class are the parameters of `__init__`."""
    for node in STUBS.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node.args
        elif isinstance(node, ast.ClassDef):
            for method in node.body:
                assert isinstance(method, ast.FunctionDef)
                if not any(getattr(decorator, "id", "") == "staticmethod" for decorator in method.decorator_list):
                    (method.args.posonlyargs or method.args.args).pop(0)  # self, cls
                yield node.name if method.name == "__init__" else f"{node.name}.{method.name}", method.args


DOCUMENTED = dict(documented())


def ours(name: str) -> inspect.Signature:
    found: Any = marin_rules
    for part in name.split("."):
        found = inspect.getattr_static(found, part) if inspect.isclass(found) else getattr(found, part)
    if isinstance(found, classmethod | staticmethod):
        found, skipped = found.__func__, isinstance(found, classmethod)
    else:
        skipped = "." in name
    signature = inspect.signature(found)
    return signature.replace(parameters=list(signature.parameters.values())[1:]) if skipped else signature


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_call_that_marin_documents_can_be_made(name: str) -> None:
    arguments, parameters = DOCUMENTED[name], ours(name).parameters
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + [ast.unparse(item) for item in arguments.defaults]
    in_order = [item for item in parameters.values() if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)]
    renamed = {"obj": "config", "other": "name"}  # Of what nobody passes by name.
    for position, (argument, default) in enumerate(zip(positional, defaults, strict=True)):
        found = in_order[position]
        assert found.name in (argument.arg, renamed.get(argument.arg)), f"argument {position}"
        check_default(found, default)
    assert all(item.default is not item.empty for item in in_order[len(positional) :]), "one more is required"
    for argument, node in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        check_default(parameters[argument.arg], None if node is None else ast.unparse(node))
    if arguments.kwarg is not None:
        assert any(item.kind is item.VAR_KEYWORD for item in parameters.values())


def check_default(found: inspect.Parameter, documented: str | None) -> None:
    if documented is None:  # More may be optional here than there.
        return
    assert found.default is not found.empty, found.name
    if documented != UNKNOWN:
        assert found.default == ast.literal_eval(documented), found.name


def test_no_signature_is_lost() -> None:
    assert len(DOCUMENTED) > 85


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in COUNTERPARTS.items() for name in names]
)
def test_every_counterpart_is_at_the_top_level(module: str, name: str) -> None:
    assert RENAMED.get(name, name) in marin_rules.__all__
