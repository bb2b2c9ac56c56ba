"""How a step's environment finds marin_rules: a folder for `PYTHONPATH` that holds a link to this package alone.

The driver's `site-packages` would bring Snakemake and everything else with it, in versions that nobody asked for.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil

from marin_rules.project import PACKAGE
from marin_rules.settings.ownership import Circle, check_own_folder
from marin_rules.software.environment import explained_errors
from marin_rules.software.trust import check_folder
from marin_rules.storage.private_files import make_private_folder

_PARENT = "packages"


def package_folder(folder: str, circle: Circle | None = None) -> str:
    """A folder below that of the environments, in which only marin_rules is found. Each user has one for each package.

    Anyone who can write to it could make steps import other modules: it is refused unless it is the user's own.
    """
    target = os.path.realpath(PACKAGE)
    name = f"{PACKAGE.name}-{hashlib.sha256(os.fsencode(target)).hexdigest()[:8]}"
    parent = os.path.join(folder, f"{_PARENT}-{os.getuid()}")
    path = os.path.join(parent, name)
    link = os.path.join(path, PACKAGE.name)
    with explained_errors(folder):
        circle = circle or Circle.of()
        check_folder(folder, circle)
        if not os.path.exists(folder):
            os.makedirs(folder, 0o755, exist_ok=True)
        make_private_folder(parent)
        for each in (parent, path) if os.path.lexists(path) else (parent,):
            check_own_folder(each, circle)
        if not os.path.islink(link):
            _make(path, target)
    return path


def _make(path: str, target: str) -> None:
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{secrets.token_hex(4)}")
    os.mkdir(temporary, 0o700)
    try:
        os.symlink(target, os.path.join(temporary, PACKAGE.name))
        os.rename(temporary, path)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # Another process was faster, and created the same.
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
