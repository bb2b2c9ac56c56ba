"""Durations, sizes, moments and money: how each is written for people and files, and read back.

All other modules keep plain numbers (seconds, minutes, bytes, megabytes) and use this one to write them. A printer
and the parser beside it are inverses wherever the text holds the whole number. Pure: no I/O but the clock's time zone.

Units of size are powers of 1024 throughout, as in Slurm, Docker and Google's bills.
"""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, datetime

MEGABYTE = 1 << 20
GIGABYTE = 1 << 30

_MEMORY = re.compile(r"(?P<amount>[0-9]+(?:\.[0-9]+)?) ?(?P<unit>b|[kmgt](?:i?b|i)?)", re.IGNORECASE)
_BYTES_IN_UNIT = {"b": 1, "k": 1 << 10, "m": MEGABYTE, "g": GIGABYTE, "t": 1 << 40}

_MINUTES = re.compile(r"(?P<amount>[0-9]+(?:\.[0-9]+)?) ?(?P<unit>[mhdw])", re.IGNORECASE)
_MINUTES_IN_UNIT = {"m": 1, "h": 60, "d": 24 * 60, "w": 7 * 24 * 60}

_CLOCK = re.compile(r"(?:(?P<days>[0-9]+)-)?(?P<clock>[0-9]+(?::[0-9]+){0,2})")


# --- moments


def timestamp(seconds: float) -> str:
    """A moment as info files have it: local time with its offset, to the second."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().isoformat(timespec="seconds")


def parse_timestamp(text: str) -> float:
    """The moment that `timestamp` wrote, in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def clock_time(moment: float, now: float) -> str:
    """A moment on the local clock: `14:03:59` if it is today, else with its date."""
    local = time.localtime(moment)
    is_today = local[:3] == time.localtime(now)[:3]
    return time.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S", local)


def clock_now() -> str:
    """The time of day, as at the start of a log line."""
    return time.strftime("%H:%M:%S")


# --- durations


def duration(seconds: float) -> str:
    """Elapsed time in a table: `4.2s`, `3m05s`, `26h00m`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{seconds:.1f}s"


def rough_duration(seconds: float) -> str:
    """Elapsed time in a sentence: `90 s`, `12 min`, `5 h`; none is negative, though two clocks may differ."""
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"


def parse_minutes(text: str) -> int:
    """The minutes in a time limit: "90m", "4h", "1.5 d", "1w"; at least one.

    A bare number is refused: some schedulers read it as minutes and others as seconds.
    """
    matched = _MINUTES.fullmatch(text.strip()) if isinstance(text, str) else None
    minutes = round(float(matched["amount"]) * _MINUTES_IN_UNIT[matched["unit"].lower()]) if matched else 0
    if minutes < 1:
        raise ValueError(f"{text!r} is not a time of a minute or more: write '90m', '4h' or '2d'")
    return minutes


def minutes_text(minutes: int) -> str:
    """A time limit as short as it can be written: `4h`, `90m`."""
    return f"{minutes // 60}h" if minutes % 60 == 0 else f"{minutes}m"


def parse_clock(text: str) -> int | None:
    """The seconds in a time as schedulers print it; None for anything else, such as `UNLIMITED`.

    `minutes`, `minutes:seconds`, `hours:minutes:seconds`; after `days-` the clock begins with the hours instead.
    """
    matched = _CLOCK.fullmatch(text.strip())
    if matched is None:
        return None
    parts = [int(part) for part in matched["clock"].split(":")]
    if matched["days"] is not None or len(parts) == 3:
        hours, minutes, seconds = [*parts, 0, 0][:3]
    else:
        hours, minutes, seconds = [0, *parts, 0][:3]
    return ((int(matched["days"] or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


# --- sizes


def parse_memory(text: str) -> int:
    """The bytes that `text` stands for: "512m", "4g", "1.5 TiB".

    However the units are spelt, they are powers of 1024: `4g`, `4GB` and `4GiB` are the same. A bare number is refused:
    Slurm reads it as megabytes and Docker as bytes.
    """
    if not isinstance(text, str):
        raise TypeError(f"memory {text!r} is not a string: write it with a unit, as in '4g'")
    matched = _MEMORY.fullmatch(text.strip())
    if matched is None:
        raise ValueError(f"memory {text!r} is not a number with a unit: write '512m', '4g' or '1.5t'")
    from decimal import Decimal  # Exact where a float is not; only planning gets here.

    amount = math.ceil(Decimal(matched["amount"]) * _BYTES_IN_UNIT[matched["unit"][0].lower()])
    if amount == 0:
        raise ValueError(f"memory {text!r} is nothing: it must be more than zero")
    return amount


def memory_text(megabytes: int) -> str:
    """An amount of memory as short as it can be written: `16G`, `300M`."""
    return f"{megabytes // 1024}G" if megabytes % 1024 == 0 else f"{megabytes}M"


def size_text(size: int) -> str:
    """The size of data in a sentence: `1.50 GB`, `12.00 MB`, `17 bytes`."""
    for unit, name in ((1 << 40, "TB"), (GIGABYTE, "GB"), (MEGABYTE, "MB"), (1 << 10, "kB")):
        if size >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} bytes"


# --- money


def dollars_text(dollars: float) -> str:
    """An amount of US dollars: `$1,234.50`, `less than $0.01`."""
    return "less than $0.01" if 0 < dollars < 0.01 else f"${dollars:,.2f}"


def about_dollars(dollars: float) -> str:
    """The same for an estimate: `about $0.31`."""
    text = dollars_text(dollars)
    return f"about {text}" if text.startswith("$") else text
