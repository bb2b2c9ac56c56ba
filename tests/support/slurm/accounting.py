"""Slurm's accounting for a test cluster: a real database and the daemon that writes to it, so that `sacct` answers."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from support.slurm.configuration import CLUSTER_NAME, CONTROLLER, DATABASE, DATABASE_USER, Ports
from support.slurm.daemons import Daemon
from support.slurm.hosts import HostNames
from support.slurm.ports import is_listening

# The database listens on loopback only and ends with the cluster.
_FIRST_STATEMENTS = f"""\
CREATE DATABASE {DATABASE};
CREATE USER '{DATABASE_USER}'@'127.0.0.1';
GRANT ALL ON {DATABASE}.* TO '{DATABASE_USER}'@'127.0.0.1';
"""


class Accounting:
    """mariadbd and slurmdbd. The second reads the slurmdbd.conf beside slurm.conf."""

    def __init__(self, folder: Path, ports: Ports, hosts: HostNames, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._ports = ports
        self._environment = environment
        self._data = folder / "database"
        database = [
            "mariadbd",
            "--no-defaults",
            "--user=root",
            f"--datadir={self._data}",
            f"--socket={folder}/run/database.socket",
            f"--pid-file={folder}/run/database.pid",
            "--bind-address=127.0.0.1",
            f"--port={ports.database}",
            "--skip-name-resolve",
            f"--init-file={folder}/first.sql",
            # What slurmdbd wants.
            "--innodb-lock-wait-timeout=900",
            # Nothing here has to outlive the machine.
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-buffer-pool-size=64M",
        ]
        log = folder / "log"
        self._database = Daemon("mariadbd", database, folder=folder, log=log / "mariadbd.log", environment=environment)
        self._writer = Daemon(
            "slurmdbd",
            hosts.on(CONTROLLER, "slurmdbd", "-D"),
            folder=folder,
            log=log / "slurmdbd.log",
            environment=environment,
        )

    def start(self) -> None:
        self._run(
            "mariadb-install-db",
            "--no-defaults",
            "--user=root",
            f"--datadir={self._data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        )
        (self._folder / "first.sql").write_text(_FIRST_STATEMENTS)
        self._database.start()
        self._database.wait_until(lambda: is_listening(self._ports.database))
        self._writer.start()
        self._writer.wait_until(lambda: is_listening(self._ports.accounting))
        self._run("sacctmgr", "--immediate", "add", "cluster", CLUSTER_NAME)
        self._run("sacctmgr", "--immediate", "add", "account", "tests", f"cluster={CLUSTER_NAME}")
        self._run("sacctmgr", "--immediate", "add", "user", "root", "account=tests", f"cluster={CLUSTER_NAME}")

    def kill(self) -> None:
        self._writer.kill()
        self._database.kill()

    def _run(self, *command: str) -> None:
        ran = subprocess.run(command, env=self._environment, capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"{command[0]} failed:\n{ran.stdout}{ran.stderr}")
