"""How a step's environment finds marin_rules: a folder for `PYTHONPATH` that holds a link to this package alone.

The driver's `site-packages` would bring Snakemake and everything else with it, in versions that nobody asked for.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil

import marin_rules
from marin_rules.software.environment import explained_errors

_PARENT = "packages"


def package_folder(folder: str) -> str:
    """A folder below that of the environments, in which only marin_rules is found. Made once for each package."""
    target = os.path.realpath(os.path.dirname(marin_rules.__file__))
    name = f"{marin_rules.__name__}-{hashlib.sha256(os.fsencode(target)).hexdigest()[:8]}"
    path = os.path.join(folder, _PARENT, name)
    link = os.path.join(path, marin_rules.__name__)
    if not os.path.islink(link):
        with explained_errors(folder):
            _make(path, target)
    return path


def _make(path: str, target: str) -> None:
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{secrets.token_hex(4)}")
    os.makedirs(temporary)
    try:
        os.symlink(target, os.path.join(temporary, marin_rules.__name__))
        os.rename(temporary, path)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # Another process was faster, and made the very same.
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
