"""Nodes that do not see the files of the machine they are on: some folders are empty there, or not there at all."""

from __future__ import annotations

import shlex
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path


class Seclusion:
    """What is hidden from the nodes of a cluster, and what they have instead."""

    def __init__(self, hidden: Sequence[Path], folder: Path) -> None:
        self.hidden = tuple(hidden)
        self.python = folder / "python" / "bin" / "python"
        """A Python as an administrator installs it on nodes: all that the driver's has, except marin_rules."""
        self.scratch = folder / "scratch"
        """A folder that each node has for itself."""
        self.scratch.mkdir(parents=True)
        self._base = Path(sys.base_prefix)
        self._base_aside = folder / "base"
        self._packages = Path(sysconfig.get_path("purelib"))
        self._packages_aside = folder / "packages"
        for mount_point in (self._base_aside, self._packages_aside):
            mount_point.mkdir()
        self._make_python()

    def entering(self) -> str:
        """Lines of shell for the mount namespace of a node."""
        aside = {self._base: self._base_aside, self._packages: self._packages_aside}
        lines = [f"mount --bind {_quoted(source)} {_quoted(target)}" for source, target in aside.items()]
        # The deepest first: one that is inside another is hidden with it, and cannot be a mount point any more.
        deepest_first = sorted((*self.hidden, self.scratch), key=lambda path: len(path.parts), reverse=True)
        lines += [f"mount -t tmpfs -o size=64m tmpfs {_quoted(path)}" for path in deepest_first]
        # The interpreter itself may be in somebody's home.
        lines.append(f"mkdir -p {_quoted(self._base)}")
        lines.append(f"mount --bind {_quoted(self._base_aside)} {_quoted(self._base)}")
        return " && ".join(lines)

    def _make_python(self) -> None:
        """A virtual environment whose packages are links to those of the driver's."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        packages = self.python.parents[1] / "lib" / version / "site-packages"
        packages.mkdir(parents=True)
        self.python.parent.mkdir()
        self.python.symlink_to(self._base / "bin" / version)
        (self.python.parents[1] / "pyvenv.cfg").write_text(f"home = {self._base / 'bin'}\n")
        for entry in self._packages.iterdir():
            is_ours = "marin_rules" in entry.name.replace("-", "_")
            if not is_ours and not entry.name.startswith("snakemake") and entry.suffix != ".pth":
                (packages / entry.name).symlink_to(self._packages_aside / entry.name)


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
