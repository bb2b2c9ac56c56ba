"""This machine as a host of a TPU slice: which rank it is, how it gets secrets, and how it deletes its slice.

A host learns from its metadata server which one it is; no variable says so.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from marin_rules.clusters.gcp.host import Host
from marin_rules.clusters.gcp.job_variables import MEETING_VARIABLE, SLICE_VARIABLE
from marin_rules.clusters.gcp.meeting import Meeting
from marin_rules.clusters.gcp.secrets import fetch_secret
from marin_rules.clusters.protocol import ClusterError
from marin_rules.storage.metadata import attribute


def host_of_slice(variables: Mapping[str, str]) -> Host:
    """This machine, as its startup script and its metadata server describe it."""
    about = json.loads(variables[SLICE_VARIABLE])
    # Now, while nothing of the step runs here yet.
    for name, place in about["secrets"].items():
        os.environ[name] = fetch_secret(place)
    number = int(_required("agent-worker-number"))
    environment = read_tpu_env(attribute("tpu-env") or "")
    slice_number = slice_number_in(environment, about["id"]) if about["slices"] > 1 else 0
    return Host(
        meeting=Meeting(variables[MEETING_VARIABLE]),
        rank=slice_number * int(about["hosts"]) + number,
        address=address_of(_required("worker-network-endpoints"), number),
        variables=environment_of_slices(environment),
        abandon=lambda: _delete(about),
    )


def address_of(endpoints: str, number: int) -> str:
    """The address of a host among those of its slice, `uid:port:address` each."""
    return endpoints.split(",")[number].rpartition(":")[2]


def read_tpu_env(text: str) -> dict[str, str]:
    """What the attribute `tpu-env` says: lines of `NAME: 'value'`."""
    lines = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip().strip("'\"") for name, _, value in lines}


def environment_of_slices(environment: Mapping[str, str]) -> dict[str, str]:
    """What libraries have to know about the other slices, if there are several."""
    return {name: value for name, value in environment.items() if name.startswith("MEGASCALE_")}


def slice_number_in(environment: Mapping[str, str], slice_id: str) -> int:
    """Which of several slices this is: according to Google, or by the node's name, which is ours with a number."""
    name, _, last = environment.get("NODE_ID", "").rpartition("-")
    number = environment.get("MEGASCALE_SLICE_ID") or (last if name == slice_id else "")
    if not number.isdecimal():
        raise ClusterError(
            f"the metadata server does not say which slice of {slice_id} this machine belongs to: tpu-env has neither"
            " MEGASCALE_SLICE_ID nor a NODE_ID of that name"
        )
    return int(number)


def _required(name: str) -> str:
    value = attribute(name)
    if not value:
        raise ClusterError(
            f"the metadata server of this machine does not report {name}: it is not a host of a TPU slice"
        )
    return value


def _delete(about: Mapping[str, Any]) -> None:
    from marin_rules.clusters.gcp.slices import Slices

    try:
        Slices(about["project"]).delete(about["zone"], about["id"])
    except ClusterError as error:
        print(f"marin-rules: could not delete TPU slice {about['id']}: {error}", file=sys.stderr, flush=True)
