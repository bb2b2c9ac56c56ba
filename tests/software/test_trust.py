"""Environments that others prepared, as a table: used, or refused by name."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_rules.settings.ownership import Circle, UntrustedError
from marin_rules.software.build import ensure_environment, environment_path
from marin_rules.software.environment import Environment
from marin_rules.software.package import package_folder

STRANGER = 54321
"""A user, and a group, that no test machine has."""

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to somebody else")

ENVIRONMENT = Environment.here(["tiny"])


def silent(text: str) -> None: ...


@pytest.fixture
def made(folder: Path) -> Path:
    """An environment that looks complete."""
    path = Path(environment_path(ENVIRONMENT, str(folder)))
    (path / "bin").mkdir(parents=True)
    (path / "lib" / "python3.13" / "site-packages").mkdir(parents=True)
    (path / "pyvenv.cfg").touch()
    (path / "bin" / "python").symlink_to("/bin/sh")
    (path / "marin-rules.json").write_text(json.dumps({}))
    return path


def give(*names: str) -> Callable[[Path], None]:
    """Give parts of the environment to a stranger."""

    def plant(path: Path) -> None:
        for name in names:
            os.lchown(path / name, STRANGER, STRANGER)

    return plant


def open_up(name: str, mode: int) -> Callable[[Path], None]:
    """Let a stranger's group, or everyone, write to a part of the environment."""

    def plant(path: Path) -> None:
        os.chown(path / name, 0, STRANGER)
        (path / name).chmod(mode)

    return plant


USED: dict[str, Callable[[Path], None]] = {
    "nothing": lambda path: None,
    "a sticky folder": lambda path: path.parent.chmod(0o1777),
    "a group of root's": lambda path: path.chmod(0o775),
}
REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "all of it": (give(""), f"user {STRANGER}"),
    "its folder": (give(".."), f"user {STRANGER}"),
    "its Python": (give("bin/python"), f"user {STRANGER}"),
    "its programs": (give("bin"), f"user {STRANGER}"),
    "its packages": (give("lib/python3.13/site-packages"), f"user {STRANGER}"),
    "its settings": (give("pyvenv.cfg"), f"user {STRANGER}"),
    "writable for a group": (open_up("", 0o2775), f"group {STRANGER}"),
    "packages writable for a group": (open_up("lib/python3.13/site-packages", 0o775), f"group {STRANGER}"),
    "writable for everyone": (open_up("bin", 0o777), "everyone"),
    "folder writable for a group": (open_up("..", 0o2775), f"group {STRANGER}"),
    "folder writable for everyone": (open_up("..", 0o777), "everyone"),
    "folder above writable for everyone": (open_up("../..", 0o777), "everyone"),
}


@pytest.mark.parametrize("plant", USED.values(), ids=USED)
def test_an_environment_that_nobody_else_can_change_is_used(
    plant: Callable[[Path], None], made: Path, folder: Path
) -> None:
    plant(made)
    assert ensure_environment(ENVIRONMENT, str(folder), silent) == str(made / "bin" / "python")


@pytest.mark.parametrize(("plant", "culprit"), REFUSED.values(), ids=REFUSED)
def test_an_environment_that_somebody_else_can_have_changed_is_refused_by_name(
    plant: Callable[[Path], None], culprit: str, made: Path, folder: Path
) -> None:
    plant(made)
    with pytest.raises(UntrustedError, match=f"{folder}.*{culprit}.*MARIN_TRUST=.*MARIN_ENVIRONMENTS"):
        ensure_environment(ENVIRONMENT, str(folder), silent)


def test_groups_that_share_on_purpose_say_so(made: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give("", "bin")(made)
    open_up("..", 0o2775)(made)
    python = str(made / "bin" / "python")
    circle = Circle.of([str(STRANGER), f"@{STRANGER}"])  # As in the cluster's file.
    assert ensure_environment(ENVIRONMENT, str(folder), silent, circle) == python
    monkeypatch.setenv("MARIN_TRUST", f"{STRANGER},@{STRANGER}")
    assert ensure_environment(ENVIRONMENT, str(folder), silent) == python
    monkeypatch.setenv("MARIN_TRUST", str(STRANGER))
    with pytest.raises(UntrustedError, match=f"the group {STRANGER} can write"):
        ensure_environment(ENVIRONMENT, str(folder), silent)


@pytest.mark.parametrize("part", ["", "..", "../.."])
def test_a_package_folder_of_a_stranger_is_refused_by_name(part: str, folder: Path) -> None:
    path = Path(package_folder(str(folder)))
    os.chown(path / part, STRANGER, STRANGER)
    with pytest.raises(UntrustedError, match=f"{folder}.*{STRANGER}"):
        package_folder(str(folder))


@pytest.mark.processes
def test_what_is_made_is_closed_to_a_group_whatever_the_umask(folder: Path) -> None:
    environment = Environment.here([])
    before = os.umask(0)
    try:
        python = Path(ensure_environment(environment, str(folder), silent))
        package = Path(package_folder(str(folder)))
    finally:
        os.umask(before)
    for path in (folder, package.parent, package, *python.parents[1].rglob("*"), python.parents[1]):
        if not path.is_symlink() and path.name != ".lock":  # uv's own, and empty.
            assert path.stat().st_mode & 0o022 == 0, path
    assert python.parents[1].stat().st_mode & 0o777 == 0o755
