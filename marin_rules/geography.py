"""Google's regions, and the larger places that hold data for several of them. Pure: names only, no I/O.

A *location* is what a bucket has: a region (`us-central1`), a multi-region (`us`), a dual-region (`nam4`), or
regions joined by `+` (`us-east1+us-west1`: a custom dual-region). All names are lower case.

Reading from a bucket costs nothing for a machine in a region that the bucket's location *covers*.
"""

from __future__ import annotations

import re

_ZONE = re.compile(r"(?P<region>[a-z]+(?:-[a-z]+)+[0-9]+)-[a-z]")

_MULTI_REGIONS = {"us": "us-", "eu": "europe-", "asia": "asia-"}
"""A multi-region and how the names of its regions begin."""

_NOT_IN_EU = frozenset({"europe-west2", "europe-west6"})
"""London and Zurich are in Europe, but Google keeps data of `eu` inside the European Union."""

_DUAL_REGIONS = {
    "asia1": frozenset({"asia-northeast1", "asia-northeast2"}),
    "eur4": frozenset({"europe-north1", "europe-west4"}),
    "eur5": frozenset({"europe-west1", "europe-west2"}),
    "eur7": frozenset({"europe-west2", "europe-west3"}),
    "eur8": frozenset({"europe-west3", "europe-west6"}),
    "nam4": frozenset({"us-central1", "us-east1"}),
}

_CONTINENTS = {
    "africa": "africa",
    "asia": "asia",
    "asia1": "asia",
    "australia": "oceania",
    "eu": "europe",
    "eur4": "europe",
    "eur5": "europe",
    "eur7": "europe",
    "eur8": "europe",
    "europe": "europe",
    "me": "middle-east",
    "nam4": "north-america",
    "northamerica": "north-america",
    "southamerica": "latin-america",
    "us": "north-america",
}
"""The first word of a location's name, and the continent as price lists call it."""

_GOOGLE_SCHEMES = ("gs", "gcs")


def normalised(location: str) -> str:
    """The name as it is compared: Google's interfaces answer `US-CENTRAL1`, people write `us-central1`."""
    return location.strip().lower()


def is_region(location: str) -> bool:
    """Whether `location` is one region, and not a place that spans several."""
    name = normalised(location)
    return name not in _MULTI_REGIONS and name not in _DUAL_REGIONS and "+" not in name


def covers(location: str, region: str) -> bool:
    """Whether data in `location` is near for all of `region`. A location covers itself."""
    location, region = normalised(location), normalised(region)
    if location == region:
        return True
    if region in _MULTI_REGIONS:
        return False
    wanted, members = _members(region), _members(location)
    start = _MULTI_REGIONS.get(location)
    if start is not None:
        return all(name.startswith(start) and not (location == "eu" and name in _NOT_IN_EU) for name in wanted)
    return wanted <= members


def common(location: str, other: str) -> str | None:
    """The place that is near to both: the smaller one, what two dual-regions share, or None."""
    location, other = normalised(location), normalised(other)
    if covers(location, other):
        return other
    if covers(other, location):
        return location
    if location in _MULTI_REGIONS or other in _MULTI_REGIONS:
        multi, place = (location, other) if location in _MULTI_REGIONS else (other, location)
        return joined([region for region in _members(place) if place not in _MULTI_REGIONS and covers(multi, region)])
    return joined(list(_members(location) & _members(other)))


def joined(regions: list[str]) -> str | None:
    """One location for several regions; None for no regions at all."""
    return "+".join(sorted({normalised(region) for region in regions})) or None


def region_of_zone(zone: str) -> str:
    """`us-central1-a` -> `us-central1`. ValueError for anything that is not a zone."""
    matched = _ZONE.fullmatch(normalised(zone))
    if matched is None:
        raise ValueError(f"{zone!r} is not a zone: a zone is a region and a letter, as in us-central1-a")
    return matched["region"]


def continent(location: str) -> str | None:
    """The continent of a location, as price lists call it: `north-america`, `europe`, ... None if unknown."""
    return _CONTINENTS.get(normalised(location).partition("-")[0])


def bucket_of(url: str) -> str | None:
    """The bucket of a `gs://` (or `gcs://`) URL; None for any other path."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _GOOGLE_SCHEMES:
        return None
    return rest.partition("/")[0] or None


def _members(location: str) -> frozenset[str]:
    return _DUAL_REGIONS.get(location) or frozenset(location.split("+"))
