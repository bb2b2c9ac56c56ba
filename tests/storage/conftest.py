"""What several tests of storage need."""

import os
from collections.abc import Callable

import pytest


@pytest.fixture
def forked() -> Callable[[Callable[[], int]], int]:
    """`forked(work)`: what `work` returns in a forked process; 99 if it raises."""

    def run(work: Callable[[], int]) -> int:
        child = os.fork()
        if child == 0:
            try:
                os._exit(work())
            except BaseException:
                os._exit(99)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    return run
