"""Who owns a file or folder: checked before anything in it is executed or unpickled.

Anyone who can write to a prefix is trusted with its data, never with code. Code comes from files of the user, of root,
and of those whom the user or the cluster's file names:

    MARIN_TRUST=alice,@lab      files of alice and of members of the group lab; lab may write to them, too

An object store does not say who wrote an object: there, anyone who can write to the bucket is trusted.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from marin_rules.errors import MarinRulesError, SettingsError

TRUST_VARIABLE = "MARIN_TRUST"
EVERYBODY = "*"


class UntrustedError(MarinRulesError):
    """Something that would be executed may have been written by somebody else."""


@dataclass(frozen=True)
class Circle:
    """People whose files are as good as one's own."""

    users: frozenset[int]
    groups: frozenset[int] = frozenset()
    """Groups whose members are trusted, and may write."""

    everybody: bool = False

    @classmethod
    def own(cls) -> Circle:
        """The user and root, who can do anything anyway."""
        return cls(frozenset({0, os.geteuid()}), frozenset({0}))

    @classmethod
    def of(cls, names: Iterable[str] = ()) -> Circle:
        """The same plus those in `MARIN_TRUST`, and these: a user, `@group`, or `*` for everybody."""
        from_variable = os.environ.get(TRUST_VARIABLE, "").split(",")
        words = [word for name in (*names, *from_variable) if (word := name.strip())]
        own = cls.own()
        groups = {_group_number(word) for word in words if word.startswith("@")}
        users = {_user_number(word) for word in words if not word.startswith("@") and word != EVERYBODY}
        return cls(own.users | users, own.groups | groups, EVERYBODY in words)

    def has(self, user: int) -> bool:
        return self.everybody or user in self.users or not self.groups.isdisjoint(_groups_of(user) - {0})

    def may_write(self, group: int) -> bool:
        """Whether all members of a group are trusted; the group that a user has alone (umask 002) is one."""
        return self.everybody or group in self.groups or any(_is_alone_in(group, user) for user in self.users)


def objection(status: os.stat_result, circle: Circle) -> str | None:
    """Why a file or folder with this status may be somebody else's work, None if it cannot be.

    In a sticky folder people can only add files: its contents have to be checked, not the folder.
    """
    mode = status.st_mode
    if not circle.has(status.st_uid):
        return f"it belongs to {user_name(status.st_uid)}"
    if stat.S_ISLNK(mode) or (stat.S_ISDIR(mode) and mode & stat.S_ISVTX) or circle.everybody:
        return None
    if mode & stat.S_IWOTH:
        return "everyone can write to it"
    if mode & stat.S_IWGRP and not circle.may_write(status.st_gid):
        return f"the group {group_name(status.st_gid)} can write to it"
    return None


def check_own_folder(path: str, circle: Circle) -> None:
    """Refuse a folder that others can put code into, and anything other than a folder."""
    status = os.lstat(path)
    found = objection(status, circle) if stat.S_ISDIR(status.st_mode) else "it is not a folder"
    if found is not None:
        raise UntrustedError(
            f"{path} is not used: {found}. Have it removed, or `chmod go-w {path}` if it is yours, and run again."
        )


def check_not_planted(path: str, chosen: str, what: str, maker: str | None = None) -> None:
    """Refuse a file below the folder `chosen` that was found by name alone and that anybody could have put there.

    Where everyone can write, as in /tmp, only the user and root are trusted, and the owner of the file `maker`, which
    the user has named. Elsewhere, choosing the folder means choosing those who can write to it.
    """
    path, chosen = os.path.abspath(path), os.path.abspath(chosen)
    named = {os.stat(maker).st_uid} if maker is not None and os.path.exists(maker) else set()
    while path.startswith(os.path.join(chosen, "")):
        parent = os.path.dirname(path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            status = os.lstat(path)
            is_known = status.st_uid in named or Circle.of().has(status.st_uid)
            if os.stat(parent).st_mode & stat.S_IWOTH and not is_known:
                raise UntrustedError(
                    f"{what} {path} is not used: it belongs to {user_name(status.st_uid)}, and everyone can write to"
                    f" {parent}. Work in a folder of your own, or name that user in {TRUST_VARIABLE} if you trust them."
                )
        path = parent


def user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def group_name(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)


def _user_number(name: str) -> int:
    try:
        return int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise SettingsError(f"there is no user {name!r} to trust: write the name of a user, or @GROUP") from None


def _group_number(name: str) -> int:
    try:
        return int(name[1:]) if name[1:].isdigit() else grp.getgrnam(name[1:]).gr_gid
    except KeyError:
        raise SettingsError(f"there is no group {name[1:]!r} to trust: write @ and the name of a group") from None


def _groups_of(user: int) -> frozenset[int]:
    try:
        entry = pwd.getpwuid(user)
    except KeyError:
        return frozenset()
    return frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid))


def _is_alone_in(group: int, user: int) -> bool:
    try:
        name, entry = pwd.getpwuid(user).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == name and set(entry.gr_mem) <= {name}
