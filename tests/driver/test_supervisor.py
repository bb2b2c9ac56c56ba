"""What a signal to a submitted driver means."""

from __future__ import annotations

import signal

import pytest

from marin_rules.clusters.allocation import EndCause
from marin_rules.driver.supervisor import Order, order_for


@pytest.mark.parametrize(
    ("number", "cause", "order"),
    [
        (signal.SIGTERM, EndCause.CANCELLED, Order.STOP),
        (signal.SIGTERM, EndCause.STARTS_AGAIN, Order.LEAVE),
        (signal.SIGTERM, EndCause.TIME_LIMIT, Order.START_AGAIN),
        (signal.SIGTERM, EndCause.SIGNAL, Order.START_AGAIN),
        (signal.SIGTERM, EndCause.UNKNOWN, Order.LEAVE),
        (signal.SIGUSR1, EndCause.SIGNAL, Order.START_AGAIN),
        (signal.SIGINT, EndCause.SIGNAL, Order.STOP),
    ],
)
def test_a_driver_in_a_job_asks_why_it_is_told_to_end(number: int, cause: EndCause, order: Order) -> None:
    assert order_for(number, is_asked_to_stop=False, why=lambda: cause) is order


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_word_of_the_user_is_enough(number: int) -> None:
    def ask() -> EndCause:
        raise AssertionError("nobody needs to ask")

    assert order_for(number, is_asked_to_stop=True, why=ask) is Order.STOP


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_outside_of_jobs_nobody_starts_a_driver_again(number: int) -> None:
    assert order_for(number, is_asked_to_stop=False, why=None) is Order.STOP
