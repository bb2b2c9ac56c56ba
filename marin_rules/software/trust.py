"""Whether an environment, and the folder that it is in, can only be the work of trusted people.

Jobs execute what is in there, and names of environments can be predicted. So before an environment is used, its owner
and modes are checked, and those of the folder: anyone who can write to that could replace its contents, unless it is
sticky. The folders above it are the choice of whoever named the folder, except for those open to everyone.
"""

from __future__ import annotations

import glob
import os
import stat

from marin_rules.settings.ownership import TRUST_VARIABLE, Circle, UntrustedError, group_name, objection, user_name

_PARTS = ("", "bin", "bin/python", "lib", "lib/python*", "lib/python*/site-packages", "pyvenv.cfg")
"""What others would have to change to change what is executed. What is below was made along with it."""


def check_environment(path: str, circle: Circle) -> None:
    """Refuse an environment that somebody else made, or can write to."""
    for pattern in _PARTS:
        for part in glob.glob(os.path.join(glob.escape(path), pattern)):
            _check(part.rstrip(os.path.sep), os.lstat(part.rstrip(os.path.sep)), circle, path)


def check_folder(folder: str, circle: Circle) -> None:
    """Refuse a folder of environments, one that is there, in which others could exchange them."""
    if not os.path.exists(folder):
        return
    real = os.path.realpath(folder)
    _check(real, os.stat(real), circle, real)
    while (real := os.path.dirname(real)) != os.path.sep:
        status = os.stat(real)
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX and not circle.everybody:
            raise UntrustedError(_message(real, "everyone can write to it", status, folder))


def _check(path: str, status: os.stat_result, circle: Circle, whole: str) -> None:
    found = objection(status, circle)
    if found is not None:
        raise UntrustedError(_message(path, found, status, whole))


def _message(path: str, found: str, status: os.stat_result, whole: str) -> str:
    by_group = bool(status.st_mode & stat.S_IWGRP)
    name = f"@{group_name(status.st_gid)}" if by_group else user_name(status.st_uid).removeprefix("user ")
    return (
        f"{whole} is not used, because steps would execute what is in it: {path}: {found}. If you share it on purpose,"
        f" set {TRUST_VARIABLE}={name}, or `trust: ['{name}']` in the cluster's file. If it is yours alone,"
        f" `chmod -R go-w {whole}`. Otherwise name a folder of your own in MARIN_ENVIRONMENTS."
    )
