"""Habits of real programs and libraries that a step's process has to live with, and their losses that it must tell.

A plain Python runs each function of `GOOD` to its end with the data written. `LOSING` loses data in ways that Python
prints and then forgets, and so are no success.
"""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.lab import Lab

GOOD = """
    import os
    from decorators import checked
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main

    KEPT = []

    def write(path, data=b"whole"):
        with open(os.path.join(path, "data"), "wb") as file:
            file.write(data)

    def square(number):
        return number * number

    def buffered_by_the_c_library(path):
        import ctypes
        libc = ctypes.CDLL(None)
        libc.fopen.restype = ctypes.c_void_p
        libc.fputs.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
        libc.fputs(b"whole", libc.fopen(os.path.join(path, "data").encode(), b"w"))

    def closes_all_files(path):
        os.closerange(3, 4096)
        KEPT.extend(open(os.path.join(path, str(number)), "wb", buffering=0) for number in range(30))
        write(path)

    def copy_is_cancelled(path):
        import asyncio
        if os.fork() == 0:
            raise asyncio.CancelledError
        os.wait()
        write(path)

    def decorated(path):
        import multiprocessing
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(square, [1, 2]) == [1, 4]
        write(path)

    def shared_memory(path):
        from multiprocessing.shared_memory import SharedMemory
        KEPT.append(SharedMemory(create=True, size=4096))
        with open("shared_memory.name", "w") as file:
            file.write(KEPT[-1].name)
        write(path)

    def prints_in_the_background(path):
        import sqlite3  # A C library: the interpreter is taken apart at the end.
        import threading
        def chat():
            while True:
                print("chat " * 20)
        threading.Thread(target=chat, daemon=True).start()
        write(path)

    def computes_in_the_background(path):
        # Python itself aborts at its end: C++ does not let its daemon threads be stopped where they are.
        import gc
        import threading
        import numpy
        import scipy.fft
        numbers = numpy.ones(300_000)
        began = threading.Event()
        def compute():
            while True:
                scipy.fft.fft(numbers)
                began.set()
        threading.Thread(target=compute, daemon=True).start()
        began.wait()
        import decorators
        gc.callbacks.append(decorators.note)  # As jax does.
        write(path)

    def reads_a_terminal(path):
        import threading
        master, other_end = os.openpty()
        os.close(other_end)
        thread = threading.Thread(target=os.read, args=(master, 1))  # Ends with EIO: there is no more.
        thread.start()
        thread.join()
        write(path)

    def buffered_for_the_log(path):
        KEPT.append(open(1, "w", closefd=False))
        KEPT[-1].write("the end of the log")
        write(path)

    def text_for_an_upload(path):
        import io
        KEPT.append(io.TextIOWrapper(upload(path)))
        KEPT[-1].write("whole")

    def upload(path):
        import fsspec
        class Upload(fsspec.spec.AbstractBufferedFile):
            def _initiate_upload(self):
                pass
            def _upload_chunk(self, final=False):
                write(os.path.dirname(self.path), self.buffer.getvalue())
        return Upload(fsspec.AbstractFileSystem(), os.path.join(path, "data"), "wb")

    def archive_for_an_upload(path):
        import zipfile
        KEPT.append(zipfile.ZipFile(upload(path), "w"))
        KEPT[-1].writestr("whole", "whole")

    decorated = checked(decorated)
"""
LOSING = """
    def loses_in_an_exit_handler(path):
        import atexit
        atexit.register(fill_the_disk)

    def loses_in_a_thread(path):
        import threading
        import time
        threading.Thread(target=lambda: (time.sleep(0.2), fill_the_disk())).start()

    def loses_in_a_thread_that_it_waits_for(path):
        import threading
        thread = threading.Thread(target=fill_the_disk)
        thread.start()
        thread.join()

    def loses_in_a_file_that_nobody_closes(path):
        open("/dev/full", "w").write("data")

    def fill_the_disk():
        with open("/dev/full", "w") as file:
            file.write("data")

    def loses_without_a_log(path):
        keep_too_much(path)
        os.close(2)

    def loses_beside_a_broken_log_handler(path):
        import logging
        class Broken(logging.Handler):
            def close(self):
                raise RuntimeError("broken")
        KEPT.append(Broken())
        keep_too_much(path)

    def keep_too_much(path):
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        KEPT.append(open(os.path.join(path, "data"), "w"))
        KEPT[-1].write("x" * 5000)

    def loses_a_late_archive(path):
        class Archive:
            def __init__(self):
                self.file = upload(path)
            def __del__(self):
                self.file.write(b"its last page")
        KEPT.append(Archive())
        KEPT[-1].file.write(b"its first page")

    def fetches_a_stop_signal(path):
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        os.kill(os.getpid(), signal.SIGTERM)
        signal.sigtimedwait([signal.SIGTERM], 10)

    if __name__ == "__main__":
        functions = [value for name, value in globals().items() if name in NAMES]
        executor_main(steps=[ExecutorStep(name=f.__name__, fn=f, config=THIS_OUTPUT_PATH) for f in functions])
"""
HELPERS = {"upload", "keep_too_much"}
UNNOTICED: set[str] = {"loses_in_a_file_that_nobody_closes"} if sys.version_info < (3, 13) else set()
"""Python itself says nothing of these."""
DECORATORS = """
import functools

def note(phase, info):
    functools.partial(print)

def checked(function):
    @functools.wraps(function)
    def call(*arguments):
        return function(*arguments)
    return call
"""


QUIET = """
    from marin_rules import ExecutorStep, executor_main

    def speak(config):
        print("somebody may read this in the log")

    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep(name="quiet", fn=speak, config={})])
"""


def names(source: str) -> list[str]:
    return [name for name in re.findall(r"^    def (\w+)\(path\)", source, re.MULTILINE) if name not in HELPERS]


def test_habits_of_real_programs(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "decorators.py").write_text(DECORATORS)
    good, losing = names(GOOD), [name for name in names(LOSING) if name not in UNNOTICED]
    source = f"NAMES = {good + losing}\n{textwrap.dedent(GOOD + LOSING)}"
    result = lab.snakemake("--keep-going", experiment=lab.experiment(source), env={"PYTHONPATH": str(tmp_path)})

    expected = dict.fromkeys(good, "SUCCESS") | dict.fromkeys(losing, "FAILED") | {"fetches_a_stop_signal": "CANCELLED"}
    assert {name: lab.status_of(name) for name in expected} == expected, result.output
    written = {name: (lab.folder_of(name) / "data").read_bytes() for name in good}
    assert b"PK" in written.pop("archive_for_an_upload")
    assert set(written.values()) == {b"whole"}
    for name in set(losing) - {"fetches_a_stop_signal"}:
        assert "could not be flushed to its files" in lab.info_of(name)["run"]["error"], name
    assert all(not (lab.folder_of("closes_all_files") / str(number)).read_bytes() for number in range(30))
    assert "the end of the log" in (lab.folder_of("buffered_for_the_log") / ".executor_log").read_text()
    assert "Exception ignored" not in (lab.folder_of("computes_in_the_background") / ".executor_log").read_text()
    assert "left processes running" not in result.output
    assert not os.path.exists(f"/dev/shm/{(tmp_path / 'shared_memory.name').read_text()}")


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_run_with_closed_standard_streams(closed: str, lab: Lab) -> None:
    path = lab.experiment(QUIET)
    command = f'exec "$0" "$@" {closed}'
    result = subprocess.run(["bash", "-c", command, sys.executable, path, "--prefix", lab.prefix], timeout=90)
    assert result.returncode == 0
    assert lab.status_of("quiet") == "SUCCESS"
