"""Estimates of what moving data costs."""

import pytest

from marin_rules.storage import prices
from marin_rules.storage.prices import Price, estimate

GB = 2**30


@pytest.mark.parametrize(
    ("source", "target", "dollars"),
    [
        ("us-central1", "us-east1", 2.0),
        ("us-central1", "europe-west4", 5.0),
        ("EUROPE-WEST4", "us-central1", 5.0),
        ("eu", "us-central1", 5.0),
        ("us-central1", "asia-east1", 8.0),
        ("us-central1", "us-central1", 0.0),
        ("us", "us-central1", 0.0),
    ],
)
def test_a_hundred_gigabytes(source: str, target: str, dollars: float) -> None:
    price = estimate(100 * GB, source, target)
    assert price is not None
    assert price.dollars == pytest.approx(dollars)


def test_every_pair_of_continents_has_a_price() -> None:
    _, table = prices._table()
    continents = {source for source, _ in table}
    assert len(continents) == 7
    assert table.keys() == {(source, target) for source in continents for target in continents}


def test_an_unknown_price_is_none() -> None:
    assert estimate(GB, None, "us-central1") is None
    assert estimate(GB, "us-central1", None) is None
    assert estimate(GB, "mars-east1", "us-central1") is None


def test_a_price_says_its_date() -> None:
    assert str(estimate(GB, "us-central1", "europe-west4")) == "about $0.05 (list prices of 2026-11-16)"
    assert str(Price(1234.5, "D")) == "about $1,234.50 (list prices of D)"
    assert str(Price(0.001, "D")) == "less than $0.01 (list prices of D)"
