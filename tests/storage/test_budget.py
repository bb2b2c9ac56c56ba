"""What may be moved, who shares it, and what a refusal says."""

import asyncio
import glob
import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from marin_rules.errors import MarinRulesError, SettingsError
from marin_rules.storage import budget
from marin_rules.storage.budget import (
    BudgetError,
    Ledger,
    Receipt,
    charge,
    mirror_budget,
    remaining,
    step_ledger,
)

GB = 2**30


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has spent nothing, and a temporary directory of its own."""
    for name in ("MARIN_MIRROR_BUDGET_GB", "MARIN_BUDGET_LEDGER", "MARIN_I_WILL_PAY_FOR_ALL_FEES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(budget, "_of_this_process", Ledger())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def spend(gigabytes: float) -> Receipt:
    return charge(int(gigabytes * GB), what="gs://far/x", source="europe-west4", target="us-central1")


def refused(gigabytes: float) -> bool:
    try:
        spend(gigabytes).refund()
    except BudgetError:
        return True
    return False


def test_a_process_may_move_ten_gigabytes() -> None:
    spend(4)
    spend(6)
    assert remaining() == 0
    assert refused(1e-9 + 1 / GB)


def test_what_is_refused_is_not_spent() -> None:
    assert refused(11)
    assert remaining() == 10 * GB
    spend(10)


def test_nothing_costs_nothing_even_when_all_is_spent() -> None:
    with mirror_budget(0):
        charge(0, what="x", source=None, target=None)
        assert refused(1 / GB)


def test_the_environment_is_read_at_each_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_MIRROR_BUDGET_GB", "0.5")
    assert refused(1)
    monkeypatch.setenv("MARIN_MIRROR_BUDGET_GB", "20")
    spend(15)
    monkeypatch.setenv("MARIN_MIRROR_BUDGET_GB", "inf")
    spend(1e6)


@pytest.mark.parametrize("value", ["ten", "-1", "nan", "10GB"])
def test_a_wrong_budget_is_refused_by_name(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_MIRROR_BUDGET_GB", value)
    with pytest.raises(SettingsError, match=f"MARIN_MIRROR_BUDGET_GB is '{value}'"):
        spend(1)
    with pytest.raises(SettingsError, match="mirror_budget"), mirror_budget(-1):
        pass


def test_a_refusal_says_all_one_needs() -> None:
    spend(9)
    with pytest.raises(BudgetError) as caught:
        spend(100)
    text = str(caught.value)
    for part in (
        "gs://far/x", "europe-west4", "us-central1", "100.00 GB", "1.00 GB", "10.00 GB", "$5.00", "2026-11-16",
        "mirrored(path, budget_gb=...)", "mirror_budget(gb)", "MARIN_MIRROR_BUDGET_GB",
        "MARIN_I_WILL_PAY_FOR_ALL_FEES=1",
    ):  # fmt: skip
        assert part in text
    assert isinstance(caught.value, MarinRulesError)
    assert isinstance(caught.value, OSError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


def test_unknown_regions_are_said_to_be_unknown() -> None:
    with pytest.raises(BudgetError, match=r"from an unknown region to an unknown region.* is not known"):
        charge(11 * GB, what="x", source=None, target=None)


@pytest.mark.parametrize(("value", "pays"), [("1", True), ("true", True), ("0", False), ("", False), ("False", False)])
def test_who_pays_is_not_refused(value: str, pays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_I_WILL_PAY_FOR_ALL_FEES", value)
    assert refused(11) is not pays


def test_a_refund_counts_once() -> None:
    spend(3)
    receipt = spend(5)
    receipt.refund()
    receipt.refund()
    assert remaining() == 7 * GB


def test_a_receipt_is_corrected_downwards_only() -> None:
    receipt = spend(5)
    receipt.settle(2 * GB)
    receipt.settle(4 * GB)
    assert remaining() == 8 * GB
    receipt.refund()
    assert remaining() == 10 * GB


def test_a_block_has_a_budget_of_its_own() -> None:
    spend(9)
    with mirror_budget(100):
        spend(90)
        with mirror_budget(1):
            assert refused(2)
        assert remaining() == 10 * GB
    assert remaining() == 1 * GB


def test_a_block_is_not_changed_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_MIRROR_BUDGET_GB", "50")
    with mirror_budget(1):
        assert refused(2)


def test_blocks_of_other_threads_and_tasks_do_not_count() -> None:
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        with mirror_budget(0):
            inside.set()
            done.wait(5)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(5)
    assert not refused(1)
    done.set()
    thread.join()

    async def task(gigabytes: float) -> int:
        with mirror_budget(gigabytes):
            await asyncio.sleep(0)
            spend(gigabytes)
            await asyncio.sleep(0)
            return remaining()

    async def both() -> list[int]:
        return await asyncio.gather(task(1), task(2))

    assert asyncio.run(both()) == [0, 0]
    assert remaining() == 10 * GB


def test_threads_together_spend_no_more_than_there_is() -> None:
    outcomes: list[bool] = []

    def work() -> None:
        for _ in range(25):
            try:
                spend(0.5)
                outcomes.append(True)
            except BudgetError:
                outcomes.append(False)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count(True) == 20


def test_a_step_has_a_limit_and_leaves_no_file(tmp_path: Path) -> None:
    with step_ledger(2):
        assert glob.glob(str(tmp_path / "*")) == []
        spend(1.5)
        assert refused(1)
        with mirror_budget(5):
            spend(5)
        assert remaining() == GB // 2
    assert "MARIN_BUDGET_LEDGER" not in os.environ
    assert glob.glob(str(tmp_path / "*")) == []
    assert remaining() == 10 * GB


def test_steps_inside_each_other_are_apart() -> None:
    with step_ledger(2):
        outer = os.environ["MARIN_BUDGET_LEDGER"]
        with step_ledger(1):
            spend(1)
        assert os.environ["MARIN_BUDGET_LEDGER"] == outer
        assert remaining() == 2 * GB


def test_the_environment_raises_the_limit_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    with step_ledger(None):
        assert remaining() == 10 * GB
    monkeypatch.setenv("MARIN_MIRROR_BUDGET_GB", "5")
    with step_ledger(None):
        assert remaining() == 5 * GB
    with step_ledger(20):
        assert remaining() == 20 * GB
    with step_ledger(2):
        assert remaining() == 5 * GB


def test_a_refund_after_the_step_does_no_harm() -> None:
    with step_ledger(2):
        receipt = spend(1)
    receipt.refund()
    assert remaining() == 10 * GB


def test_a_ledger_whose_number_another_file_has_is_left_alone(tmp_path: Path) -> None:
    """Whoever still knows the ledger of a step that is over must not write into what was opened after it."""
    with step_ledger(2):
        spend(1)
        path = os.environ["MARIN_BUDGET_LEDGER"]
        number = int(path.rpartition("/")[2])
        kept = os.dup(number)
        with open(tmp_path / "data", "w+b") as other:
            other.write(b"precious data of the step\n")
            other.flush()
            os.dup2(other.fileno(), number)
            spend(1.5)
            assert refused(1)
            assert remaining() == GB // 2
            assert (tmp_path / "data").read_bytes() == b"precious data of the step\n"
            os.dup2(kept, number)
        os.close(kept)
        assert remaining() == GB


def test_a_ledger_of_another_machine_is_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_BUDGET_LEDGER", "/nowhere/ledger")
    spend(9)
    assert refused(2)


def _child(gigabytes: float, times: int, results: "multiprocessing.Queue[int]") -> None:
    results.put(sum(not _refused_here(gigabytes) for _ in range(times)))


def _refused_here(gigabytes: float) -> bool:
    try:
        spend(gigabytes)
    except BudgetError:
        return True
    return False


@pytest.mark.processes
def test_forked_processes_share_the_budget_of_a_step() -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with step_ledger(3):
        children = [context.Process(target=_child, args=(0.1, 20, results)) for _ in range(4)]
        for child in children:
            child.start()
        allowed = sum(results.get(timeout=10) for _ in children)
        for child in children:
            child.join()
        assert allowed == 30
        assert remaining() < GB / 5


@pytest.mark.processes
def test_spawned_processes_share_it_too() -> None:
    program = """
from marin_rules.storage.budget import charge, BudgetError
charge(2**30, what="x", source=None, target=None)
try:
    charge(2**31, what="x", source=None, target=None)
except BudgetError:
    print("refused")
"""
    with step_ledger(2.5):
        spend(0.5)
        output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert output.stdout == "refused\n"
        assert remaining() == GB


@pytest.mark.processes
def test_forked_processes_share_the_budget_of_a_block(forked: Callable[[Callable[[], int]], int]) -> None:
    with mirror_budget(3):
        assert forked(lambda: int(refused(2)) + 2 * int(not spend(2))) == 0
        assert refused(2)
        assert not refused(1)


@pytest.mark.processes
def test_a_process_forked_while_a_thread_charges_is_not_stuck(forked: Callable[[Callable[[], int]], int]) -> None:
    with budget._of_this_process._lock:
        assert forked(lambda: 7 if spend(1) else 8) == 7
