"""Host names of their own for the daemons of one machine, while the names of the machine stay as they are.

A daemon gets a namespace in which its host name is that of its node, and in which /etc/hosts knows all nodes. Its jobs
inherit both. Where namespaces are forbidden, as in most containers, `are_possible` is False and all daemons share the
machine's name.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.slurm.requirements import SlurmUnavailableError

_MACHINE_HOSTS = Path("/etc/hosts")
_ENTER = f'mount --bind "$1" {_MACHINE_HOSTS} && hostname "$2" && shift 2'


class HostNames:
    """Names that all mean 127.0.0.1."""

    def __init__(self, file: Path, names: Sequence[str]) -> None:
        self._file = file
        self._entering = _ENTER
        machine_hosts = _MACHINE_HOSTS.read_text() if _MACHINE_HOSTS.exists() else ""
        file.write_text(f"127.0.0.1 {' '.join(names)}\n{machine_hosts}")
        self.are_possible = True
        self.are_possible = all(self._is_loopback(name) for name in names)

    def also(self, lines: str) -> None:
        """From now on these lines of shell are executed in each new namespace, too."""
        if self.are_possible:
            self._entering = f"{_ENTER} && {lines}"

    def on(self, name: str, *command: str) -> list[str]:
        """The command, to be run on that host. It stays one process: its number is that of what was started."""
        if not self.are_possible:
            return list(command)
        return [
            "unshare",
            "--mount",
            "--uts",
            "sh",
            "-c",
            f'{self._entering} && exec "$@"',
            "sh",
            str(self._file),
            name,
            *command,
        ]

    def _is_loopback(self, name: str) -> bool:
        try:
            answer = subprocess.run(self.on(name, "getent", "ahostsv4", name), capture_output=True, text=True)
        except FileNotFoundError:
            return False
        return answer.returncode == 0 and answer.stdout.startswith("127.0.0.1 ")


def machine_name() -> str:
    """The machine's own host name, if Slurm can use it: what it means is the address on which daemons listen."""
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        address = "unknown"
    if not address.startswith("127."):
        raise SlurmUnavailableError(
            f"Slurm would listen on the address of host name {name!r}, which is {address}, not loopback: "
            f"allow namespaces (CAP_SYS_ADMIN), or add '127.0.0.1 {name}' to {_MACHINE_HOSTS}"
        )
    return name
