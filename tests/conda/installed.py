"""A driver's environment as users have it: marin_rules is installed, from its wheel, and not a checkout.

There the package stands in one folder with all else that the driver needs, and none of that may reach a step which
runs in an environment of its own. What marin_rules imports is not installed again: it is found where it is.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PYTHON_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
DRIVERS_OWN_MODULE = "known_to_the_driver_only"
"""A module that stands beside marin_rules, as all else does that users have in the driver's environment."""


@dataclass(frozen=True)
class InstalledDriver:
    """The virtual environment in `folder`."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> InstalledDriver:
        driver = cls(folder / "venv")
        venv.create(driver.folder, symlinks=True)
        (driver.site_packages / "what_it_imports.pth").write_text(sysconfig.get_path("purelib"))
        with zipfile.ZipFile(_build_wheel(folder)) as wheel:
            wheel.extractall(driver.site_packages)
        (driver.site_packages / f"{DRIVERS_OWN_MODULE}.py").touch()
        return driver

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        return Path(sysconfig.get_path("purelib", "venv", {"base": str(self.folder)}))

    @property
    def project(self) -> Path:
        """Where the package carries the Snakefile, the profiles and the environments."""
        return self.site_packages / "marin_rules" / "_workflow"


def _build_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel
