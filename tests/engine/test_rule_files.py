"""Hand-written rules that cannot be used are refused with their file, their line and what to do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from marin_rules.engine.rule_files import check_rule_file, check_rules_of_steps
from marin_rules.errors import PlanError, SettingsError
from marin_rules.plans.frozen import FrozenStep

VALID = 'rule sort:\n    output: "sorted"\n    shell: "sort > {output}"\n'


def check(path: Path) -> None:
    # As much of a workflow as Snakemake's parser asks for.
    sourcecache = SimpleNamespace(open=lambda source: path.open(encoding="utf-8"))
    check_rule_file(str(path), SimpleNamespace(modules={}, sourcecache=sourcecache))


def test_valid_rules_are_let_through(tmp_path: Path) -> None:
    path = tmp_path / "x.smk"
    path.write_text(VALID)
    check(path)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (VALID + "rule broken\n", 4),  # Snakemake's parser sees it,
        (VALID + "x = = 1\n", 4),  # only Python's does,
        (VALID + "x = (1,\n", 4),  # or the tokenizer at the end.
    ],
)
def test_invalid_rules_are_refused_with_their_line(text: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / "x.smk"
    path.write_text(text)
    with pytest.raises(SettingsError, match=rf"the rules in {path} are not valid: line \d+: \S+") as caught:
        check(path)
    assert f"line {line}: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rules_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.smk"
    path.write_bytes(b'rule a:\n    output: "\xff"\n')
    with pytest.raises(SettingsError, match="are not text in UTF-8"):
        check(path)


def step(name: str, rule: str | None) -> FrozenStep:
    return cast(FrozenStep, SimpleNamespace(name=name, rule=rule))


@pytest.mark.parametrize(
    ("rules", "files", "told"),
    [
        (["sort", "count"], ["a.smk", "b.smk"], "no Snakemake rule 'srot' in a.smk, b.smk. Did you mean 'sort'?"),
        (["count"], ["a.smk"], "no Snakemake rule 'srot' in a.smk. Write it in experiments/x.smk, or name its file"),
        ([], [], "no Snakemake rule 'srot' in any file. Write it in experiments/x.smk, or name its file"),
    ],
)
def test_a_step_whose_rule_is_missing_is_refused_by_name(rules: list[str], files: list[str], told: str) -> None:
    steps: list[Any] = [step("plain", None), step("sorted", "srot")]
    with pytest.raises(PlanError) as caught:
        check_rules_of_steps(steps, rules, files, "experiments/x.py")
    assert "step 'sorted': there is " + told in str(caught.value)


def test_steps_whose_rules_are_there_are_let_through() -> None:
    check_rules_of_steps([step("plain", None), step("sorted", "sort")], ["sort"], ["a.smk"], "experiments/x.py")
