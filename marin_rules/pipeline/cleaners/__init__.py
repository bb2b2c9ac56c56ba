"""Removes what surrounds the text of pages whose layout is known, before a library extracts their text.

A cleaner is a frozen dataclass with a method `clean`: a record with HTML in, a DOM tree out. It knows one kind of page
and nothing about shards or libraries. A record that is not of that kind is `Unusable`, one that the settings leave out
is `Unwanted`; `extract` rejects the former and drops the latter. Fields that the text replaces are its `used_fields`,
and `kind` tells the versions of cleaners apart.
"""

from __future__ import annotations

from marin_rules.pipeline.cleaners.ar5iv import Ar5ivCleaner
from marin_rules.pipeline.cleaners.pages import Unusable, Unwanted
from marin_rules.pipeline.cleaners.stack_exchange import StackExchangeCleaner
from marin_rules.pipeline.cleaners.wikipedia import WikipediaCleaner

__all__ = ["Ar5ivCleaner", "Cleaner", "StackExchangeCleaner", "Unusable", "Unwanted", "WikipediaCleaner"]

type Cleaner = Ar5ivCleaner | StackExchangeCleaner | WikipediaCleaner
