"""Packages that need no index, a gate at which builds stop, and processes that want environments."""

import hashlib
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from marin_rules.software.environment import Environment

DEADLINE = 60.0
"""Seconds after which something that was waited for will not come."""

_BUILDER = """
import json, sys
from marin_rules.errors import MarinRulesError
from marin_rules.software.build import ensure_environment
from marin_rules.software.environment import Environment
environment = Environment.from_fields(json.loads(sys.argv[1]))
print("python:", ensure_environment(environment, sys.argv[2], lambda text: print(text, flush=True)))
"""

_PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "{name}"
version = "1.2"
"""

# Packs a wheel by hand. With a gate it first says that it has come there, and waits until the gate is opened; it does
# not outlive uv, as nothing does that uv starts and that reads from it.
_BACKEND = """
import os, time, zipfile

NAME, GATE = {name!r}, {gate!r}

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    parent = os.getppid()
    if GATE:
        with open(GATE + ".tmp", "w") as file:
            file.write(str(os.getpid()))
        os.replace(GATE + ".tmp", f"{{GATE}}.{{os.getpid()}}.waiting")
        while not os.path.exists(GATE):
            if os.getppid() != parent:
                os._exit(1)
            time.sleep(0.01)
    wheel = f"{{NAME}}-1.2-py3-none-any.whl"
    info = f"{{NAME}}-1.2.dist-info"
    files = {{
        f"{{NAME}}.py": "def main(): print(__file__)",
        f"{{info}}/METADATA": f"Metadata-Version: 2.1\\nName: {{NAME}}\\nVersion: 1.2\\n",
        f"{{info}}/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        f"{{info}}/entry_points.txt": f"[console_scripts]\\n{{NAME}} = {{NAME}}:main\\n",
    }}
    files[f"{{info}}/RECORD"] = "".join(f"{{path}},,\\n" for path in [*files, f"{{info}}/RECORD"])
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel
"""


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until `condition()` is true; returns its value."""
    give_up = time.monotonic() + DEADLINE
    while not (value := condition()):
        assert time.monotonic() < give_up, f"{what} did not happen in {DEADLINE} s"
        time.sleep(0.01)
    return value


class Gate:
    """Where the build of a source package stops until it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def waiting(self) -> list[int]:
        """The processes that have come to the gate, ever."""
        return [int(file.read_text()) for file in self.path.parent.glob(f"{self.path.name}.*.waiting")]

    def open(self) -> None:
        self.path.touch()


class SourcePackage:
    """A package that uv has to build; its requirement names a folder, so that no index is asked."""

    def __init__(self, folder: Path, name: str, gate: Gate | None = None) -> None:
        folder.mkdir()
        (folder / "pyproject.toml").write_text(_PYPROJECT.format(name=name))
        (folder / "backend.py").write_text(_BACKEND.format(name=name, gate=str(gate.path) if gate else ""))
        self.requirement = f"{name} @ {folder.as_uri()}"


def make_wheel(folder: Path, name: str, version: str, *, needs: str = "", tag: str = "py3-none-any") -> str:
    """Put a wheel into a folder; returns its line in a lock."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    more = f"Requires-Dist: {needs}\n" if needs else ""
    files = {
        f"{name}.py": f"version = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(zipfile.ZipInfo(file), text)
    return f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


class BuilderProcess:
    """A process that wants an environment."""

    def __init__(self, environment: Environment, folder: Path, log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _BUILDER, json.dumps(environment.to_fields()), str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return self._log.read_text()

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def wait(self) -> int:
        return self.process.wait(DEADLINE)
