"""The hosts of TPU slices as machines for the ranks of a step: requested, watched, replaced and deleted by its worker.

Offers are tried in turn until one succeeds. A slice that an earlier worker of the same step has left behind is reused
if it is what would be requested now, and deleted if not: there is never a second one. Every slice that is no longer
usable is deleted at once, because one that is suspended or has failed still uses up quota.

No name of a slice is used twice, by any worker: Google treats a second creation of the same name as the first, and
hosts would find the messages of their predecessors.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from marin_rules.clusters.gcp import names
from marin_rules.clusters.gcp.host_ranks import NoMachinesError
from marin_rules.clusters.gcp.meeting import Meeting, Pace
from marin_rules.clusters.gcp.offers import EARLY_SECONDS, FORGET_SECONDS, Offer, ZoneFailure, in_order
from marin_rules.clusters.gcp.shortages import MORE_SLICES, advice_about_slice, no_slice
from marin_rules.clusters.gcp.slice_notice import SliceNotice
from marin_rules.clusters.gcp.slice_states import SliceState, SliceWord
from marin_rules.clusters.gcp.slices import FoundSlice, SliceRequest, Slices
from marin_rules.clusters.patience import pause_seconds
from marin_rules.clusters.protocol import BusyError, ClusterError, RefusedError
from marin_rules.storage.objects.open import open_objects
from marin_rules.storage.patience import patiently

_LOOK_SECONDS = 10.0
"""The pause between two queries about a slice; times the pace."""

_TRIES = 3
"""How often a query that a busy service does not answer is repeated."""


@dataclass(frozen=True)
class SlicePlan:
    """Everything known beforehand about the slices of a step."""

    step: str
    """Its name, for people."""

    identity: str
    """Distinguishes the step from all others."""

    job: str
    """Distinguishes this worker of the step from all others."""

    offers: Sequence[Offer]
    slices: int
    hosts: int
    """Of one slice."""

    place: str
    """The folder under which workers and hosts of the step meet."""

    zone_memory: str
    """The object in which all workers of the run record which zones had trouble."""

    request: SliceRequest
    """What all slices have in common; id, offer and script are filled in."""

    script_for: Callable[[Meeting, str, str], str]
    """What a host runs at every boot, for the place where it finds its order, the name of its slice and the zone."""


class SliceMachines:
    """See `host_ranks.Machines`."""

    can_be_replaced = True

    def __init__(self, plan: SlicePlan, slices: Slices, pace: Pace) -> None:
        self.pace = pace
        self._plan = plan
        self._slices = slices
        self._zones = ZoneMemory(plan.zone_memory)
        self._notice = SliceNotice(plan.place, plan.job)
        self._mark = {names.SLICE: names.label_value(plan.identity)}
        """The labels of all slices of the step, in any run: only one worker of it is alive."""

        self._number = 0
        self._current: SliceRequest | None = None
        self._ready_at: float | None = None
        """Since when all nodes of the current slice are up; long ago for one that was taken over."""

        self._given_up: set[str] = set()
        self._looked = float("-inf")
        self._say: Callable[[str], None] = lambda text: None

    @property
    def count(self) -> int:
        return self._plan.slices * self._plan.hosts

    @property
    def facts(self) -> Mapping[str, Any]:
        if self._current is None:
            return {}
        offer = self._current.offer
        kind = offer.accelerator if self._plan.slices == 1 else f"{self._plan.slices} x {offer.accelerator}"
        return {
            "machines": f"TPU {kind}",
            "tpu": offer.accelerator,
            "zone": offer.zone,
            "slice": self._current.id,
            "slices": self._plan.slices,
            "hosts": self.count,
            "provisioning": offer.way,
        }

    # -- having them -----------------------------------------------------------------------------------------

    def obtain(self, stopped: Callable[[], bool], say: Callable[[str], None]) -> Meeting | None:
        self._say = say
        for rounds in itertools.count(1):
            found = self._try_all_offers(stopped)
            if found is not None or stopped():
                return found
            pause = pause_seconds(rounds) * self._factor
            say(f"no TPU slice is available now; all offers will be tried again in {pause:.0f} s")
            if _sleep(pause, stopped):
                return None
        return None

    def _try_all_offers(self, stopped: Callable[[], bool]) -> Meeting | None:
        """Where the hosts of a slice meet, once there is one; None if each offer was tried in vain."""
        if self._current is None:
            self._take_over(stopped)
        untried = list(self._plan.offers)
        refusals: list[RefusedError] = []
        while not stopped():
            if self._current is not None:
                if self._wait(self._current, stopped):
                    return self._meeting(self._current.id)
            elif untried:
                offer = in_order(untried, self._zones.failures(), time.time())[0]
                untried.remove(offer)
                refusals += self._ask_for(offer)
            else:
                break
        if len(refusals) == len(self._plan.offers):
            raise NoMachinesError(f"step {self._plan.step} gets no TPU slice: {refusals[-1]}") from refusals[-1]
        return None

    def _take_over(self, stopped: Callable[[], bool]) -> None:
        """Use what an earlier worker has left, if it fits; delete the rest."""
        for found in self._left_over(stopped):
            self._number = max(self._number, _number_of(found.id))
            if found.state == "DELETING":
                continue
            request = self._request_of(found)
            word = self._patiently(partial(self._slices.look, found.zone, found.id))
            is_live = word is not None and word.state in (SliceState.WAITING, SliceState.READY)
            if is_live and request is not None and self._current is None and found.id not in self._given_up:
                self._say(f"TPU slice {found.id} in {found.zone} exists already and is used again")
                self._current, self._ready_at = request, float("-inf")
            else:
                self._say(f"TPU slice {found.id} in {found.zone} is left over ({found.state}) and will be deleted")
                self._delete(found.zone, found.id)

    def _left_over(self, stopped: Callable[[], bool]) -> list[FoundSlice]:
        """All slices of the step. Without knowing them none is requested: it might be the second."""
        zones = list(dict.fromkeys(offer.zone for offer in self._plan.offers))
        told = ""
        for tries in itertools.count(1):
            try:
                return self._slices.find(self._mark, zones)
            except RefusedError as error:
                raise NoMachinesError(f"step {self._plan.step} gets no TPU slice: {error}") from error
            except ClusterError as error:
                if str(error) != told:
                    told = str(error)
                    self._say(f"{told}; will try again")
                    self._notice.say(no_slice(told))
            if _sleep(pause_seconds(tries) * self._factor, stopped):
                break
        return []

    def _request_of(self, found: FoundSlice) -> SliceRequest | None:
        """The request that would create this slice now; None if there is none."""
        requests = (self._request(found.id, offer) for offer in self._plan.offers if offer.zone == found.zone)
        return next((request for request in requests if found.is_what(request)), None)

    def _ask_for(self, offer: Offer) -> list[RefusedError]:
        """Request a slice; returns why it was refused, if that will not change."""
        self._number += 1
        identity = f"{self._plan.identity} {self._plan.job}"
        request = self._request(names.job_id(self._plan.step, identity, self._number), offer)
        try:
            self._slices.create(request)
        except RefusedError as error:
            self._say(f"TPU slice {offer.words}: {error}")
            self._zones.note(offer.zone)
            return [error]
        except ClusterError as error:
            self._say(f"TPU slice {offer.words}: {_with_advice(str(error))}")
            self._notice.say(no_slice(f"{offer.words}: {error}"))
            self._zones.note(offer.zone)
            # It may exist anyway, and arrive later, at somebody's expense.
            self._delete(offer.zone, request.id)
            return []
        self._say(f"TPU slice {request.id} ({offer.words}) was requested")
        self._current, self._ready_at = request, None
        return []

    def _wait(self, request: SliceRequest, stopped: Callable[[], bool]) -> bool:
        """Whether the slice arrives; if it does not, it is given up."""
        limit, told = request.offer.wait_seconds * self._factor, ""
        give_up_at = time.monotonic() + limit
        while not stopped():
            word: SliceWord | None = self._patiently(partial(self._slices.look, request.offer.zone, request.id))
            if word is not None:
                if word.state is SliceState.READY:
                    self._notice.say("")
                    self._ready_at = self._ready_at or time.monotonic()
                    return True
                if word.state is not SliceState.WAITING:
                    self._give_up(f"was not available: {_with_advice(word.reason)}", is_zones_fault=True)
                    return False
                if word.reason != told:
                    told = word.reason
                    self._say(f"TPU slice {request.id} is {told}; waiting for at most {limit:.0f} s")
                    self._notice.say(no_slice(f"{request.offer.words}: {told}"))
            if time.monotonic() > give_up_at:
                why = f"was still {told or 'not visible'} after {limit:.0f} s: {MORE_SLICES}"
                self._give_up(why, is_zones_fault=True)
                return False
            _sleep(_LOOK_SECONDS * self._factor, stopped)
        return False

    @property
    def _factor(self) -> float:
        return self.pace.look / Pace().look

    # -- watching, and giving them back ------------------------------------------------------------------------

    def lost(self) -> str | None:
        now = time.monotonic()
        if self._current is None or now - self._looked < _LOOK_SECONDS * self._factor:
            return None
        self._looked = now
        try:
            word = self._slices.look(self._current.offer.zone, self._current.id)
        except ClusterError:  # Hosts that are still up report; those that are not are missed.
            return None
        if word.state not in (SliceState.LOST, SliceState.REFUSED):
            return None
        return f"TPU slice {self._current.id} in {self._current.offer.zone} was lost: {word.reason}"

    def replace(self, why: str) -> None:
        if self._current is not None:
            since = time.monotonic() if self._ready_at is None else self._ready_at
            is_early = time.monotonic() - since < EARLY_SECONDS * self._factor
            self._give_up(f"is replaced: {why}", is_zones_fault=is_early)

    def _give_up(self, why: str, *, is_zones_fault: bool) -> None:
        assert self._current is not None
        self._say(f"TPU slice {self._current.id} ({self._current.offer.words}) {why}")
        self._notice.say(no_slice(f"{self._current.offer.words}, {why.splitlines()[0]}"))
        if is_zones_fault:
            self._zones.note(self._current.offer.zone)
        self.release()

    def release(self) -> None:
        if self._current is not None:
            zone, slice_id = self._current.offer.zone, self._current.id
            self._current = None
            self._given_up.add(slice_id)
            self._delete(zone, slice_id)

    def _delete(self, zone: str, slice_id: str) -> None:
        if self._patiently(partial(self._slices.delete, zone, slice_id), default=False) is False:
            self._say(
                f"could not delete TPU slice {slice_id} in {zone}; its hosts will do so after a while, or run:"
                f" gcloud compute tpus queued-resources delete {slice_id} --zone={zone} --force --quiet"
            )

    # -- in between ------------------------------------------------------------------------------------------

    def _request(self, slice_id: str, offer: Offer) -> SliceRequest:
        kind = {names.ACCELERATOR: names.label_value(offer.accelerator)}
        script = self._plan.script_for(self._meeting(slice_id), slice_id, offer.zone)
        labels = {**self._plan.request.labels, **self._mark, **kind}
        return replace(self._plan.request, id=slice_id, offer=offer, script=script, labels=labels)

    def _meeting(self, slice_id: str) -> Meeting:
        return Meeting(f"{self._plan.place}/{slice_id}")

    def _patiently(self, action: Callable[[], Any], default: Any = None) -> Any:
        """An action of the service, repeated while it is busy; `default` if that does not help, or it is refused."""
        for tries in range(1, _TRIES + 1):
            try:
                return action()
            except BusyError as error:
                self._say(f"{error}; will try again")
                time.sleep(pause_seconds(tries) * self._factor)
            except ClusterError as error:
                self._say(str(error))
                return default
        return default


class ZoneMemory:
    """Which zones had trouble lately, for all workers of a run. It only orders zones: a store that does not answer, or
    a lost failure among others', does no harm."""

    def __init__(self, url: str) -> None:
        self._url = url

    def failures(self) -> list[ZoneFailure]:
        try:
            found = patiently(lambda: open_objects(self._url).read(self._url))
            fields = [] if found is None else json.loads(found.data)
            return [ZoneFailure(str(zone), float(moment)) for zone, moment in fields]
        except (OSError, ValueError, TypeError, RecursionError):
            return []

    def note(self, zone: str) -> None:
        """Remember a failure."""
        now = time.time()
        kept = [failure for failure in self.failures() if abs(now - failure.time) < FORGET_SECONDS]
        fields = [(failure.zone, failure.time) for failure in (*kept, ZoneFailure(zone, now))]
        with suppress(OSError):
            patiently(lambda: open_objects(self._url).put(self._url, json.dumps(fields).encode()))


def _with_advice(reason: str) -> str:
    advice = advice_about_slice(reason)
    return f"{reason} {advice}" if advice else reason


def _number_of(slice_id: str) -> int:
    number = slice_id.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _sleep(seconds: float, stopped: Callable[[], bool]) -> bool:
    """Sleep, unless stopped; returns whether it was stopped."""
    due = time.monotonic() + seconds
    while (left := due - time.monotonic()) > 0:
        if stopped():
            return True
        time.sleep(min(left, 0.5))
    return stopped()
