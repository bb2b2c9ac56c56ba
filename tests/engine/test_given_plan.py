"""The plan that a process is started with, and how errors of ours reach a person through Snakemake."""

from __future__ import annotations

from pathlib import Path

import pytest
from snakemake_interface_common.exceptions import WorkflowError

from marin_rules.engine.given_plan import DIGEST_VARIABLE, PLAN_VARIABLE, give_plan, given_plan, plan_for
from marin_rules.engine.trouble import guarded, told_in
from marin_rules.errors import MarinRulesError, SettingsError
from marin_rules.plans.plan_file import PlanFileError, write_plan
from marin_rules.settings.run_settings import Settings
from support.small_plans import plan_of, step


@pytest.fixture(autouse=True)
def no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (PLAN_VARIABLE, DIGEST_VARIABLE):
        monkeypatch.setenv(name, "")  # So that it is as before after the test, whatever the test sets.
        monkeypatch.delenv(name)


def test_a_process_without_a_plan_has_to_make_one() -> None:
    assert given_plan() is None


def test_the_plan_that_is_given_is_taken(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, step("a"))
    write_plan(plan, str(tmp_path / "private" / "plan"))
    give_plan(str(tmp_path / "private" / "plan"), plan.digest)
    taken = given_plan()
    assert taken is not None
    assert (taken.run, taken.steps, taken.digest) == (plan.run, plan.steps, plan.digest)


def test_no_other_plan_is_taken(tmp_path: Path) -> None:
    mine, other = plan_of(tmp_path, step("a")), plan_of(tmp_path, step("b"))
    write_plan(other, str(tmp_path / "private" / "plan"))
    give_plan(str(tmp_path / "private" / "plan"), mine.digest)
    with pytest.raises(PlanFileError, match="is not the one that this run wrote"):
        given_plan()


def test_a_configured_cluster_wins_over_the_one_that_the_plan_was_made_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clusters = tmp_path / "config" / "clusters"
    clusters.mkdir(parents=True)
    for name in ("of-the-variable", "configured"):
        (clusters / f"{name}.yaml").write_text("data: {}\n")
    plan = plan_of(tmp_path, step("a"), cluster="of-the-variable")
    path = str(tmp_path / "private" / "plan")
    write_plan(plan, path)
    give_plan(path, plan.digest)
    assert plan_for(Settings()).run == plan.run
    configured = plan_for(Settings(cluster="configured"))
    assert configured.run.cluster == "configured"
    write_plan(configured, path)  # As a run does before its first job; its jobs take no other.
    give_plan(path, configured.digest)
    assert plan_for(Settings(cluster="configured")).digest == configured.digest != plan.digest
    with pytest.raises(SettingsError, match=r"^cluster 'misspelt': there is no misspelt\.yaml"):
        plan_for(Settings(cluster="misspelt"))


def test_a_process_without_a_plan_plans_the_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text(
        "from marin_rules import ExecutorStep, executor_main\nexecutor_main(steps=[ExecutorStep('a', print, {})])\n"
    )
    assert [item.name for item in plan_for(Settings(experiment="x.py", prefix="out")).steps] == ["a"]


def test_a_plan_that_is_gone_is_named(tmp_path: Path) -> None:
    give_plan(str(tmp_path / "plan"), None)
    with pytest.raises(PlanFileError, match=f"the plan {tmp_path}/plan is gone"):
        given_plan()


@pytest.mark.parametrize("error", [MarinRulesError("say which"), FileNotFoundError(2, "no such thing", "x")])
def test_an_error_of_ours_is_one_line(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(WorkflowError) as raised:
        guarded(fail)
    assert raised.value.__cause__ is None
    assert told_in(f"WorkflowError in file Snakefile, line 12:\n{error}\n  File ...") == str(error)
    assert told_in("another message") is None


def test_a_mistake_in_the_code_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        guarded(lambda: 1 // 0)


def test_an_answer_is_passed_through() -> None:
    assert guarded(lambda: [1]) == [1]
