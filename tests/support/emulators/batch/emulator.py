"""The handle on an emulated Google Batch."""

from __future__ import annotations

from support.emulators.rpc.emulator import RpcEmulator


class BatchEmulator(RpcEmulator):
    """Its jobs run on this machine, each task in a folder of its own. `batch.job` has what a test can do to them."""

    module = "support.emulators.batch"

    def hold(self, *states: str) -> None:
        """No job leaves these states from now on; none lets all go on."""
        self.control("hold", states=states)

    def set_shortage(self, message: str | None) -> None:
        """Jobs that are scheduled get no machines, and say why; None ends that."""
        self.control("shortage", message=message)

    def set_missing_images(self, *images: str) -> None:
        """Containers of these images cannot be started."""
        self.control("missing_images", images=images)

    def set_grace(self, seconds: float) -> None:
        """How long a task may take to end after it was asked to, before it is killed."""
        self.control("grace", seconds=seconds)

    def set_quirks(self, *quirks: str) -> None:
        """What the service may do, and seldom does: `batch.service.QUIRKS`."""
        self.control("quirks", quirks=quirks)

    def set_largest_page(self, size: int) -> None:
        """However large a page a client asks for, it gets no more than so many at once."""
        self.control("largest_page", size=size)

    def age(self, job: str, days: float) -> None:
        """Let a job have been created so much earlier."""
        self.control("age", job=job, days=days)

    def preempt(self, job: str, task: int = 0) -> None:
        """Take away the Spot machine of a task."""
        self.lose_machine(job, task, 50001)

    def lose_machine(self, job: str, task: int = 0, code: int = 50002) -> None:
        """Take away the machine of a task, with one of the reserved exit codes."""
        self.control("lose_machine", job=job, task=task, code=code)

    def processes(self) -> list[int]:
        """Everything that runs on its machines."""
        pids: list[int] = self.control("processes")
        return pids


QUOTA_SHORTAGE = (
    "code - CODE_GCE_QUOTA_EXCEEDED, description - error count is 4, latest message example: Instance"
    " 'job-0' creation failed: Quota 'CPUS' exceeded.  Limit: 24.0 in region us-central1"
)
STOCK_SHORTAGE = (
    "code - CODE_GCE_ZONE_RESOURCE_POOL_EXHAUSTED, description - error count is 1, latest message example: Instance"
    " 'job-0' creation failed: The zone 'projects/emulated/zones/us-central1-a' does not have enough resources"
    " available to fulfill the request."
)
"""Shortages in Batch's words."""
