"""What the rules get from their helper, without a Snakemake: targets, inputs, commands and checks."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_common.exceptions import WorkflowError

from marin_rules import ResourceConfig, SnakemakeRule
from marin_rules.engine.invocation import Invocation
from marin_rules.engine.names import check_rule_names, check_targets
from marin_rules.engine.plan_in_process import PlanInProcess
from marin_rules.engine.workflow import MarinWorkflow
from marin_rules.errors import SettingsError
from marin_rules.plans.frozen import FrozenPlan
from marin_rules.state.status import Status
from support.fake_snakemake import FakeWorkflow, storage, wildcards
from support.small_plans import leave_status, plan_of, step


def train(config: Any) -> None:
    """Another step function."""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FrozenPlan:
    monkeypatch.chdir(tmp_path)
    a = step("a")
    b = step("b", a)
    return plan_of(tmp_path, step("c", a, b, fn=train))


def helper(plan: FrozenPlan, **details: Any) -> MarinWorkflow:
    workflow = FakeWorkflow(rules=[SimpleNamespace(name=name) for name in ("all", "compute", "train")], **details)
    return MarinWorkflow(PlanInProcess(plan), Invocation(workflow), storage)


def names(targets: list[str]) -> list[str]:
    return [target.removeprefix("storage/").split("-")[0] for target in targets]


def inputs(marin: MarinWorkflow, name: str) -> list[str]:
    key = next(item.key for item in marin.plan.steps if item.name == name)
    return names(marin.inputs(wildcards(key)))


def requested(marin: MarinWorkflow) -> list[str]:
    """The targets of a run that ends before its first job."""
    try:
        return names(marin.requested(SimpleNamespace()))
    finally:
        marin.finish(success=False)


def test_a_rule_for_each_function(plan: FrozenPlan) -> None:
    marin = helper(plan)
    assert marin.functions == ["compute", "train"]
    assert marin.target("train") == "storage/{step}#train"
    assert marin.is_local("train")
    assert (marin.threads("train"), marin.resources("train")) == (1, {"step_slots": 1})


@pytest.mark.processes  # Workers are warmed up for what is requested.
def test_a_new_step_waits_for_all_that_it_uses(plan: FrozenPlan) -> None:
    marin = helper(plan)
    assert [inputs(marin, name) for name in ("a", "b", "c")] == [[], ["a"], ["a", "b"]]
    assert requested(marin) == ["c"]


def test_a_step_waits_only_for_what_is_not_done(plan: FrozenPlan) -> None:
    leave_status(plan.steps[0], Status.SUCCESS)
    marin = helper(plan)
    assert [inputs(marin, name) for name in ("a", "b", "c")] == [[], [], ["b"]]


def test_an_ancestor_of_finished_work_is_not_made_again(plan: FrozenPlan) -> None:
    leave_status(plan.steps[2], Status.SUCCESS)
    marin = helper(plan)
    assert inputs(marin, "c") == []
    (nothing,) = marin.requested(SimpleNamespace())
    assert Path(nothing).is_file(), "Snakemake finds it made, and starts nothing"
    assert list((Path(plan.run.prefix) / "experiments").glob("x-*.json")), "the experiment is written down all the same"


def test_a_dry_run_of_finished_work_writes_nothing(plan: FrozenPlan) -> None:
    leave_status(plan.steps[2], Status.SUCCESS)
    helper(plan, dryrun=True).requested(SimpleNamespace())
    assert not (Path(plan.run.prefix) / "experiments").exists()


def test_a_refused_step_comes_after_all_that_can_run(plan: FrozenPlan) -> None:
    plan.run = replace(plan.run, force_run_failed=False)
    leave_status(plan.steps[1], Status.FAILED)
    assert inputs(helper(plan), "b") == ["a"]


@pytest.mark.processes  # Workers are warmed up for what is requested.
def test_forced_steps_are_forced_in_the_dag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_of(tmp_path, step("a"), force=["a"])
    leave_status(plan.steps[0], Status.SUCCESS)
    workflow = FakeWorkflow()
    marin = MarinWorkflow(PlanInProcess(plan), Invocation(workflow), storage)
    assert requested(marin) == ["a"]
    assert names(sorted(workflow.dag.forcefiles)) == ["a"]


def test_in_a_process_for_one_job_nothing_is_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_of(tmp_path, step("a"), force=["a"])
    leave_status(plan.steps[0], Status.SUCCESS)
    workflow = FakeWorkflow(is_main_process=False)
    MarinWorkflow(PlanInProcess(plan), Invocation(workflow), storage).requested(SimpleNamespace())
    assert workflow.dag.forcefiles == set()


@pytest.mark.processes  # Workers are warmed up for what is requested.
def test_max_concurrent_is_a_limit_of_slots(plan: FrozenPlan) -> None:
    workflow = FakeWorkflow()
    requested(MarinWorkflow(PlanInProcess(plan), Invocation(workflow), storage, max_concurrent=3))
    assert workflow.global_resources["step_slots"] == 3


def test_nobody_knows_what_another_executor_costs(plan: FrozenPlan) -> None:
    marin = helper(plan, local_exec=False)
    marin.in_process.max_usd = 5
    with pytest.raises(WorkflowError, match="max_usd cannot be kept: what steps cost with this executor is not known"):
        marin.requested(SimpleNamespace())


@pytest.mark.processes  # Snakemake's parser imports all plug-ins, and some look for programs.
def test_a_report_shows_all_steps_whatever_their_state(plan: FrozenPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_status(plan.steps[0], Status.SUCCESS)
    monkeypatch.setattr(sys, "argv", ["snakemake", "--report"])
    marin = helper(plan, execution_settings=None)
    assert inputs(marin, "c") == ["a", "b"]
    assert names(marin.requested(SimpleNamespace())) == ["c"]


def test_the_command_of_plain_steps_is_one_text_for_all(plan: FrozenPlan) -> None:
    command = helper(plan).command("train")
    texts = {command(wildcards(name), output=[]) for name in ("a", "b")}
    assert len(texts) == 1
    assert f"--plan {plan.run.plan_path} --step" in texts.pop()


def test_a_command_with_braces_is_no_pattern(plan: FrozenPlan) -> None:
    plan.run = replace(plan.run, directory="/x/{y}")
    command = helper(plan).command("train")
    assert "/x/{y}/plan" in command(wildcards("any"), output=[])


def test_steps_that_ask_for_machines_have_a_rule_that_is_sent_away(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, step("big", resources=ResourceConfig.with_cpu(cpu=2)), step("small"))
    marin = helper(plan)
    assert marin.functions == ["compute", "compute_here"]
    assert [marin.is_local(rule) for rule in marin.functions] == [False, True]


def on_nodes_without_our_files(plan: FrozenPlan, *, groups: dict[str, str], dry_run: bool) -> MarinWorkflow:
    """A helper for a cluster whose file, in the working directory, says so."""
    Path("config", "clusters").mkdir(parents=True)
    Path("config", "clusters", "site.yaml").write_text("jobs: {shared: false}\n")
    plan.run = replace(plan.run, cluster="site")
    known = ("all", "compute", "compute_here", "sort_lines")
    rules = [SimpleNamespace(name=name, group=groups.get(name)) for name in known]
    workflow = FakeWorkflow(rules=rules, local_exec=False, dryrun=dry_run)
    return MarinWorkflow(PlanInProcess(plan), Invocation(workflow), storage)


@pytest.mark.parametrize("dry_run", [True, False])
def test_groups_need_nodes_with_our_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry_run: bool) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_of(tmp_path / "out", step("big", resources=ResourceConfig.with_cpu(cpu=2)), step("small"))
    marin = on_nodes_without_our_files(plan, groups={"compute": "both"}, dry_run=dry_run)
    with pytest.raises(WorkflowError, match="group both: jobs of several steps need the driver's files"):
        marin.requested(SimpleNamespace())
    assert not (tmp_path / "out").exists()


def test_groups_of_steps_that_stay_here_need_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_of(tmp_path / "out", step("big", resources=ResourceConfig.with_cpu(cpu=2)), step("small"))
    marin = on_nodes_without_our_files(plan, groups={"compute_here": "both"}, dry_run=True)
    assert sorted(names(marin.requested(SimpleNamespace()))) == ["big", "small"]


def test_a_dry_run_refuses_what_cannot_be_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_of(tmp_path / "out", step("a", fn=SnakemakeRule("sort_lines")))
    marin = on_nodes_without_our_files(plan, groups={}, dry_run=True)
    with pytest.raises(WorkflowError, match="step 'a' cannot run on nodes that do not share this machine's files"):
        marin.requested(SimpleNamespace())


def test_a_step_without_its_hand_written_rule_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_of(tmp_path, step("a", fn=SnakemakeRule("sort_lines")))
    with pytest.raises(WorkflowError, match="step 'a': there is no Snakemake rule 'sort_lines' in any file"):
        helper(plan).requested(SimpleNamespace())


def test_for_hand_written_rules(plan: FrozenPlan) -> None:
    marin = helper(plan)
    asked = wildcards(plan.steps[1].key)
    assert marin.output_path(asked) == plan.steps[1].output_path
    assert marin.config(asked) == ["b", f"{plan.steps[0].output_path}/x"]
    assert Path(marin.environment("text-tools.yaml")).is_file()
    assert "{wildcards.step}" in marin.leased("sort {input}")


@pytest.mark.parametrize(
    ("flag", "name", "again"),
    [("-R", "a", " To run it again: `--config force='^a$'`."), ("--until", "KEY", ""), ("--omit-from", "PATH", "")],
)
def test_a_step_where_a_rule_is_wanted(plan: FrozenPlan, flag: str, name: str, again: str) -> None:
    first = plan.steps[0]
    name = {"KEY": first.key, "PATH": first.output_path}.get(name, name)
    with pytest.raises(SettingsError) as refused:
        check_rule_names({flag: {name, "compute"}}, plan.steps, PlanInProcess(plan).rule)
    assert str(refused.value) == (
        f"{flag} takes rules, and {name} is a step.{again} The rule compute, which runs it, stands for all its steps:"
        f" `{flag} compute`."
    )


def test_rules_and_unknown_names_are_left_to_snakemake(plan: FrozenPlan) -> None:
    check_rule_names({"-R": {"compute", "nothing"}}, plan.steps, PlanInProcess(plan).rule)


@pytest.mark.parametrize("name", ["a", "KEY", "PATH"])
def test_a_step_where_a_target_is_wanted(plan: FrozenPlan, name: str) -> None:
    first = plan.steps[0]
    name = {"KEY": first.key, "PATH": first.output_path}.get(name, name)
    with pytest.raises(SettingsError) as refused:
        check_targets({name, "all"}, plan.steps, PlanInProcess(plan).rule)
    assert str(refused.value) == (
        f"{name} is a step, and Snakemake wants a target. To run it and what it needs: `--config run_only='^a$'`."
    )


def test_a_rule_of_steps_where_a_target_is_wanted(plan: FrozenPlan) -> None:
    with pytest.raises(SettingsError, match=r"^compute is the rule of steps, and Snakemake wants a target"):
        check_targets({"compute"}, plan.steps, PlanInProcess(plan).rule)


def test_targets_and_unknown_names_are_left_to_snakemake(plan: FrozenPlan) -> None:
    check_targets({"all", "nothing", f"{plan.steps[0].key}#compute"}, plan.steps, PlanInProcess(plan).rule)
