"""The fixtures, as a pytest plugin: `tests/conftest.py` loads it.

A cluster is started once in each worker that needs one; a test gets it as if just started. On a machine that cannot
have one the tests are skipped, but in CI they fail: a run that skipped them would prove less than it says.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from support.lab import REPOSITORY, Lab
from support.slurm.cluster import SlurmCluster
from support.slurm.requirements import SlurmUnavailableError


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """The cluster of this worker. Tests want `slurm`."""
    yield from _cluster(accounting=False)


@pytest.fixture(scope="session")
def accounting_cluster() -> Iterator[SlurmCluster]:
    """A cluster with a database, in which `sacct` answers. What one test does there, the next one finds."""
    yield from _cluster(accounting=True)


@pytest.fixture(scope="module")
def secluded_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A cluster whose nodes have neither this project nor the user's home nor the folders of tests."""
    yield from _cluster(hidden=(tmp_path_factory.getbasetemp(), REPOSITORY, Path.home()))


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster, lab: Lab) -> Iterator[SlurmCluster]:
    """A cluster that is whole and idle."""
    yield slurm_cluster
    lab.kill_everything()  # A driver that is left would submit again.
    slurm_cluster.reset()


@pytest.fixture
def slurm_with_hosts(slurm: SlurmCluster) -> SlurmCluster:
    """The same, for tests that look up the names of nodes, or cut the power of one."""
    if not slurm.names_resolve:
        _lacking("host names of their own for nodes need namespaces (CAP_SYS_ADMIN)")
    return slurm


def _cluster(*, accounting: bool = False, hidden: Sequence[Path] = ()) -> Iterator[SlurmCluster]:
    # Not in pytest's own folder, whose path can be too long for the sockets of Slurm.
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        try:
            cluster = SlurmCluster(Path(folder), accounting=accounting, hidden=hidden)
        except SlurmUnavailableError as error:
            _lacking(str(error))
        yield cluster
        cluster.stop()


def _lacking(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
