"""uv, the program that makes environments: where it is, and how it is run.

It runs with the machine's settings (its own, or else pip's) and never with those of some `pyproject.toml` above the
working directory, nor with variables that replace a requirement or add a package, since an environment is named by its
requirements alone. It dies with the process that started it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence

from marin_rules.errors import MarinRulesError
from marin_rules.parentage import ending_with_us
from marin_rules.software.credentials import without_credentials
from marin_rules.software.pip_settings import index_variables

_CHECK_SECONDS = 0.5
_LONGEST_MESSAGE = 60
"""How many lines of uv's are shown: the first tell what failed, the last have its hints."""

_NOT_FOR_UV = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "UV_OVERRIDE", "UV_VENV_SEED")
_OWN_PREFIX = "MARIN_RULES_"
"""The beginning of the variables that control a run; among them are the secrets of steps."""


class UvError(Exception):
    """uv failed; the text is what it said, without credentials."""


def find_uv() -> str:
    """The uv beside this Python, or else the one on the PATH."""
    found = shutil.which("uv", path=os.path.dirname(sys.executable)) or shutil.which("uv")
    if found is None:
        raise MarinRulesError(
            "the environments of steps are made with uv, which is neither beside this Python nor on the PATH: `pip"
            " install uv`, then run again"
        )
    return os.path.abspath(found)


def run_uv(arguments: Sequence[str], check: Callable[[], None]) -> str:
    """Run uv and return what it printed. `check` is called while it runs; if that raises, uv is ended."""
    uv = find_uv()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            ending_with_us(uv, [uv, "--color", "never", "--no-progress", *arguments]),
            cwd=os.path.sep,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=careful_umask(),
        )
        try:
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_CHECK_SECONDS)
                check()
        finally:
            _kill(process)
        output.seek(0)
        text = output.read().decode(errors="replace").strip()
    if process.returncode != 0:
        raise UvError(_shortened(without_credentials(text)) or f"nothing, and ended with {process.returncode}")
    return text


def careful_umask() -> int:
    """This process's umask, without the right to write for anybody else: others must not change what steps execute."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask | 0o022


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End uv, with the builds of source packages that it started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _NOT_FOR_UV and not name.startswith(_OWN_PREFIX)
    }
    # Credentials in a URL that is broken over two lines could not be removed.
    return kept | index_variables(kept) | {"UV_NO_WRAP": "1"}


def _shortened(text: str) -> str:
    lines = text.splitlines()
    if len(lines) <= _LONGEST_MESSAGE:
        return text
    half = _LONGEST_MESSAGE // 2
    return "\n".join([*lines[:half], f"... ({len(lines) - 2 * half} lines left out)", *lines[-half:]])
