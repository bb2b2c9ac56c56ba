"""The handle on an emulated Cloud TPU."""

from __future__ import annotations

from support.emulators.rpc.emulator import RpcEmulator


class TpuEmulator(RpcEmulator):
    """The hosts of its slices run on this machine. Queued resources and nodes are named by their ids alone."""

    module = "support.emulators.tpu"

    def hold(self, *states: str) -> None:
        """No queued resource leaves these states from now on; none lets all go on."""
        self.control("hold", states=states)

    def set_quota(self, most: int | None) -> None:
        """How many queued resources there may be, in whatever state."""
        self.control("quota", most=most)

    def silence(self, *zones: str) -> None:
        """Lists go on without these zones from now on, and name them as unreachable; none lets all answer."""
        self.control("silence", zones=zones)

    def preempt(self, resource: str) -> None:
        """Take away all nodes of a Spot resource."""
        self.control("preempt", resource=resource)

    def fail(self, resource: str, code: int = 8, message: str = "There is no more capacity in the zone.") -> None:
        """A queued resource cannot be provisioned; the code is one of gRPC's."""
        self.control("fail", resource=resource, code=code, message=message)

    def reboot(self, node: str, host: int) -> None:
        """One host starts again, and runs its startup script again."""
        self.control("reboot", node=node, host=host)

    def shut_down(self, node: str, host: int) -> None:
        """One host is gone for good."""
        self.control("shut_down", node=node, host=host)

    def lines(self, node: str) -> list[list[str]]:
        """What the startup scripts of a node's hosts have printed, by host."""
        found: list[list[str]] = self.control("lines", node=node)
        return found

    def processes(self) -> list[int]:
        """Everything that runs on hosts."""
        pids: list[int] = self.control("processes")
        return pids
