"""Which tests start processes, as a pytest plugin: `make quick` leaves these out (`-m "not processes"`).

A test that asks for a lab, a cluster or an emulator is marked when it is collected; one that starts a process by itself
marks itself. Nobody has to remember that: a test without the mark that starts a process fails, in every run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

STARTERS = frozenset(
    {
        *("lab", "slurm", "slurm_cluster", "accounting_cluster"),
        *("gcs", "gcs_process", "s3", "s3_process", "make_place", "make_world", "remote"),
        *("batch", "batch_process", "tpu", "tpu_process"),
        *("training_python", "fasttext_python", "training_lab"),
        *("browser", "conda_installation", "installed_driver", "make_nursery", "warm_snakemake"),
    }
)
"""The fixtures that start processes, or exist to. Those that ask for one of these need not be here."""

# A frozen plan says which commit it was made from; matplotlib asks once on a machine which fonts there are. These
# questions take milliseconds.
_ALLOWED = frozenset({"git", "fc-list"})

_EVENTS = frozenset({"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"})


class _Watch:
    """Looks at every process that Python is about to start; holds one that a test without the mark asks for."""

    def __init__(self) -> None:
        self._test: str | None = None
        self.complaint: str | None = None
        """About the test that runs. Kept until it ends, for it may swallow the error."""

    def begin(self, test: str) -> None:
        self._test, self.complaint = test, None

    def end(self) -> None:
        self._test, self.complaint = None, None

    def look(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._test is None or (event == "subprocess.Popen" and arguments[0] in _ALLOWED):
            return
        self.complain(f"{event}{arguments[:2]}")
        raise RuntimeError(self.complaint)

    def complain(self, what: str) -> None:
        if self._test is not None:
            self.complaint = f"{self._test} starts a process without the mark for it, @pytest.mark.processes: {what}"


_watch = _Watch()


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    """Called at each `id()`, `open()` and the like, some hundred thousand times in a run."""
    if event in _EVENTS:
        _watch.look(event, arguments)


# Once in a process, for an audit hook cannot be taken out again.
sys.addaudithook(_hear)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "processes: starts processes; left out by `make quick`")


@pytest.hookimpl(tryfirst=True)  # Before `-m` looks at the marks.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not STARTERS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.processes)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if item.get_closest_marker("processes") is None:
        _watch.begin(item.nodeid)
    try:
        return (yield)
    finally:
        _watch.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    yield
    if _watch.complaint is not None:
        pytest.fail(_watch.complaint, pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> None:
    """A fixture that is asked for by `getfixturevalue` shows only now. Its process may be running already."""
    if fixturedef.argname in STARTERS:
        _watch.complain(f"the fixture {fixturedef.argname}")
