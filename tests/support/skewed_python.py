"""A Python whose clock goes wrong: for machines that are an hour ahead, or behind.

`time.time()` and `datetime.now()` are off in every process that is started with it. The monotonic clock is not, as on
a real machine. A client of gRPC would find all its deadlines over, since its compiled parts still see the right time:
a process that has the variable `unless` is left alone.
"""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path

_CLOCK = """
import datetime, time

_time, _time_ns, _datetime = time.time, time.time_ns, datetime.datetime
time.time = lambda: _time() + {seconds}
time.time_ns = lambda: _time_ns() + {seconds} * 10**9


class datetime_(_datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)


datetime_.__name__ = datetime_.__qualname__ = "datetime"
datetime.datetime = datetime_
"""


def skewed_python(folder: Path, seconds: int, unless: str = "") -> Path:
    """Make one in this folder, with the packages of this Python; returns its interpreter."""
    venv.create(folder, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    (packages / "skewed_clock.py").write_text(_CLOCK.format(seconds=seconds))
    begin = f"import os; {unless!r} in os.environ or __import__('skewed_clock')"
    (packages / "skewed.pth").write_text(f"{begin}\n{sysconfig.get_path('purelib')}\n")
    return folder / "bin" / "python"
