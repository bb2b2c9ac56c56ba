"""A test that starts a process is known as such, or fails: what `make quick` leaves out is not left to memory."""

from __future__ import annotations

import pytest

from support.lab import Lab

SUITE = """
    import os
    import subprocess
    import sys

    import pytest

    @pytest.fixture
    def gcs():
        return "an emulator"

    @pytest.fixture
    def store(request):
        return request.getfixturevalue("gcs")

    def test_popen():
        subprocess.run([sys.executable, "--version"], check=True)

    def test_swallowed():
        try:
            subprocess.run([sys.executable, "--version"], check=True)
        except Exception:
            pass

    def test_fork():
        if os.fork() == 0:
            os._exit(0)

    def test_hidden(store):
        assert store

    @pytest.mark.processes
    def test_marked():
        subprocess.run([sys.executable, "--version"], check=True)

    def test_known_by_its_fixture(gcs):
        subprocess.run([sys.executable, "--version"], check=True)

    def test_git():
        subprocess.run(["git", "--version"], check=True)

    def test_nothing():
        pass
    """


@pytest.fixture
def suite(lab: Lab) -> list[str]:
    """A command that runs the tests above with the plug-in, and tells of each."""
    file = lab.experiment(SUITE, "test_suite.py")
    plugins = ["-p", "support.processes", "-p", "no:cacheprovider"]
    return ["-m", "pytest", *plugins, "--rootdir", str(lab.folder), "-rA", str(file)]


def outcomes(output: str) -> dict[str, str]:
    words = [line.split()[:2] for line in output.splitlines() if line.startswith(("PASSED", "FAILED", "ERROR"))]
    return {test.rpartition("::")[2]: outcome for outcome, test in words}


def test_a_process_without_the_mark_fails(lab: Lab, suite: list[str]) -> None:
    result = lab.python(*suite, env={"PYTHONPATH": str(lab.repository / "tests")})
    assert outcomes(result.output) == {
        "test_popen": "FAILED",
        "test_swallowed": "FAILED",
        "test_fork": "FAILED",
        "test_hidden": "FAILED",
        "test_marked": "PASSED",
        "test_known_by_its_fixture": "PASSED",
        "test_git": "PASSED",
        "test_nothing": "PASSED",
    }
    assert "test_popen starts a process without the mark for it, @pytest.mark.processes" in result.output


def test_the_quick_run_leaves_out_what_is_marked(lab: Lab, suite: list[str]) -> None:
    result = lab.python(*suite, "-m", "not processes", env={"PYTHONPATH": str(lab.repository / "tests")})
    assert "test_marked" not in outcomes(result.output)
    assert "test_known_by_its_fixture" not in outcomes(result.output)
    assert outcomes(result.output)["test_nothing"] == "PASSED"
