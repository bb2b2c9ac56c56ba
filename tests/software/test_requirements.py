"""Groups stand for requirements: of the user's project, of marin-rules, or for themselves."""

from importlib.metadata import version
from pathlib import Path

import pytest

from marin_rules.errors import SettingsError
from marin_rules.software.requirements import driver_requirements, resolve_groups

WORKER = {"cloudpickle>=3.1", "fsspec>=2025.3", "pyyaml>=6"}

PYPROJECT = """
[project]
name = "My_Project"
dependencies = ["numpy>=2", "Marin_Rules", "tomli; python_version < '3.11'"]

[project.optional-dependencies]
gpu = ["jax[cuda12]>=0.11,<1", "six ; sys_platform != 'no-such-system'"]
everything = ["my-project[GPU]", "marin-rules[s3]", "Iniconfig"]
egg = ["my.project[hen]"]
hen = ["my.project[egg]"]
broken = ["not a requirement"]
lost = ["my-project[nowhere]"]

[dependency-groups]
Unit_Test = ["pytest", {include-group = "Lint.Tools"}]
lint-tools = ["ruff", "my-project[gpu]"]
one = [{include-group = "two"}]
two = ["six", {include-group = "one"}]
gone = [{include-group = "nowhere"}]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The folder of an experiment of a user's project, some way below its `pyproject.toml`."""
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    folder = tmp_path / "experiments" / "first"
    folder.mkdir(parents=True)
    return folder


def resolved(folder: Path, *groups: str, prefix: str = "out") -> set[str]:
    """What the groups add to what the worker needs."""
    found = resolve_groups(groups, str(folder), prefix=prefix).requirements
    assert list(found) == sorted(set(found))
    assert set(found) >= WORKER
    return set(found) - WORKER


def refusal(folder: Path, *groups: str) -> str:
    with pytest.raises(SettingsError) as error:
        resolve_groups(groups, str(folder), prefix="out")
    return str(error.value)


def test_the_users_dependencies_are_always_there_and_marin_rules_never(project: Path) -> None:
    assert resolved(project) == {"numpy>=2"}


def test_without_a_project_there_is_what_the_worker_needs(tmp_path: Path) -> None:
    assert resolved(tmp_path) == set()
    assert resolved(tmp_path, prefix="/data") == set()
    assert resolved(tmp_path, prefix="gs://bucket/x") == {"gcsfs>=2025.3", "google-cloud-storage>=3.1"}
    assert resolved(tmp_path, prefix="s3://bucket") == {"botocore>=1.35.16", "s3fs>=2025.3"}


def test_a_group_is_an_extra_whatever_its_spelling(project: Path) -> None:
    assert resolved(project, "gpu") == {"numpy>=2", "jax[cuda12]<1,>=0.11", "six"}
    assert resolved(project, " GPU ") == resolved(project, "gpu")


def test_extras_that_refer_to_their_own_project_and_to_marin_rules_are_expanded(project: Path) -> None:
    found = resolved(project, "everything")
    assert found == {"numpy>=2", "jax[cuda12]<1,>=0.11", "six", "iniconfig", "botocore>=1.35.16", "s3fs>=2025.3"}
    assert resolved(project, "my-project[everything]") == found


def test_a_group_is_a_dependency_group_with_those_that_it_includes(project: Path) -> None:
    assert resolved(project, "unit-test") == {"numpy>=2", "pytest", "ruff", "jax[cuda12]<1,>=0.11", "six"}


def test_a_group_is_an_extra_of_marin_rules(project: Path) -> None:
    assert resolved(project, "train") >= {"jax>=0.11", "numpy>=2"}
    assert resolved(project, "marin-rules[train]") == resolved(project, "train")


def test_the_users_group_comes_before_one_of_ours(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[dependency-groups]\ntrain = ["six"]\n')
    assert resolved(tmp_path, "train") == {"six"}


def test_in_our_own_checkout_only_the_workers_needs_are_added(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "marin.rules"\ndependencies = ["snakemake"]\noptional-dependencies.train = ["six"]\n'
    )
    assert resolved(tmp_path) == set()
    assert "six" not in resolved(tmp_path, "train")


def test_a_group_may_be_a_requirement(tmp_path: Path) -> None:
    groups = ["Google_Cloud.Logging", "numpy <3, >=2", "six; python_version < '3'", "x @ https://files.example/x.whl"]
    assert resolved(tmp_path, *groups) == {"google-cloud-logging", "numpy<3,>=2", "x @ https://files.example/x.whl"}


def test_files_that_only_configure_tools_are_passed_by(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    assert resolved(project) == {"numpy>=2"}


def test_what_is_neither_is_named_with_what_there_is(project: Path) -> None:
    message = refusal(project, "unit test!")
    assert "'unit test!', which is neither a group nor a requirement. Did you mean 'unit-test'?" in message
    assert f"gpu, hen, lint-tools, lost, one, two, unit-test ({project.parents[1]}/pyproject.toml)" in message
    assert "slurm, slurm-drmaa, train, train-gpu, train-tpu (the installed marin-rules)" in message
    assert "write the name of a group" in refusal(project, " ")


def test_a_slip_of_the_finger_does_not_become_a_strangers_package(project: Path) -> None:
    assert "'trian', which is not a group. Did you mean 'train'?" in refusal(project, "trian")
    assert "trian>=0" in resolved(project, "trian>=0")
    assert "pytest" in resolved(project, "pytest")  # Like the group `unit-test`, but not by a slip.


def test_circles_are_refused_by_name(project: Path) -> None:
    assert "in a circle, my-project[egg] -> my-project[hen] -> my-project[egg]" in refusal(project, "egg")
    assert "in a circle, two -> one -> two" in refusal(project, "two")


@pytest.mark.parametrize(
    ("group", "complaint"),
    [
        ("broken", "has 'not a requirement', which is not a requirement"),
        ("lost", "asks for my-project[nowhere], which does not exist. Known groups: "),
        ("gone", "includes the group 'nowhere', which does not exist. Known groups: "),
    ],
)
def test_mistakes_in_the_users_file_are_told_with_its_path(project: Path, group: str, complaint: str) -> None:
    assert refusal(project, group).startswith(f"{project.parents[1]}/pyproject.toml {complaint}")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[project", "is not TOML"),
        ('project = "x"', "project is not a table"),
        ('[project]\ndependencies = "six"', "project.dependencies is not a list of requirements"),
        ("[project]\noptional-dependencies.gpu = [1]", "project.optional-dependencies.gpu holds 1"),
        ("[dependency-groups]\ntest = [{include = 'x'}]", "dependency-groups.test holds {'include': 'x'}"),
        ('[project]\nname = "nobody-has-this"\ndynamic = ["dependencies"]', "the project is not installed here"),
    ],
)
def test_a_file_of_the_wrong_shape_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "pyproject.toml").write_text(content)
    message = refusal(tmp_path)
    assert complaint in message
    assert message.startswith(str(tmp_path / "pyproject.toml"))


def test_what_a_project_leaves_to_its_build_is_read_where_it_is_installed(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "PyTest"\ndynamic = ["dependencies", "optional-dependencies"]\n'
    )
    assert any(requirement.startswith("iniconfig") for requirement in resolved(tmp_path))
    assert any(requirement.startswith("hypothesis") for requirement in resolved(tmp_path, "dev"))


@pytest.mark.parametrize(
    "url",
    [
        "https://hunter2@files.example/x.whl",
        "https://somebody:hunter2@files.example/x.whl",
        "git+ssh://git:hunter2@host.example/x.git",
        "https://files.example/x.whl?X-Amz-Signature=hunter2&y=1",
        "https://${USER}:hunter2@files.example/x.whl",
    ],
)
def test_credentials_are_refused_and_not_shown(tmp_path: Path, url: str) -> None:
    for group in (f"x @ {url}", f"x [wrong @ {url}"):
        message = refusal(tmp_path, group)
        assert "hunter2" not in message
    assert "Write ${NAME} for the secret" in refusal(tmp_path, f"x @ {url}")


@pytest.mark.parametrize(
    "url",
    [
        "git+ssh://git@host.example/x.git@v1",
        "https://${TOKEN}@files.example/x.whl",
        "https://${USER}:${PASSWORD}@files.example/x.whl",
        "https://files.example/@scope/x.whl?raw=true#sha256=abc",
    ],
)
def test_urls_without_secrets_are_requirements(tmp_path: Path, url: str) -> None:
    assert resolved(tmp_path, f"x @ {url}") == {f"x @ {url}"}


@pytest.mark.parametrize(("prefix", "client"), [("gs://bucket/x", "google-cloud-batch"), ("/data/x", None)])
def test_a_driver_needs_the_engine_and_the_clients_of_its_store(prefix: str, client: str | None) -> None:
    found = dict(text.split("==") for text in driver_requirements(prefix))
    assert found.keys() >= {"snakemake", "cloudpickle", "platformdirs"}
    assert found["snakemake"] == version("snakemake")
    assert {name for name in found if name.startswith("google-cloud-batch")} == ({client} if client else set())
