"""A step ends as Python ends: what its threads, children, exit handlers and buffers still hold is written first.

Each step of `ENDINGS` is an ordinary program whose data a plain Python would write by the end of the process. That
is the oracle: the same functions are run by a plain Python beside the steps.
"""

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.lab import Lab

ENDINGS = """
    import atexit
    import ctypes
    import gzip
    import importlib.util
    import logging
    import logging.handlers
    import multiprocessing
    import os
    import sys
    import threading
    import time
    import weakref
    import zipfile
    from concurrent.futures import ThreadPoolExecutor
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main

    KEPT = []

    class Writer:
        def __init__(self, path):
            self.file = os.open(os.path.join(path, "data"), os.O_CREAT | os.O_WRONLY)
            self.write = os.write

        def __del__(self):
            self.write(self.file, b"whole")

    def write(path, seconds=0.0):
        time.sleep(seconds)
        with open(os.path.join(path, "data"), "w") as file:
            file.write("whole")

    def thread(path):
        threading.Thread(target=write, args=(path, 0.2)).start()

    def thread_pool(path):
        ThreadPoolExecutor(1).submit(write, path, 0.2)

    def thread_that_starts_another(path):
        threading.Thread(target=lambda: (time.sleep(0.1), thread(path))).start()

    def exit_handler(path):
        atexit.register(write, path)

    def finalizer(path):
        KEPT.append({1})
        weakref.finalize(KEPT[-1], write, path)

    def child_process(path):
        multiprocessing.get_context("fork").Process(target=write, args=(path, 0.2)).start()

    def buffered_text(path):
        KEPT.append(open(os.path.join(path, "data"), "w"))
        KEPT[-1].write("whole")

    def buffered_bytes(path):
        KEPT.append(open(os.path.join(path, "data"), "wb"))
        KEPT[-1].write(b"whole")

    def buffered_by_a_thread(path):
        threading.Thread(target=lambda: (time.sleep(0.1), buffered_text(path))).start()

    def zipped_text(path):
        KEPT.append(gzip.open(os.path.join(path, "data"), "wt", compresslevel=0))
        KEPT[-1].write("whole")

    def archive(path):
        KEPT.append(zipfile.ZipFile(os.path.join(path, "data"), "w"))
        KEPT[-1].writestr(zipfile.ZipInfo("whole"), "whole")

    def destructor(path):
        KEPT.append(Writer(path))

    def destructor_in_a_cycle(path):
        KEPT.append(Writer(path))
        KEPT[-1].itself = KEPT

    def forked_child(path):
        if os.fork() == 0:
            write(path, 0.2)
            return
        os.wait()

    def exit_handler_of_a_c_library(path):
        ctypes.CDLL(importlib.util.find_spec("_sqlite3").origin)
        libc = ctypes.CDLL(None)
        libc.strdup.restype = ctypes.c_void_p
        command = libc.strdup(f"printf whole > '{path}/data'".encode())
        libc.__cxa_atexit(libc.system, ctypes.c_void_p(command), None)

    def destructor_beside_a_daemon_thread(path):
        ctypes.CDLL(importlib.util.find_spec("_sqlite3").origin)
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        destructor(path)

    def exit_handler_of_a_c_library_beside_a_daemon_thread(path):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        exit_handler_of_a_c_library(path)

    def buffered_log(path):
        handler = logging.handlers.MemoryHandler(1000, target=logging.FileHandler(os.path.join(path, "data")))
        logging.getLogger("own").addHandler(handler)
        logging.getLogger("own").setLevel("INFO")
        logging.getLogger("own").info("whole")

    if __name__ == "__main__":
        functions = [value for name, value in globals().items() if name in NAMES]
        executor_main(steps=[ExecutorStep(name=f.__name__, fn=f, config=THIS_OUTPUT_PATH) for f in functions])
"""
NAMES = re.findall(r"def (\w+)\(path\)", ENDINGS)
if sys.version_info < (3, 12, 2):  # Which starts no threads once its main thread has ended.
    NAMES.remove("thread_that_starts_another")
NOT_STEPS = (
    "NOT_STEPS = ('Writer', 'write', 'ExecutorStep', 'executor_main', 'ProcessPoolExecutor', 'ThreadPoolExecutor')"
)


def plain_results(source: str, folder: Path) -> dict[str, bytes]:
    """What a plain Python leaves of each function: function -> the bytes of `data`."""
    folder.mkdir()
    program = folder / "plain.py"
    program.write_text(source.partition("if __name__")[0] + "globals()[sys.argv[1]](sys.argv[2])\n")
    started = []
    for name in NAMES:
        (folder / name).mkdir()
        started.append(subprocess.Popen([sys.executable, program, name, folder / name]))
    assert [process.wait() for process in started] == [0] * len(NAMES)
    return {name: (folder / name / "data").read_bytes() for name in NAMES}


def test_what_a_plain_python_would_write_is_written_before_success(lab: Lab, tmp_path: Path) -> None:
    source = f"NAMES = {NAMES}\n{textwrap.dedent(ENDINGS)}"
    expected = plain_results(source, tmp_path / "plain")
    assert all(b"whole" in data for data in expected.values())
    result = lab.snakemake(experiment=lab.experiment(source))
    assert result.code == 0, result.output
    written = {name: (lab.folder_of(name) / "data").read_bytes() for name in expected}
    assert {name: lab.status_of(name) for name in expected} == dict.fromkeys(expected, "SUCCESS")
    for name in ("zipped_text",):  # It holds the time of day.
        assert len(written.pop(name)) == len(expected.pop(name))
    assert written == expected


BAD_ENDINGS = """
    import atexit
    import ctypes
    import os
    import sys
    import threading
    import time
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main, remote

    KEPT = []

    class Crash:
        def __del__(self):
            ctypes.string_at(0)

    def child_returns_parent_raises(path):
        if os.fork() == 0:
            return {"from": "the child"}
        os.wait()
        raise ValueError("the parent's own error")

    def child_exits_parent_returns(path):
        if os.fork() == 0:
            sys.exit(0)
        _, status = os.wait()
        return {"from": "the parent", "child": os.waitstatus_to_exitcode(status)}

    def child_raises_parent_returns(path):
        if os.fork() == 0:
            raise KeyError("the child's")
        _, status = os.wait()
        return {"from": "the parent", "child": os.waitstatus_to_exitcode(status)}

    def ends_without_returning(path):
        os._exit(0)

    def becomes_another_program(path):
        os.execvp("true", ["true"])

    def crashes(path):
        ctypes.string_at(0)

    def crashes_at_the_end(path):
        KEPT.append(Crash())

    def hangs_at_the_end(path):
        threading.Thread(target=time.sleep, args=(1000,), name="uploader").start()

    def keep_open(path):
        KEPT.append(open(os.path.join(path, "data"), "w"))
        KEPT[-1].write("lost")

    def cuts_its_end_short(path):
        keep_open(path)
        atexit.register(os._exit, 0)

    def becomes_another_program_at_the_end(path):
        keep_open(path)
        atexit.register(os.execvp, "true", ["true"])

    def is_cut_short_by_a_thread(path):
        threading.Thread(target=lambda: threading.main_thread().join() or os._exit(0)).start()
        keep_open(path)

    functions = [child_returns_parent_raises, child_exits_parent_returns, child_raises_parent_returns,
                 ends_without_returning, becomes_another_program, crashes, crashes_at_the_end, hangs_at_the_end,
                 cuts_its_end_short, becomes_another_program_at_the_end, is_cut_short_by_a_thread]

    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep(name=f.__name__, fn=f, config=THIS_OUTPUT_PATH) for f in functions])
"""


def test_a_result_counts_only_from_the_steps_own_process_and_if_its_end_agrees(lab: Lab) -> None:
    result = lab.snakemake("--keep-going", experiment=lab.experiment(BAD_ENDINGS), env={"MARIN_STEP_END_SECONDS": "3"})
    assert result.code == 1, result.output
    for name, child in (("child_exits_parent_returns", 0), ("child_raises_parent_returns", 1)):
        assert lab.status_of(name) == "SUCCESS"
        value = json.loads((lab.folder_of(name) / ".artifact.json").read_text())
        assert value == {"from": "the parent", "child": child}
    errors = {
        "child_returns_parent_raises": "ValueError: the parent's own error",
        "ends_without_returning": "exit code 0 before its function returned",
        "becomes_another_program": "exit code 0 before its function returned",
        "crashes": "killed by SIGSEGV",
        "crashes_at_the_end": "its function returned, but its process was killed by SIGSEGV",
        "cuts_its_end_short": "its function returned, but its process ended with exit code 0 while it was ending",
        "becomes_another_program_at_the_end": "ended with exit code 0 while it was ending",
        "is_cut_short_by_a_thread": "ended with exit code 0 while it was ending",
        "hangs_at_the_end": "did not end within 3 s. It was waiting for thread uploader.",
    }
    for name, words in errors.items():
        assert lab.status_of(name) == "FAILED", name
        assert words in lab.info_of(name)["run"]["error"]
        assert not (lab.folder_of(name) / ".artifact.json").exists()
    log = (lab.folder_of("crashes") / ".executor_log").read_text()
    assert "Fatal Python error: Segmentation fault" in log
    assert "in crashes" in log
    log = (lab.folder_of("hangs_at_the_end") / ".executor_log").read_text()
    assert "waits for thread uploader before it ends (at most 3 s)" in log
    assert "Timeout (0:00:03)!" in log  # And then the stacks of all threads.
    assert "waits for thread uploader" in result.output


NO_UNICODE = """
    import os
    import threading
    import time
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main

    NAME = os.fsdecode(b"caf\\xe9")

    class Odd:
        def __getattr__(self, name):
            raise ValueError(f"no {NAME}")

    def raises(path):
        raise ValueError(f"cannot read {NAME}")

    def returns(path):
        return Odd()

    def is_divided(path):
        raises(path)

    def lingers(path):
        threading.Thread(target=wait_for_a_word, args=(os.path.join(path, ".executor_log"),), name=NAME).start()

    def wait_for_a_word(log):
        while "waits for thread" not in open(log).read():
            time.sleep(0.01)

    functions = [raises, returns, lingers]

    if __name__ == "__main__":
        steps = [ExecutorStep(name=f.__name__, fn=f, config=THIS_OUTPUT_PATH) for f in functions]
        executor_main(steps=[*steps, ExecutorStep("divided", is_divided, THIS_OUTPUT_PATH, tasks=2)])
"""


def test_what_is_no_unicode_in_an_error_or_a_warning_is_told_all_the_same(lab: Lab) -> None:
    result = lab.snakemake("--keep-going", experiment=lab.experiment(NO_UNICODE), env={"MARIN_STEP_END_SECONDS": "4"})
    assert result.code == 1
    assert {name: lab.status_of(name) for name in ("raises", "returns", "lingers", "divided")} == {
        "raises": "FAILED",
        "returns": "SUCCESS",
        "lingers": "SUCCESS",
        "divided": "FAILED",
    }, result.output
    assert "[raises] FAILED: ValueError: cannot read caf\\udce9; log: " in result.output
    assert "[returns] warning: the return value is not JSON (no caf\\udce9)" in result.output
    assert "waits for thread caf\\udce9 before it ends" in result.output
    assert "2 of 2 tasks failed: task 0: ValueError: cannot read caf\\udce9" in result.output
    assert "UnicodeEncodeError" not in result.output


UNWRITTEN = """
    from marin_rules import ExecutorStep, executor_main

    KEPT = []

    def keep_open(config):
        KEPT.append(open("/dev/full" if config["full"] == "device" else "small/data", "wb"))
        KEPT[-1].write(b"x" * 5000)

    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep(name="kept", fn=keep_open, config={"full": "disk"})])
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A full disk of its own, `small/`."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    folder = tmp_path / "small"
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4096", "small", folder], capture_output=True, text=True)
    if mount.returncode != 0:
        pytest.skip(f"no small disk can be mounted here: {mount.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_at_the_very_end_is_no_success(lab: Lab, small_disk: Path) -> None:
    result = lab.snakemake(experiment=lab.experiment(UNWRITTEN))
    assert result.code == 1, result.output
    assert lab.status_of("kept") == "FAILED"
    log = (lab.folder_of("kept") / ".executor_log").read_text()
    assert "could not write to small/data: [Errno 28] No space left on device" in log


STRAY = """
    import subprocess
    from marin_rules import THIS_OUTPUT_PATH, ExecutorStep, executor_main

    def leave(path):
        subprocess.Popen(["sleep", "1000"])

    if __name__ == "__main__":
        executor_main(steps=[ExecutorStep(name="leaver", fn=leave, config=THIS_OUTPUT_PATH)])
"""


def test_processes_that_a_step_leaves_running_are_named(lab: Lab) -> None:
    result = lab.snakemake(experiment=lab.experiment(STRAY))
    assert result.code == 0, result.output
    assert lab.status_of("leaver") == "SUCCESS"
    assert "left processes running, which were ended: sleep (pid " in result.output
