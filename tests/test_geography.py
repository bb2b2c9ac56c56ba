"""Which places cover which."""

import pytest

from marin_rules.geography import bucket_of, common, continent, covers, is_region, joined, normalised, region_of_zone


@pytest.mark.parametrize(
    ("location", "region", "expected"),
    [
        ("us-central1", "us-central1", True),
        ("US-CENTRAL1", "us-central1", True),
        ("us-central1", "us-central2", False),
        ("us", "us-central1", True),
        ("US", "us-west4", True),
        ("us", "northamerica-northeast1", False),
        ("us", "europe-west4", False),
        ("eu", "europe-west4", True),
        ("eu", "europe-west2", False),
        ("eu", "europe-west6", False),
        ("asia", "asia-east1", True),
        ("asia", "australia-southeast1", False),
        ("nam4", "us-central1", True),
        ("nam4", "us-west4", False),
        ("eur4", "europe-north1", True),
        ("asia1", "asia-northeast2", True),
        ("us", "nam4", True),
        ("eu", "eur5", False),
        ("us-central1", "us", False),
        ("nam4", "us", False),
        ("us-east1+us-west1", "us-west1", True),
        ("us-east1+us-west1", "us-central1", False),
        ("us", "us", True),
    ],
)
def test_covers(location: str, region: str, expected: bool) -> None:
    assert covers(location, region) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("us", "us-central1", "us-central1"),
        ("us", "nam4", "nam4"),
        ("us", "eu", None),
        ("us-central1", "us-east1", None),
        ("eur7", "eur8", "europe-west3"),
        ("eur5", "eur8", None),
        ("eu", "eur5", "europe-west1"),
        ("us-east1+us-west1", "nam4", "us-east1"),
        ("us", "us", "us"),
    ],
)
def test_common_is_the_smaller_place_in_either_order(one: str, other: str, expected: str | None) -> None:
    assert common(one, other) == expected
    assert common(other, one) == expected


def test_a_region_is_one_place() -> None:
    assert is_region("us-central1")
    assert not any(is_region(place) for place in ("us", "EU", "nam4", "us-east1+us-west1"))


def test_joined_is_sorted_and_has_no_repeats() -> None:
    assert joined(["US-WEST1", "us-east1", "us-west1"]) == "us-east1+us-west1"
    assert joined([]) is None
    assert normalised(" US-East1\n") == "us-east1"


@pytest.mark.parametrize(
    ("zone", "region"), [("us-central1-a", "us-central1"), ("northamerica-northeast1-b", "northamerica-northeast1")]
)
def test_the_region_of_a_zone(zone: str, region: str) -> None:
    assert region_of_zone(zone) == region


@pytest.mark.parametrize("text", ["us-central1", "us", "", "a"])
def test_what_is_no_zone_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="us-central1-a"):
        region_of_zone(text)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("us-central1", "north-america"),
        ("US", "north-america"),
        ("nam4", "north-america"),
        ("europe-west4", "europe"),
        ("eur4", "europe"),
        ("asia", "asia"),
        ("australia-southeast1", "oceania"),
        ("southamerica-east1", "latin-america"),
        ("me-west1", "middle-east"),
        ("us-east1+us-west1", "north-america"),
        ("mars", None),
    ],
)
def test_continents(location: str, expected: str | None) -> None:
    assert continent(location) == expected


@pytest.mark.parametrize(
    ("url", "bucket"),
    [
        ("gs://b/x", "b"),
        ("gcs://b", "b"),
        ("gs://", None),
        ("s3://b/x", None),
        ("/gs://b", None),
        ("mirror://gs://b/x", None),
        ("gs", None),
    ],
)
def test_the_bucket_of_a_url(url: str, bucket: str | None) -> None:
    assert bucket_of(url) == bucket
