"""A test that starts no process runs in an empty folder, and one that leaves something there fails."""

from __future__ import annotations

from support.lab import Lab

SUITE = """
    import os

    import pytest

    def test_one_that_leaves_a_file():
        open("left", "w").close()

    def test_the_next_finds_nothing():
        assert os.listdir() == []

    @pytest.mark.processes
    def test_one_with_processes_stays_where_it_is():
        assert "test_suite.py" in os.listdir()
    """


def test_nothing_is_left_in_the_working_directory(lab: Lab) -> None:
    lab.experiment(SUITE, "test_suite.py")
    plugins = ["-p", "support.processes", "-p", "support.working_folder", "-p", "no:cacheprovider"]
    result = lab.python(
        *("-m", "pytest", *plugins, "--rootdir", str(lab.folder), "test_suite.py"),
        env={"PYTHONPATH": str(lab.repository / "tests")},
    )
    assert "3 passed, 1 error" in result.output
    assert "ERROR at teardown of test_one_that_leaves_a_file" in result.output
    assert "left in the working directory: left; write below tmp_path instead" in result.output
