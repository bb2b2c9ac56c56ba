"""What the user asked of Snakemake, read off a stand-in for its workflow object."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_executor_plugins.settings import DeploymentMethod, SharedFSUsage

from marin_rules.engine.cut import Cut
from marin_rules.engine.invocation import QUESTIONS, Invocation
from marin_rules.errors import SettingsError
from marin_rules.plans.conda import CondaEnvironment
from support.fake_snakemake import FakeDag, FakeWorkflow, job


def invocation(**details: Any) -> Invocation:
    return Invocation(FakeWorkflow(**details))


def test_a_plain_run() -> None:
    asked = invocation()
    assert asked.executes
    assert asked.is_driver
    assert asked.runs_here
    assert not asked.dry_run
    assert not asked.deploys_conda
    assert not asked.forces_all
    assert not asked.asks_for_jobs
    assert asked.cut == Cut(frozenset(), frozenset())
    assert asked.forced_rules == frozenset()
    asked.check()


def test_a_report_executes_nothing() -> None:
    assert not invocation(execution_settings=None).executes


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ({"touch": True}, "--touch would mark steps as done that are not"),
        ({"resource_settings": SimpleNamespace(nodes=-1, cores=None)}, r"\(-j, --cores\) must be at least 1, not -1"),
        ({"resource_settings": SimpleNamespace(nodes=None, cores=0)}, r"must be at least 1, not 0"),
    ],
)
def test_what_would_be_wrong_is_refused(details: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        invocation(**details).check()


def test_names_on_the_command_line() -> None:
    workflow = FakeWorkflow()
    workflow.dag_settings.forcerun = {"train"}
    workflow.dag_settings.until = {"tokenize"}
    asked = Invocation(workflow)
    assert asked.named == {"-R": {"train"}, "--until": {"tokenize"}, "--omit-from": set()}
    assert asked.forced_rules == {"train"}
    assert asked.cut == Cut(frozenset({"tokenize"}), frozenset())


@pytest.mark.parametrize(
    ("part", "setting", "value"),
    [
        ("output_settings", "printshellcmds", True),
        ("output_settings", "verbose", True),
        ("output_settings", "debug_dag", True),
        ("output_settings", "log_handler_settings", {"marin": None, "rich": None}),
        ("dag_settings", "allowed_rules", {"train"}),
        ("dag_settings", "batch", object()),
        ("scheduling_settings", "prioritytargets", {"train"}),
        ("deployment_settings", "deployment_method", {DeploymentMethod.CONDA}),
        ("resource_settings", "overwrite_threads", {"train": 2}),
        ("resource_settings", "overwrite_resources", {"train": {}}),
    ],
)
def test_a_dry_run_makes_jobs_where_something_asks_for_them(part: str, setting: str, value: Any) -> None:
    workflow = FakeWorkflow(dryrun=True)
    assert not Invocation(workflow).asks_for_jobs
    setattr(getattr(workflow, part), setting, value)
    assert Invocation(workflow).asks_for_jobs


def test_jobs_that_go_elsewhere_are_asked_for() -> None:
    assert invocation(dryrun=True, local_exec=False).asks_for_jobs
    assert not invocation(local_exec=False).runs_here


def test_j_means_cores_for_a_local_run() -> None:
    workflow = FakeWorkflow()
    Invocation(workflow).count_cores()
    assert workflow.global_resources["_cores"].value == 2, "nothing was said of jobs"
    workflow.global_resources["_nodes"] = SimpleNamespace(value=3)
    Invocation(workflow).count_cores()
    assert (workflow.global_resources["_cores"], workflow.global_resources["_nodes"]) == (3, None)


def test_a_limit_of_the_user_stays() -> None:
    workflow = FakeWorkflow()
    workflow.global_resources["gpu"] = 1
    asked = Invocation(workflow)
    asked.limit("gpu", 8)
    asked.limit("mem_mb", 1000)
    assert (workflow.global_resources["gpu"], workflow.global_resources["mem_mb"]) == (1, 1000)


@pytest.mark.parametrize(
    ("left", "finished", "done", "is_over"),
    [
        (["train"], [], ["train"], True),  # It ended while Snakemake stopped, and its status tells.
        (["train"], [], [], False),
        (["train"], ["train"], [], True),
        (["train", "stats"], ["train"], [], False),
        ([None], [], [], False),  # A job that is no step's has no status.
        ([None], [None], [], True),
        ([], [], [], True),
    ],
)
def test_whether_all_jobs_have_ended(
    left: list[str | None], finished: list[str | None], done: list[str], is_over: bool
) -> None:
    jobs = {name: job("rule", name) for name in left}
    dag = FakeDag([job("all"), *jobs.values()], [jobs[name] for name in finished])
    assert invocation(dag=dag).is_over(lambda key: key in done) is is_over


def test_resources_are_those_of_the_steps_job() -> None:
    dag = FakeDag([job("all"), job("train", "train-123456", resources={"mem_mb": 5})])
    asked = invocation(dag=dag)
    assert asked.resources_of("train-123456") == {"mem_mb": 5}
    assert asked.resources_of("other") == {}


def conda(**details: Any) -> SimpleNamespace:
    file = SimpleNamespace(get_path_or_uri=lambda secret_free: "/envs/a.yaml")
    found = SimpleNamespace(name=None, address="/conda/abc", is_externally_managed=False, file=file)
    found.__dict__.update(details)
    return found


@pytest.mark.parametrize(
    ("environment", "shared", "is_local", "expected"),
    [
        (conda(), True, False, CondaEnvironment("/conda/abc", "/envs/a.yaml")),
        (conda(), False, True, CondaEnvironment("/conda/abc", "/envs/a.yaml")),
        (conda(), False, False, CondaEnvironment("", "/envs/a.yaml")),  # It is made where the job runs.
        (conda(name="mine", is_externally_managed=True), True, True, CondaEnvironment("", "")),
        (conda(is_externally_managed=True), True, True, CondaEnvironment("/conda/abc", "")),
    ],
)
def test_conda_environments_of_steps(
    environment: Any, shared: bool, is_local: bool, expected: CondaEnvironment
) -> None:
    jobs = [
        job("train", "train-123456", conda_env=environment, is_local=is_local),
        job("plain", "plain-123456", conda_env=None, is_local=is_local),
        job("all", conda_env=environment, is_local=True),
    ]
    usage = SharedFSUsage.all() if shared else SharedFSUsage.all() - {SharedFSUsage.SOFTWARE_DEPLOYMENT}
    asked = invocation(dag=FakeDag(jobs), storage_settings=SimpleNamespace(shared_fs_usage=usage))
    assert asked.conda_environments() == {"train-123456": expected}


def test_steps_are_forced_while_the_dag_is_built() -> None:
    workflow = FakeWorkflow()
    Invocation(workflow).force(["storage/a#train"])
    assert workflow.dag.forcefiles == {"storage/a#train"}


def test_statuses_are_trusted_more_than_marks_of_incomplete_jobs() -> None:
    workflow = FakeWorkflow()
    Invocation(workflow).trust_statuses()
    assert workflow.dag.ignore_incomplete


@pytest.mark.processes  # Snakemake's parser imports all plug-ins, and some look for programs.
@pytest.mark.parametrize("question", sorted(QUESTIONS))
def test_questions_about_files_are_refused_with_advice(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flag = f"--{question.replace('_', '-')}"
    value = {"list_changes": ["code"], "archive": ["x.tar"]}.get(question, [])
    monkeypatch.setattr(sys, "argv", ["snakemake", flag, *value])
    with pytest.raises(SettingsError) as refused:
        invocation().check_question()
    assert str(refused.value) == f"{flag} {QUESTIONS[question]}"


@pytest.mark.processes
def test_a_report_is_no_such_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["snakemake", "--report", "x.html"])
    invocation().check_question()
