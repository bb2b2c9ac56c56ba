"""What an hour of a job on Google Cloud costs, by its resources and the tables of `config/machine_prices.yaml`: pure,
except for reading that file.

A machine costs what its cores, memory and GPUs cost in its region, on demand or Spot; a TPU slice what its chips cost,
beside the small machine of its worker. Of all slices that a step may get, the most expensive determines the price.
Reserved machines are paid for anyway, and those with a flexible start have prices of their own: both are unknown here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from operator import add
from pathlib import Path
from typing import Any

from marin_rules.clusters.gcp.machine_types import machine_type
from marin_rules.clusters.gcp.offers import Offer
from marin_rules.clusters.prices import UNKNOWN, Price
from marin_rules.errors import SettingsError
from marin_rules.geography import region_of_zone
from marin_rules.project import project_folder
from marin_rules.resources import TPU_TOPOLOGIES

_MODELS = {"STANDARD": 0, "SPOT": 1}
"""The position of each way of provisioning in a pair of prices."""

type _Pair = tuple[Price, Price]
"""On demand, and Spot."""


@dataclass(frozen=True)
class PriceTables:
    """Prices by what they are for and its region."""

    machines: Mapping[tuple[str, str], Mapping[str, _Pair]] = field(default_factory=dict)
    """Prices of the parts of a machine (core, gigabyte, gpu), by series or family."""

    gpus: Mapping[tuple[str, str], _Pair] = field(default_factory=dict)
    """Prices of a GPU that is attached to a machine, by its kind."""

    tpus: Mapping[tuple[str, str], _Pair] = field(default_factory=dict)
    """Prices of a chip, by generation."""


def hourly_price(resources: Mapping[str, Any], tables: PriceTables, offers: Sequence[Offer] = ()) -> Price:
    """The price of a job with these resources, named as in `resources.RESOURCE_NAMES`.

    `offers` are all slices that a TPU step may get.
    """
    price = _machine(resources, tables)
    if not resources.get("gcp_tpu"):
        return price * (resources.get("nodes") or 1)
    return price + _dearest(offers, tables) * (resources.get("gcp_tpu_slices") or 1)


def _machine(resources: Mapping[str, Any], tables: PriceTables) -> Price:
    machine = machine_type(str(resources.get("gcp_machine_type")))
    model = _MODELS.get(resources.get("gcp_provisioning") or "STANDARD")
    if machine is None or model is None or resources.get("gcp_reservation"):
        return UNKNOWN
    region = str(resources.get("gcp_region"))
    rates = tables.machines.get((machine.family, region)) or tables.machines.get((machine.series, region))
    if rates is None:
        return UNKNOWN
    amounts = {"core": machine.cpus, "gigabyte": machine.memory_gb, "gpu": machine.gpus}
    price = reduce(add, (pair[model] * amounts[part] for part, pair in rates.items()))
    gpu, _, count = str(resources.get("gcp_gpu") or "").partition(":")
    if gpu and machine.gpu is None:
        price += tables.gpus.get((gpu, region), _UNKNOWN_PAIR)[model] * int(count or 1)
    return price


def _dearest(offers: Sequence[Offer], tables: PriceTables) -> Price:
    prices = [_slice(offer, tables) for offer in offers]
    if not prices or any(price.dollars is None for price in prices):
        return UNKNOWN
    return max(prices, key=lambda price: price.dollars or 0.0)


def _slice(offer: Offer, tables: PriceTables) -> Price:
    topology = TPU_TOPOLOGIES.get(offer.accelerator)
    if topology is None or offer.reservation:
        return UNKNOWN
    kind = (offer.accelerator.rpartition("-")[0], region_of_zone(offer.zone))
    return tables.tpus.get(kind, _UNKNOWN_PAIR)[_MODELS["SPOT" if offer.spot else "STANDARD"]] * topology.chip_count


_UNKNOWN_PAIR = (UNKNOWN, UNKNOWN)


# --- the file


@cache
def price_tables() -> PriceTables:
    """The tables of the project. `SettingsError` if somebody has damaged them."""
    return read_tables(project_folder() / "config" / "machine_prices.yaml")


def read_tables(path: Path) -> PriceTables:
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return merged(content["tables"])
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise SettingsError(
            f"{path} has no prices that can be read ({type(error).__name__}: {error}): see the beginning of the file"
            " for its format"
        ) from error


def merged(tables: Sequence[Mapping[str, Any]]) -> PriceTables:
    """All tables as one: of two prices for the same thing, the newer."""
    machines: dict[tuple[str, str], dict[str, _Pair]] = {}
    gpus: dict[tuple[str, str], _Pair] = {}
    tpus: dict[tuple[str, str], _Pair] = {}
    for table in sorted(tables, key=lambda table: str(table["date"])):
        date, source = str(table["date"]), str(table["source"])
        for key, parts in _rows(table.get("machines") or {}):
            known = machines.setdefault(key, {})
            for part, pair in parts.items():
                if part not in ("core", "gigabyte", "gpu"):
                    raise ValueError(f"{part!r} is no part of a machine")
                known[part] = _newer(known.get(part), pair, date, source)
        for found, kind in ((gpus, "gpus"), (tpus, "tpus")):
            for key, pair in _rows(table.get(kind) or {}):
                found[key] = _newer(found.get(key), pair, date, source)
    return PriceTables(machines, gpus, tpus)


def _rows(block: Mapping[str, Mapping[str, Any]]) -> Iterable[tuple[tuple[str, str], Any]]:
    """The entry for each name and region; regions with the same prices share a row."""
    for name, rows in block.items():
        for regions, row in rows.items():
            yield from (((name, region), row) for region in regions.split())


def _newer(older: _Pair | None, pair: Sequence[float | None], date: str, source: str) -> _Pair:
    on_demand, spot = (UNKNOWN if dollars is None else Price(float(dollars), date, source) for dollars in pair)
    before = older or _UNKNOWN_PAIR
    return (before[0] if on_demand is UNKNOWN else on_demand, before[1] if spot is UNKNOWN else spot)
