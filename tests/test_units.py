"""Durations, sizes and moments: what each text stands for, and that what is printed can be read back."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_rules.units import (
    MEGABYTE,
    clock_now,
    clock_time,
    duration,
    memory_text,
    minutes_text,
    parse_clock,
    parse_memory,
    parse_minutes,
    parse_timestamp,
    rough_duration,
    size_text,
    timestamp,
)

# --- moments

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp()


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A time zone that is two hours ahead in June, whatever the machine's is."""
    monkeypatch.setenv("TZ", "TST-1DST,M3.5.0,M10.5.0")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("zone")
def test_a_moment_is_written_with_its_offset() -> None:
    assert timestamp(NOON + 0.9) == "2026-06-01T14:00:00+02:00"
    assert parse_timestamp("2026-06-01T14:00:00+02:00") == NOON
    assert parse_timestamp("2026-06-01T12:00:00Z") == NOON


@pytest.mark.usefixtures("zone")
def test_only_another_day_is_written_with_its_date() -> None:
    assert clock_time(NOON, NOON + 3600) == "14:00:00"
    assert clock_time(NOON, NOON + 86400) == "2026-06-01 14:00:00"
    # Before midnight in London, after it here.
    assert clock_time(NOON, NOON + 10 * 3600) == "2026-06-01 14:00:00"
    assert len(clock_now()) == len("14:00:00")


@settings(deadline=None)
@given(st.integers(0, 4_000_000_000))
def test_a_moment_can_be_read_back(seconds: int) -> None:
    assert parse_timestamp(timestamp(seconds)) == seconds


# --- durations


@pytest.mark.parametrize(
    ("seconds", "text", "rough"),
    [
        (0, "0.0s", "0 s"),
        (4.21, "4.2s", "4 s"),
        (59.9, "59.9s", "60 s"),
        (60, "1m00s", "60 s"),
        (185, "3m05s", "3 min"),
        (3599, "59m59s", "59 min"),
        (3600, "1h00m", "60 min"),
        (7200, "2h00m", "2 h"),
        (93600, "26h00m", "26 h"),
    ],
)
def test_elapsed_time_in_a_table_and_in_a_sentence(seconds: float, text: str, rough: str) -> None:
    assert duration(seconds) == text
    assert rough_duration(seconds) == rough


def test_a_clock_that_is_ahead_makes_nobody_silent_for_less_than_nothing() -> None:
    assert rough_duration(-30) == "0 s"


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("1m", 1), ("90m", 90), ("4h", 240), (" 4 H ", 240), ("1.5d", 2160), ("2d", 2880), ("1w", 10080), ("0.6m", 1)],
)
def test_a_time_limit_is_read_in_minutes(text: str, minutes: int) -> None:
    assert parse_minutes(text) == minutes


@pytest.mark.parametrize("text", ["", "4", "soon", "-4h", "0m", "0.2m", "4h30m", "4s", "1e3m", "4:00", ".5h"])
def test_a_time_limit_that_cannot_be_read_is_named_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="write '90m', '4h' or '2d'") as caught:
        parse_minutes(text)
    assert repr(text) in str(caught.value)


def test_a_time_limit_as_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="240 is not a time"):
        parse_minutes(240)  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.integers(1, 10**7))
def test_a_time_limit_can_be_read_back(minutes: int) -> None:
    assert parse_minutes(minutes_text(minutes)) == minutes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("0:07", 7),
        ("30:00", 1800),
        ("2:00:00", 7200),
        ("1-0", 86400),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("1-12:30:05", 131405),
        ("10-00:00:00", 864000),
        ("infinite", None),
        ("UNLIMITED", None),
        ("INVALID", None),
        ("", None),
        ("1:2:3:4", None),
        ("-5:00", None),
        ("n/a", None),
    ],
)
def test_times_of_a_scheduler(text: str, seconds: int | None) -> None:
    assert parse_clock(text) == seconds


@settings(deadline=None)
@given(st.integers(0, 400), st.integers(0, 86399))
def test_a_schedulers_time_in_full_is_that_many_seconds(days: int, seconds: int) -> None:
    text = f"{days}-{time.strftime('%H:%M:%S', time.gmtime(seconds))}"
    assert parse_clock(text) == days * 86400 + seconds


# --- sizes


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1b", 1),
        ("3k", 3 * 1024),
        ("512m", 512 * 1024**2),
        ("4g", 4 * 1024**3),
        ("4G", 4 * 1024**3),
        ("4GB", 4 * 1024**3),
        ("4Gi", 4 * 1024**3),
        ("4 GiB", 4 * 1024**3),
        (" 4g ", 4 * 1024**3),
        ("1.5t", 3 * 1024**4 // 2),
        ("0.3k", 308),  # 307.2 bytes, rounded up: never less than was asked for
    ],
)
def test_memory_is_read_in_powers_of_1024(text: str, amount: int) -> None:
    assert parse_memory(text) == amount


@pytest.mark.parametrize("text", ["", "g", "4", "4x", "-4g", "4gg", "1e3g", "4g 2m", ".5g", "4.g", "٤g", "4\ng"])
def test_memory_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number with a unit: write '512m', '4g'") as caught:
        parse_memory(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["0g", "0.0m"])
def test_no_memory_at_all_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"'{text}' is nothing"):
        parse_memory(text)


def test_memory_as_a_number_is_refused() -> None:
    with pytest.raises(TypeError, match=r"memory 4 is not a string.*'4g'"):
        parse_memory(4)  # type: ignore[arg-type]


@pytest.mark.parametrize(("megabytes", "text"), [(1024, "1G"), (300, "300M"), (1536, "1536M"), (204800, "200G")])
def test_memory_is_written_briefly(megabytes: int, text: str) -> None:
    assert memory_text(megabytes) == text


@settings(deadline=None)
@given(st.integers(1, 10**8))
def test_memory_can_be_read_back(megabytes: int) -> None:
    assert parse_memory(memory_text(megabytes)) == megabytes * MEGABYTE


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (17, "17 bytes"),
        (1023, "1023 bytes"),
        (2048, "2.00 kB"),
        (3 * 2**20, "3.00 MB"),
        (3 * 2**29, "1.50 GB"),
        (2**41, "2.00 TB"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert size_text(size) == text
