"""The logs of ranks on an object store: appended to in the end, whatever earlier attempts left."""

import threading

import pytest

from marin_rules.storage.objects import open as open_module
from marin_rules.worker.ranks import RankLogs
from support.emulators.s3.emulator import S3Emulator


def test_logs_of_ranks_on_an_object_store(
    s3_here: S3Emulator, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(open_module, "_local", threading.local())  # Clients of earlier tests know other emulators.
    for attempt in (1, 2):
        with RankLogs("s3://bucket/step") as logs:
            for rank in (0, 1):
                logs.take(rank, b"attempt %d of rank %d\n" % (attempt, rank))
            logs.take(None, b"srun: a word of its own\n")
    for rank in (0, 1):
        kept = s3_here.get("bucket", f"step/.executor_log.rank-{rank}")
        assert kept == b"attempt 1 of rank %d\nattempt 2 of rank %d\n" % (rank, rank)
    assert capfdbinary.readouterr().out.startswith(
        b"[rank 0] attempt 1 of rank 0\n[rank 1] attempt 1 of rank 1\nsrun: "
    )
