"""Who is trusted with what, as a table; and what stands in the place of a file."""

import os
import stat
from pathlib import Path

import pytest

from marin_rules.errors import SettingsError
from marin_rules.settings.ownership import Circle, UntrustedError, check_not_planted, objection
from marin_rules.storage import prefix as prefixes
from marin_rules.storage.explain import StorageError
from marin_rules.storage.files import read_bytes
from marin_rules.storage.leases.local import LocalLeaseStore
from marin_rules.storage.prefix import check_default_prefix, claim_prefix
from marin_rules.storage.private_files import make_private_folder, read_within
from marin_rules.storage.regular_files import open_to_append

STRANGER = 54321
"""A user, and a group, that no test machine has."""

ME = 1000
MINE = Circle(frozenset({0, ME}), frozenset({0}))
WITH_STRANGER = Circle(MINE.users | {STRANGER}, MINE.groups)
WITH_GROUP = Circle(MINE.users, MINE.groups | {STRANGER})

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to somebody else")


def status(mode: int, owner: int = ME, group: int = 0) -> os.stat_result:
    return os.stat_result((mode, 1, 1, 1, owner, group, 0, 0, 0, 0))


FILE, FOLDER, LINK = stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK


@pytest.mark.parametrize(
    ("found", "circle", "word"),
    [
        (status(FILE | 0o644), MINE, None),
        (status(FILE | 0o600, owner=0), MINE, None),
        (status(FILE | 0o644, owner=STRANGER), MINE, f"belongs to user {STRANGER}"),
        (status(FILE | 0o644, owner=STRANGER), WITH_STRANGER, None),
        (status(FILE | 0o664), MINE, None),
        (status(FILE | 0o664, group=STRANGER), MINE, f"group {STRANGER} can write"),
        (status(FILE | 0o664, group=STRANGER), WITH_GROUP, None),
        (status(FILE | 0o646), MINE, "everyone can write"),
        (status(FILE | 0o646), WITH_GROUP, "everyone can write"),
        (status(FILE | 0o646), Circle(frozenset(), everybody=True), None),
        (status(FOLDER | 0o775, group=STRANGER), MINE, f"group {STRANGER} can write"),
        (status(FOLDER | 0o777), MINE, "everyone can write"),
        (status(FOLDER | 0o1777, owner=0), MINE, None),
        (status(FOLDER | 0o1777, owner=STRANGER), MINE, "belongs to"),
        (status(FOLDER | 0o2775, group=STRANGER), MINE, "can write"),
        (status(LINK | 0o777), MINE, None),
        (status(LINK | 0o777, owner=STRANGER), MINE, "belongs to"),
    ],
)
def test_who_can_have_written_it(found: os.stat_result, circle: Circle, word: str | None) -> None:
    said = objection(found, circle)
    assert said is None if word is None else word in str(said)


def test_who_is_trusted_can_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_TRUST", f"{STRANGER}, @{STRANGER + 1}")
    circle = Circle.of(["@root"])
    assert circle.users == {0, os.geteuid(), STRANGER}
    assert circle.groups == {0, STRANGER + 1}
    assert not circle.has(STRANGER + 1)
    with pytest.raises(SettingsError, match="no user 'nobody-like-this'"):
        Circle.of(["nobody-like-this"])
    with pytest.raises(SettingsError, match="no group 'nobodies-like-this'"):
        Circle.of(["@nobodies-like-this"])


def _plant(kind: str, path: Path, target: Path) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(target)
    elif kind == "dangling link":
        path.symlink_to(target.with_name("not-there"))
    elif kind == "link to a fifo":
        os.mkfifo(target.with_name("fifo"))
        path.symlink_to(target.with_name("fifo"))
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        assert kind == "hard link"
        path.hardlink_to(target)


@pytest.mark.parametrize(
    "kind", ["fifo", "directory", "link", "dangling link", "link to a fifo", "device", "hard link"]
)
def test_nothing_is_appended_to_what_somebody_put_in_the_place_of_a_log(kind: str, tmp_path: Path) -> None:
    victim = tmp_path / "bashrc"
    victim.write_text("mine")
    _plant(kind, tmp_path / "log", victim)
    with pytest.raises(StorageError, match=str(tmp_path / "log")):
        open_to_append(str(tmp_path / "log"))
    assert victim.read_text() == "mine"
    assert not (tmp_path / "not-there").exists()


@pytest.mark.parametrize("kind", ["fifo", "directory", "link to a fifo", "device"])
def test_nobody_waits_for_what_is_no_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "lease"
    _plant(kind, path, tmp_path / "victim")
    with pytest.raises(StorageError, match=str(path)):
        read_bytes(str(path))
    with pytest.raises(StorageError, match=str(path)):
        LocalLeaseStore(str(path)).replace(b"new", b"old")


def test_a_file_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "info"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(StorageError, match=f"{path}.*larger than 1024 MB"):
        read_bytes(str(path))


def test_a_private_folder_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private_folder(str(tmp_path / "a" / "b"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


@pytest.mark.parametrize(("plant", "expected"), [(None, True), ("file mode", False), ("folder mode", False)])
def test_what_is_below_a_private_folder_is_ours_unless_others_could_write(
    plant: str | None, expected: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    make_private_folder(str(folder))
    (folder / "failure").write_bytes(b"text")
    (folder / "failure").chmod(0o666 if plant == "file mode" else 0o600)
    folder.chmod(0o777 if plant == "folder mode" else 0o700)
    assert read_within(str(folder), "failure") == (b"text", expected)
    assert read_within(str(folder), "other") == (None, False)


@needs_root
@pytest.mark.parametrize("of_stranger", ["run", "run/failure"])
def test_what_a_stranger_put_there_is_not_ours(
    of_stranger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_private_folder(str(tmp_path / "run"))
    (tmp_path / "run" / "failure").write_bytes(b"text")
    os.chown(tmp_path / of_stranger, STRANGER, STRANGER)
    assert read_within(str(tmp_path / "run"), "failure") == (b"text", False)
    for trusted in (str(STRANGER), "*"):
        monkeypatch.setenv("MARIN_TRUST", trusted)
        assert read_within(str(tmp_path / "run"), "failure") == (b"text", True)


# -- the default prefix --------------------------------------------------------------------------------------


@pytest.fixture
def default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A default prefix in a folder like /tmp."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.delenv("MARIN_PREFIX", raising=False)
    monkeypatch.setattr(prefixes, "DEFAULT_PREFIX", str(shared / "marin"))
    return shared / "marin"


def test_the_default_prefix_is_made_for_its_user_alone(default: Path) -> None:
    check_default_prefix(str(default))
    assert not default.exists()
    before = os.umask(0)
    try:
        claim_prefix(str(default))
    finally:
        os.umask(before)
    assert stat.S_IMODE(default.stat().st_mode) == 0o700
    claim_prefix(str(default) + "/")


def test_a_default_prefix_of_ones_own_stays_in_use(default: Path, tmp_path: Path) -> None:
    default.mkdir(mode=0o755)
    claim_prefix(str(default))
    default.rmdir()
    (tmp_path / "elsewhere").mkdir()
    default.symlink_to(tmp_path / "elsewhere")
    claim_prefix(str(default))


def test_a_default_prefix_that_others_can_write_to_is_refused(default: Path) -> None:
    default.mkdir()
    default.chmod(0o777)
    with pytest.raises(UntrustedError, match=f"{default}.*everyone can write to it.*--prefix.*MARIN_PREFIX"):
        claim_prefix(str(default))
    default.chmod(0o700)
    default.parent.chmod(0o777)
    with pytest.raises(UntrustedError, match=f"{default}.*{default.parent} can be changed by others"):
        claim_prefix(str(default))


@needs_root
@pytest.mark.parametrize("kind", ["folder", "link", "file"])
def test_a_default_prefix_that_a_stranger_made_is_refused_unless_it_was_chosen(
    kind: str, default: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "folder":
        default.mkdir()
    elif kind == "link":
        (tmp_path / "mine").mkdir()
        default.symlink_to(tmp_path / "mine")
    else:
        default.touch()
    os.lchown(default, STRANGER, STRANGER)
    for check in (check_default_prefix, claim_prefix):
        with pytest.raises(UntrustedError, match=f"{default}.*belongs to user {STRANGER}.*--prefix.*MARIN_PREFIX"):
            check(str(default))
    monkeypatch.setenv("MARIN_PREFIX", str(default))
    claim_prefix(str(default))


# -- what is found by its name ------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize(
    ("mode", "owner", "refused"),
    [
        (0o1777, STRANGER, True),
        (0o777, STRANGER, True),
        (0o1777, 0, False),
        (0o755, STRANGER, False),
        (0o2775, STRANGER, False),
    ],
)
@pytest.mark.parametrize("below", ["x.smk", "config/config.yaml"])
def test_a_file_in_a_folder_of_everyones_must_be_ones_own(
    mode: int, owner: int, refused: bool, below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / below
    path.parent.mkdir(exist_ok=True)
    path.touch()
    first = tmp_path / below.split("/")[0]
    tmp_path.chmod(mode)
    os.chown(first, owner, owner)
    if not refused:
        check_not_planted(str(path), str(tmp_path), "the file")
        return
    with pytest.raises(UntrustedError, match=f"the file {first} .*{STRANGER}.*{tmp_path}"):
        check_not_planted(str(path), str(tmp_path), "the file")
    (tmp_path / "experiment").touch()
    os.chown(tmp_path / "experiment", STRANGER, STRANGER)
    check_not_planted(str(path), str(tmp_path), "the file", maker=str(tmp_path / "experiment"))
    monkeypatch.setenv("MARIN_TRUST", str(STRANGER))
    check_not_planted(str(path), str(tmp_path), "the file")


@pytest.mark.parametrize("written", ["new/../run", "run/", "./run"])
def test_a_private_folder_is_made_where_its_path_says_however_that_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.chdir(tmp_path)
    make_private_folder(written)
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
