"""Checks a project of Google Cloud before the first run: fetches the facts that `readiness` judges.

What cannot be determined, for lack of a permission or an answer, is a check that was not made; the others are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from marin_rules.checks import Check, Unanswered, Verdict
from marin_rules.clusters.gcp import readiness
from marin_rules.clusters.gcp.calls import LOGIN, Calls, NotFoundError
from marin_rules.clusters.gcp.demand import Demand, demand_of
from marin_rules.clusters.gcp.machine_types import gpu_machine
from marin_rules.clusters.gcp.readiness import ACCOUNT_ROLES, CALLER_ROLES, SECRET_ROLES, TPU_ROLES, Quota
from marin_rules.clusters.gcp.rest import Rest
from marin_rules.clusters.gcp.site import GcpSite
from marin_rules.clusters.gcp.tpu_offers import TpuOffers
from marin_rules.clusters.protocol import ClusterError, RefusedError, WantedMachines
from marin_rules.geography import bucket_of, covers
from marin_rules.storage.prefix_check import check_prefix
from marin_rules.storage.regions import region_of

_CALLS = Calls(retry_seconds=10.0, call_seconds=10.0)
"""A person waits for each answer."""

_ACT_AS = "iam.serviceAccounts.actAs"
_SERVICES = ("batch", "compute", "logging", "storage")


def check_site(site: GcpSite, prefix: str, wanted: Sequence[WantedMachines] = ()) -> Iterator[Check]:
    """Everything that its jobs will need, with results below this prefix, and for steps with these machines."""
    demand = demand_of(wanted, site)
    for step, why in demand.refusals.items():
        yield Check(f"machines for step {step}", Verdict.MISSING, why)
    try:
        rest = Rest(site.project, _CALLS)
    except RefusedError as error:
        yield Check("credentials", Verdict.MISSING, str(error), LOGIN)
        nobody = Unanswered("there are no credentials")
        services = dict.fromkeys(_services(site), nobody)
        yield from (readiness.about_service(site.project, service, why) for service, why in services.items())
        for what in ("roles", "service account", "quotas", f"bucket of {prefix}", *(["TPUs"] if site.tpus else [])):
            yield Check(what, Verdict.UNKNOWN, nobody.why)
        return
    with closing(rest):
        yield Check("credentials", Verdict.OK, rest.account)
        look = _Look(site, rest)
        yield from look.at_services(_services(site))
        yield from look.at_roles()
        yield from look.at_account(prefix)
        yield from look.at_secrets()
        yield from look.at_quotas(demand)
        if not site.external_address:
            yield from look.at_networks()
    yield from _at_tpus(site, demand)
    yield from _at_bucket(site, prefix)


def _services(site: GcpSite) -> list[str]:
    names = [*_SERVICES, *(["tpu"] if site.tpus else []), *(["secretmanager"] if any(site.secrets.values()) else [])]
    return [f"{name}.googleapis.com" for name in names]


class _Look:
    """At one project."""

    def __init__(self, site: GcpSite, rest: Rest) -> None:
        self._site = site
        self._rest = rest
        self._project = site.project

    def at_services(self, services: Sequence[str]) -> Iterator[Check]:
        states = _answer(self._states, services)
        yield from (readiness.about_service(self._project, service, states) for service in services)

    def at_roles(self) -> Iterator[Check]:
        wanted = [permission for permissions in CALLER_ROLES.values() for permission in permissions]
        granted = _answer(self._permissions, "cloudresourcemanager", f"v1/projects/{self._project}", wanted)
        for role in CALLER_ROLES:
            yield readiness.about_role(self._project, self._rest.account, role, granted)

    def at_account(self, prefix: str) -> Iterator[Check]:
        named = self._site.service_account
        email = _answer(self._default_account) if named is None else named
        if isinstance(email, Unanswered):
            detail = f"the file names none, and the project's own is not known: {email.why}"
            yield Check("service account", Verdict.UNKNOWN, detail, "write gcp.service_account into the cluster's file")
            return
        path = f"v1/projects/-/serviceAccounts/{email}"
        granted = _answer(self._permissions, "iam", path, [_ACT_AS])
        may_act = granted if isinstance(granted, Unanswered) else _ACT_AS in granted
        is_disabled = _answer(self._is_disabled, path)
        yield readiness.about_account(self._project, self._rest.account, email, is_disabled, may_act)
        bindings = _answer(self._bindings)
        needs_secrets = any(self._site.secrets.values())
        roles = [*ACCOUNT_ROLES, *(TPU_ROLES if self._site.tpus else ()), *(SECRET_ROLES if needs_secrets else ())]
        for role in roles:
            yield readiness.about_account_role(self._project, email, role, bindings)
        bucket = bucket_of(prefix)
        if bucket is not None:
            yield readiness.about_bucket_role(email, bucket, _answer(self._bindings_of_bucket, bucket))

    def at_secrets(self) -> Iterator[Check]:
        for variable, place in self._site.secrets.items():
            if place is not None:
                state = _answer(self._state_of_secret, place)
                yield readiness.about_secret(variable, place, state)

    def at_quotas(self, demand: Demand) -> Iterator[Check]:
        for region in self._site.regions:
            quotas = _answer(self._quotas, region)
            for need in demand.needs:
                if need.region == region:
                    yield readiness.about_need(
                        self._project, region, need.step, need.amount, need.quota, quotas, spot=need.spot
                    )
            for machines, quota, spots in _quotas_of(self._site):
                for spot in spots:
                    yield readiness.about_quota(self._project, region, machines, quota, quotas, spot=spot)

    def at_networks(self) -> Iterator[Check]:
        for place in dict.fromkeys(_subnetwork_of(self._site, region) for region in self._site.regions):
            project, region, name = place
            path = f"compute/v1/projects/{project}/regions/{region}/subnetworks/{name}"
            found = _answer(self._has_private_access, path)
            yield readiness.about_private_access(project, region, name, found)

    # --- facts

    def _states(self, services: Sequence[str]) -> dict[str, str]:
        parent = f"projects/{self._project}"
        wanted = [("names", f"{parent}/services/{service}") for service in services]
        answer = self._rest.get("serviceusage", f"v1/{parent}/services:batchGet", wanted)
        # Its names have the number of the project, not its id.
        return {str(one["name"]).rpartition("/")[2]: str(one.get("state")) for one in answer.get("services", ())}

    def _permissions(self, service: str, resource: str, wanted: Sequence[str]) -> frozenset[str]:
        answer = self._rest.post(service, f"{resource}:testIamPermissions", {"permissions": list(wanted)})
        return frozenset(answer.get("permissions", ()))

    def _default_account(self) -> str:
        """The account that Compute Engine gives to machines, and Batch to jobs, that name none."""
        number = self._rest.get("cloudresourcemanager", f"v1/projects/{self._project}")["projectNumber"]
        return f"{number}-compute@developer.gserviceaccount.com"

    def _is_disabled(self, path: str) -> bool | None:
        try:
            return bool(self._rest.get("iam", path).get("disabled"))
        except NotFoundError:
            return None

    def _bindings(self) -> dict[str, list[str]]:
        path = f"v1/projects/{self._project}:getIamPolicy"
        return _members_by_role(
            self._rest.post("cloudresourcemanager", path, {"options": {"requestedPolicyVersion": 3}})
        )

    def _bindings_of_bucket(self, bucket: str) -> dict[str, list[str]]:
        path = f"storage/v1/b/{bucket}/iam"
        return _members_by_role(self._rest.get("storage", path, [("optionsRequestedPolicyVersion", "3")]))

    def _state_of_secret(self, place: str) -> str | None:
        try:
            return str(self._rest.get("secretmanager", f"v1/{place}").get("state"))
        except NotFoundError:
            return None

    def _quotas(self, region: str) -> dict[str, Quota]:
        answer = self._rest.get("compute", f"compute/v1/projects/{self._project}/regions/{region}")
        return {
            str(one["metric"]): Quota(float(one["limit"]), float(one.get("usage", 0)))
            for one in answer.get("quotas", ())
        }

    def _has_private_access(self, path: str) -> bool | None:
        try:
            return bool(self._rest.get("compute", path).get("privateIpGoogleAccess"))
        except NotFoundError:
            return None


def _members_by_role(policy: Mapping[str, Any]) -> dict[str, list[str]]:
    """Who has which role without any condition: only Google can tell whether a condition holds for a job."""
    found: dict[str, list[str]] = {}
    for binding in policy.get("bindings", ()):
        if "condition" not in binding:
            found.setdefault(str(binding["role"]), []).extend(binding.get("members", ()))
    return found


def _quotas_of(site: GcpSite) -> Iterator[tuple[str, str | None, Sequence[bool]]]:
    """The machines of the cluster's file: their name, their quota, and whether they may also be Spot machines."""
    for series in site.series:
        yield f"{series} machines", readiness.cpu_quota(series), (False, True) if site.plain.spot else (False,)
    for name, supply in site.gpus.items():
        machine = gpu_machine(name, 1, 1, 0)
        quota = None if machine is None or machine.gpu is None else readiness.gpu_quota(machine.gpu)
        yield f"{name} GPUs", quota, (False, True) if supply.spot else (False,)


def _subnetwork_of(site: GcpSite, region: str) -> tuple[str, str, str]:
    """The project, region and name of the subnetwork that machines of a region are in: that of the cluster's file, or
    the one that Google makes in each region of a network."""
    named = dict(re.findall(r"(projects|regions|subnetworks)/([^/]+)", site.subnetwork or ""))
    network = (site.network or "default").rpartition("/")[2]
    return named.get("projects", site.project), named.get("regions", region), named.get("subnetworks", network)


def _at_tpus(site: GcpSite, demand: Demand) -> Iterator[Check]:
    if not site.tpus:
        return
    zones = dict.fromkeys(zone for supply in site.tpus.values() for zone in supply.zones)
    kinds: dict[str, list[str] | Unanswered]
    versions: dict[str, list[str] | Unanswered]
    offers = _answer(TpuOffers, site.project, _CALLS)
    if isinstance(offers, Unanswered):
        kinds = versions = dict.fromkeys(zones, offers)
    else:
        with closing(offers):
            kinds = {zone: _answer(offers.accelerator_types, zone) for zone in zones}
            versions = {zone: _answer(offers.runtime_versions, zone) for zone in zones}
    for generation, supply in site.tpus.items():
        for zone in supply.zones:
            yield readiness.about_tpu_type(zone, generation, kinds[zone])
            yield readiness.about_tpu_runtime(zone, supply.runtime_version, versions[zone])
    for zone, kind in demand.tpus:
        yield readiness.about_tpu_type(zone, kind, kinds[zone])


def _at_bucket(site: GcpSite, prefix: str) -> Iterator[Check]:
    bucket = bucket_of(prefix)
    if bucket is None:
        detail = f"{prefix} is not a bucket of Google Cloud Storage, and machines there share no other disk"
        yield Check("prefix", Verdict.MISSING, detail, "marin-rules cluster check --prefix gs://BUCKET/FOLDER")
        return
    region = region_of(prefix, site.name)
    what = f"region of bucket {bucket}"
    if region is None:
        yield Check(what, Verdict.UNKNOWN, "it is not known", f"gcloud storage buckets describe gs://{bucket}")
    elif not any(covers(region, job_region) for job_region in site.regions):
        detail = f"it is in {region}, and jobs run in {', '.join(site.regions)}"
        yield Check(what, Verdict.MISSING, detail, f"add {region} to gcp.regions of the cluster's file")
    else:
        yield Check(what, Verdict.OK, region)
    yield from check_prefix(prefix)


def _answer[T, **Arguments](
    fetch: Callable[Arguments, T], *arguments: Arguments.args, **options: Arguments.kwargs
) -> T | Unanswered:
    """A fact, or why it could not be determined."""
    try:
        return fetch(*arguments, **options)
    except (ClusterError, KeyError, ValueError) as error:
        return Unanswered(str(error))
