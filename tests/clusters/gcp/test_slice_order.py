"""What the worker of a TPU step is told, and the startup script that it makes of that: run by bash."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from marin_rules.clusters.gcp.meeting import Meeting, Pace
from marin_rules.clusters.gcp.offers import Offer
from marin_rules.clusters.gcp.slice_order import SliceOrder
from marin_rules.clusters.gcp.startup_script import LARGEST_BYTES, MOST_FAILURES, HostPlace, startup_script
from marin_rules.clusters.protocol import RefusedError

ORDER = SliceOrder(
    step="train",
    identity="train-0123ab place",
    project="emulated",
    offers=(
        Offer("v4-16", "us-central2-b", "base", spot=True, topology="2x2x2", wait_seconds=60.0),
        Offer("v4-16", "us-central2-b", "base", reservation="lab"),
    ),
    slices=2,
    hosts=2,
    place="gs://bucket/meetings",
    variables=("LANG", "MISSING", "MARIN_RULES_JOB_CPUS"),
    secrets={"HF_TOKEN": "projects/emulated/secrets/hf/versions/1"},
    labels={"marin-run": "run-1"},
    image="lab/image:1",
    network="global/networks/lab",
    subnetwork="regions/us-central2/subnetworks/lab",
    external_address=False,
    service_account="jobs@emulated.iam.gserviceaccount.com",
)
JOB = {
    "LANG": "C",
    "HF_TOKEN": "hf_abc",
    "HOME": "/root",
    "MARIN_RULES_JOB_ID": "train-1",
    "MARIN_RULES_JOB_CPUS": "4",
    "MARIN_RULES_JOB_SCRIPT": "exec worker",
}
"""All variables of a worker."""

MEETING = Meeting("gs://bucket/meetings/x/s-1")
PLACE = HostPlace("emulated", "us-central2-b", "s-1", MEETING.boot_log)


def test_an_order_survives_the_definition_of_its_job() -> None:
    assert SliceOrder.from_json(ORDER.to_json()) == replace(ORDER, variables=list(ORDER.variables))


def test_slices_have_in_common_what_the_order_says() -> None:
    plan = ORDER.plan(JOB)
    assert (plan.step, plan.identity, plan.job, plan.slices, plan.hosts) == (
        "train",
        "train-0123ab place",
        "train-1",
        2,
        2,
    )
    assert plan.offers == ORDER.offers
    request = plan.request
    assert (request.count, request.labels, request.external_address) == (2, {"marin-run": "run-1"}, False)
    assert (request.network, request.subnetwork, request.service_account) == (
        ORDER.network,
        ORDER.subnetwork,
        ORDER.service_account,
    )


def test_steps_of_a_run_meet_in_different_folders_and_share_what_they_know_of_zones() -> None:
    here, there = ORDER.plan(JOB), replace(ORDER, identity="eval-4567cd place").plan(JOB)
    assert here.place.startswith("gs://bucket/meetings/")
    assert here.place != there.place
    assert here.zone_memory == there.zone_memory == "gs://bucket/meetings/zones.json"


def exported(script: str) -> dict[str, str]:
    """The variables that a script exports, as bash sees them."""
    lines = [line for line in script.splitlines() if not line.startswith("#")]
    text = "\n".join(lines).replace("exec worker", "exec env -0")
    found = subprocess.run(["bash", "-c", text], env={"PATH": os.environ["PATH"]}, capture_output=True, check=True)
    pairs = (entry.partition("=") for entry in found.stdout.decode().split("\0") if entry)
    return {name: value for name, _, value in pairs if name not in ("PATH", "PWD", "SHLVL", "_", "OLDPWD")}


@pytest.mark.processes
def test_a_host_gets_what_the_order_names_and_a_word_of_its_slice() -> None:
    plan = replace(ORDER, image=None).plan(JOB)
    found = exported(plan.script_for(MEETING, "s-1", "us-central2-b"))
    about = json.loads(found.pop("MARIN_RULES_JOB_SLICE"))
    assert found == {
        "LANG": "C",
        "MARIN_RULES_JOB_ID": "s-1",
        "MARIN_RULES_JOB_MEETING": "gs://bucket/meetings/x/s-1",
    }
    assert about == {
        "id": "s-1",
        "project": "emulated",
        "zone": "us-central2-b",
        "slices": 2,
        "hosts": 2,
        "secrets": ORDER.secrets,
    }


def test_the_same_order_makes_the_same_script() -> None:
    """Otherwise no worker could take over the slice of another."""
    scripts = {
        SliceOrder.from_json(ORDER.to_json()).plan(job).script_for(MEETING, "s-1", "us-central2-b")
        for job in (JOB, {**JOB, "MARIN_RULES_JOB_ID": "train-2", "MARIN_RULES_JOB_NODE": "vm", "HOME": "/home"})
    }
    assert len(scripts) == 1
    assert "hf_abc" not in scripts.pop()


HOSTILE = {
    "QUOTES": 'it\'s "here"; $(touch broken) `touch broken` ${HOME}',
    "LINES": "one\ntwo\n'three'\\\n",
    "EMPTY": "",
    "JSON": json.dumps({"a": ["'", '"', "\\"]}),
    "LETTERS": "grün 日本 \u2028",
    "GLOB": "* ? ~ && exit 1",
}


@pytest.mark.processes
def test_values_reach_a_host_as_they_are(tmp_path: Path) -> None:
    script = startup_script(HOSTILE, "env -0 > variables", None, PLACE)
    file = tmp_path / "startup"
    file.write_text(script)
    subprocess.run(["bash", str(file)], cwd=tmp_path, check=True)
    found = (tmp_path / "variables").read_text().split("\0")
    assert {f"{name}={value}" for name, value in HOSTILE.items()} <= set(found)
    assert not (tmp_path / "broken").exists()


@pytest.mark.processes
@pytest.mark.parametrize("registry", ["us-docker.pkg.dev", "docker.io"])
def test_values_reach_a_container_as_they_are(tmp_path: Path, registry: str) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("docker", "gcloud"):
        (programs / name).write_text(f'#!/bin/sh\nprintf "%s\\0" "$@" > {name}.words\nenv -0 > {name}.variables\n')
        (programs / name).chmod(0o755)
    body = "cd \"it's here\" || exit\nexec worker --note '$HOME'"
    image = f"{registry}/lab/image:1"
    file = tmp_path / "startup"
    file.write_text(startup_script(HOSTILE, body, image, PLACE))
    subprocess.run(
        ["bash", str(file)], cwd=tmp_path, env={"PATH": f"{programs}:{os.environ['PATH']}", "OTHER": "1"}, check=True
    )
    words = (tmp_path / "docker.words").read_text().split("\0")[:-1]
    assert words[0] == "run"
    assert words[words.index("--entrypoint") :] == ["--entrypoint", "/bin/bash", image, "-c", body]
    assert {"--privileged", "--network=host"} <= set(words)
    passed = [words[place + 1] for place, word in enumerate(words) if word == "--env"]
    assert passed == sorted(HOSTILE)
    # Docker takes the values from its own variables.
    found = (tmp_path / "docker.variables").read_text().split("\0")
    assert {f"{name}={value}" for name, value in HOSTILE.items()} <= set(found)
    logins = tmp_path / "gcloud.words"
    if registry.endswith(".pkg.dev"):
        assert logins.read_text().split("\0")[:-1] == ["auth", "configure-docker", registry, "--quiet"]
    else:
        assert not logins.exists()


@pytest.mark.processes
def test_a_host_whose_program_does_not_start_says_why_and_in_the_end_has_its_slice_deleted(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    gcloud, sleep = programs / "gcloud", programs / "sleep"
    gcloud.write_text('#!/bin/sh\n[ "$1" = storage ] && cat > told; echo "$*" >> gcloud.words\n')
    # Each pause is over at once; when the slice is gone, so is this host.
    sleep.write_text('#!/bin/sh\necho "$1" >> sleep.words; ! grep -q delete gcloud.words || kill $PPID\n')
    for program in (gcloud, sleep):
        program.chmod(0o755)
    file = tmp_path / "startup"
    file.write_text(startup_script({}, "echo no such image; echo really >&2; exit 125", None, PLACE))
    subprocess.run(
        ["bash", str(file)], cwd=tmp_path, env={"PATH": f"{programs}:{os.environ['PATH']}"}, capture_output=True
    )
    assert (tmp_path / "told").read_text() == "no such image\nreally\n"
    words = (tmp_path / "gcloud.words").read_text().splitlines()
    *told, last = words
    assert set(told) == {f"storage cp - {MEETING.boot_log}"}
    assert len(told) < MOST_FAILURES / 10
    assert last == "compute tpus queued-resources delete s-1 --zone=us-central2-b --project=emulated --force --quiet"
    pauses = (tmp_path / "sleep.words").read_text().split()
    assert len(pauses) == MOST_FAILURES
    # A worker that lives waits for hosts for a shorter time.
    assert sum(map(int, pauses)) > Pace().start


def test_what_no_script_can_pass_on_is_refused() -> None:
    with pytest.raises(RefusedError, match="cannot get the variable 'a b'"):
        startup_script({"a b": "x"}, "true", None, PLACE)
    with pytest.raises(RefusedError, match=f"takes {LARGEST_BYTES:,}"):
        startup_script({"X": "ü" * (LARGEST_BYTES // 2)}, "true", None, PLACE)
