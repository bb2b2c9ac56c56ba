"""Which variables of the driver reach a job."""

from __future__ import annotations

import pytest

from marin_rules.driver.job_variables import chosen_variables

SESSION = {
    "PATH": "/home/ann/bin:/usr/bin",
    "HOME": "/home/ann",
    "PYTHONPATH": "/home/ann/lib",
    "LANG": "C.UTF-8",
    "LC_TIME": "de_DE",
    "MARIN_PREFIX": "gs://bucket",
    "MARIN_RULES_PLAN": "gs://bucket/plan",
    "MARIN_RULES_WARM": "/tmp/warm",
    "MARIN_RULES_STEP_VARIABLES": "/proc/1/fd/3 mark",
    "MARIN_RULES_OWN_VARIABLES": "{}",
    "MARIN_RULES_NAMED_VARIABLES": "{}",
    "MARIN_RULES_STEP_VARIABLE_TOKEN": "of another step",
    "MARIN_RULES_JOB_ID": "the-drivers-own",
    "MARIN_RULES_DRIVER_JOB": "7",
    "GOOGLE_APPLICATION_CREDENTIALS": "/etc/key.json",
    "AWS_SECRET_ACCESS_KEY": "s3cret",
    "HF_TOKEN": "hf",
    "https_proxy": "http://proxy",
    "XLA_FLAGS": "--x",
    "SSH_AUTH_SOCK": "/tmp/agent",
    "SLURM_JOB_ID": "7",
    "TMPDIR": "/tmp/of-this-login",
    "DISPLAY": ":0",
    "GITHUB_TOKEN": "not for jobs",
    "LAB_NAME": "lab",
    "LABEL": "x",
}
ANYWHERE = {
    *("LANG", "LC_TIME", "MARIN_PREFIX", "MARIN_RULES_PLAN", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "https_proxy", "XLA_FLAGS"),
}


def test_with_shared_files_a_job_also_gets_what_names_them() -> None:
    chosen = chosen_variables(SESSION, shared=True)
    assert chosen == {name: SESSION[name] for name in {*ANYWHERE, "PATH", "HOME", "PYTHONPATH"}}


def test_without_shared_files_a_job_has_the_path_of_its_node() -> None:
    chosen = chosen_variables(SESSION, shared=False)
    assert chosen == {name: SESSION[name] for name in ANYWHERE}


@pytest.mark.parametrize(
    ("more", "own", "added"),
    [
        (["LAB_*"], "", {"LAB_NAME"}),
        ([], "LAB_NAME, DISPLAY", {"LAB_NAME", "DISPLAY"}),
        (["GITHUB_TOKEN"], "LAB*", {"GITHUB_TOKEN", "LAB_NAME", "LABEL"}),
        (["NOT_SET"], "", set()),
    ],
)
def test_users_add_names(more: list[str], own: str, added: set[str]) -> None:
    environment = {**SESSION, "MARIN_JOB_VARIABLES": own}
    chosen = chosen_variables(environment, shared=False, more=more)
    assert set(chosen) == {*ANYWHERE, "MARIN_JOB_VARIABLES", *added}


def test_what_leads_to_the_drivers_own_processes_is_never_passed_on() -> None:
    chosen = chosen_variables({**SESSION, "MARIN_JOB_VARIABLES": "MARIN_RULES_*,*"}, shared=True)
    assert {*SESSION} - {*chosen} == {
        *("MARIN_RULES_WARM", "MARIN_RULES_STEP_VARIABLES", "MARIN_RULES_OWN_VARIABLES", "MARIN_RULES_DRIVER_JOB"),
        *("MARIN_RULES_NAMED_VARIABLES", "MARIN_RULES_STEP_VARIABLE_TOKEN", "MARIN_RULES_JOB_ID"),
    }
